//! dirlist: page after page, each read from a view of its own, so that a directory of any size takes little memory
//! and holds nothing back.

use std::ops::ControlFlow;

use namespace::{NsError, Want};
use types::FileName;
use wire::request::{Dirlist, DirlistOptions};
use wire::response::DirlistBody;
use wire::{ErrorNumber, ResponseStatus, StreamId};

use crate::answer;
use crate::connection::{Connection, Stop};
use crate::refusal::Refusal;
use crate::requests::parse_path;
use crate::requests::query::Algorithm;

/// Bytes of one frame of a listing, about.
const FRAME_BYTES: usize = 64 << 10;
/// Entries that are read from one view.
const ENTRIES_PER_VIEW: usize = 4096;

impl Connection {
    /// kXR_dirlist.
    #[inline(never)] // see `dispatch`
    pub(crate) fn dirlist(&mut self, stream: StreamId, r: &Dirlist) -> Result<Result<(), Refusal>, Stop> {
        let with_sums = r.options.has(DirlistOptions::DCKSM);
        let with_stat = with_sums || r.options.has(DirlistOptions::DSTAT);
        let path = match parse_path(&r.target.path) {
            Ok(path) => path,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let actor = &self.node.config.actor;
        let looked_up = self.node.read_names(|read| {
            let directory = namespace::lookup(read, actor, &path)?;
            if !directory.is_dir() {
                return Err(NsError::NotDirectory(path.to_string()));
            }
            namespace::permit(actor, &directory.access, Want::Read, &|| path.to_string())?;
            Ok(directory.ino)
        });
        let directory = match looked_up {
            Ok(ino) => ino,
            Err(error) => return Ok(Err(Refusal::of_namespace(&"list", &error))),
        };
        let asked = if with_sums { r.target.get(b"cks.type") } else { None };
        let algorithm = match Algorithm::named(asked) {
            Ok(algorithm) => algorithm,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.out.leave()?;
        let mut body = DirlistBody::new(with_stat);
        let mut after: Option<FileName> = None;
        let mut unlistable = 0u64;
        loop {
            let page = self.node.read_names(|read| {
                let mut last: Option<Vec<u8>> = None;
                let mut full = false;
                let from = after.as_ref().map(FileName::as_bytes);
                let more = namespace::list_visit(read, directory, from, ENTRIES_PER_VIEW, &mut |name, inode| {
                    if body.len() >= FRAME_BYTES {
                        full = true;
                        return ControlFlow::Break(());
                    }
                    let stat = with_stat.then(|| self.node.show_to(&self.session, inode));
                    let sum = with_sums.then(|| algorithm.shown(inode.content().and_then(|content| content.sums)));
                    if body.push(name, stat.as_ref(), sum.as_ref().map(String::as_bytes)).is_err() {
                        unlistable += 1;
                    }
                    last = Some(name.to_vec());
                    ControlFlow::Continue(())
                })?;
                let last = last.map(|name| FileName::new(&name)).transpose()?;
                Ok((last, full || more, full))
            });
            let (last, more, full) = match page {
                Ok(page) => page,
                Err(error) => {
                    self.out.back();
                    return Ok(Err(Refusal::of_namespace(&"list", &error)));
                }
            };
            if last.is_some() {
                after = last;
            } else if !full && more {
                // Cannot be: more was promised and nothing came.
                self.out.back();
                let text = format!("Cannot list {path}: the listing does not go on");
                return Ok(Err(Refusal::new(ErrorNumber::SERVER_ERROR, text)));
            }
            if !more {
                break;
            }
            if full {
                self.send_listing(stream, ResponseStatus::OkSoFar, &body.take_page())?;
            }
        }
        if unlistable > 0 {
            self.node.complaints.bad_input(
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
