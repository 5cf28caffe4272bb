//! dirlist, one frame at a time.

use std::ops::ControlFlow;

use service::FileSums;
use wire::request::{Dirlist, DirlistOptions};
use wire::response::{DirlistBody, checksum_text};
use wire::{ResponseStatus, StreamId};

use crate::answer;
use crate::connection::{Connection, Stop};
use crate::from_wire::{Algorithm, hex, parse_path};
use crate::to_wire::{RequestError, stat_reply};

/// Approximate size of a frame of a listing, in bytes.
const FRAME_BYTES: usize = 64 << 10;

/// A checksum as listings show it, `adler32:0a1b2c3d`, or `none`.
fn shown(algorithm: Algorithm, sums: Option<FileSums>, digest: Option<&[u8]>) -> String {
    let kept = sums.and_then(|sums| algorithm.of(sums)).map(checksum_text);
    let value = kept.or_else(|| digest.map(hex)).unwrap_or_else(|| "none".to_owned());
    format!("{}:{value}", algorithm.name())
}

impl Connection {
    /// kXR_dirlist.
    #[inline(never)] // see `dispatch`
    pub(crate) fn dirlist(&mut self, stream: StreamId, r: &Dirlist) -> Result<Result<(), RequestError>, Stop> {
        let with_sums = r.options.has(DirlistOptions::DCKSM);
        let with_stat = with_sums || r.options.has(DirlistOptions::DSTAT);
        let path = match parse_path(&r.target.path) {
            Ok(path) => path,
            Err(request_error) => return Ok(Err(request_error)),
        };
        let mut listing = match self.front.service.list(&self.session.open.caller(), path.clone(), with_stat) {
            Ok(listing) => listing,
            Err(error) => return Ok(Err(error.into())),
        };
        let asked = if with_sums { r.target.get(b"cks.type") } else { None };
        let algorithm = match Algorithm::named(asked, self.front.service.digests()) {
            Ok(algorithm) => algorithm,
            Err(request_error) => return Ok(Err(request_error)),
        };
        if let (true, Algorithm::Digest(kind)) = (with_sums, algorithm) {
            listing = listing.with_digests(kind);
        }
        self.out.leave()?;
        let mut body = DirlistBody::new(with_stat);
        let mut unlistable = 0u64;
        loop {
            let more = self.front.service.list_more(&self.session.open, &mut listing, &mut |entry| {
                if body.len() >= FRAME_BYTES {
                    return ControlFlow::Break(());
                }
                let stat = entry.stat.as_ref().map(|stat| stat_reply(&self.front.service, stat));
                let sum = with_sums.then(|| shown(algorithm, entry.sums, entry.digest.as_deref()));
                if body.push(entry.name, stat.as_ref(), sum.as_ref().map(String::as_bytes)).is_err() {
                    unlistable += 1;
                }
                ControlFlow::Continue(())
            });
            match more {
                Ok(true) => self.send_listing(stream, ResponseStatus::OkSoFar, &body.take_page())?,
                Ok(false) => break,
                Err(error) => {
                    self.out.back();
                    return Ok(Err(error.into()));
                }
            }
        }
        if unlistable > 0 {
            self.front.complaints.bad_input(
                &*self.session,
                &format_args!("{unlistable} names in {path} hold a line end and cannot be listed over root://"),
            );
        }
        self.send_listing(stream, ResponseStatus::Ok, &body.finish())?;
        self.out.back();
        Ok(Ok(()))
    }

    fn send_listing(&self, stream: StreamId, status: ResponseStatus, body: &[u8]) -> Result<(), Stop> {
        if status == ResponseStatus::Ok && body.len() < FRAME_BYTES / 4 {
            self.out.answer(|out| answer::ok(out, stream, |out| out.extend_from_slice(body)));
            return Ok(());
        }
        self.send_frame(stream, status, body, None)
    }
}
