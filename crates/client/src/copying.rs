//! The client's side of a third-party copy: it waits at the target for the end, asks how far the copy is, and
//! cancels it.
//!
//! It does what the stock client does (XrdClThirdPartyCopyJob). The target answers the second sync at the end of
//! the copy. A stat of the open target returns its length so far. The query `ofs.tpc cancel` stops the copy; the
//! stock server wants that text with its NUL.

use std::time::{Duration, Instant};

use wire::request::{Close, Query, QueryKind, Stat, StatOptions, Sync, Target};
use wire::response::{ConfigReply, StatReply};
use wire::{FileHandle, Request, Response};

use crate::pace::WaitLimit;
use crate::settings::Stop;
use crate::watch::WaitReason;
use crate::{ClientError, Method, RemoteFile};

/// How often the client asks how far the copy is.
const LOOK: Duration = Duration::from_millis(500);
/// How long a copy may take if the target does not show its length so far. The stock client waits equally long
/// (`XRD_CPTPCTIMEOUT`).
const UNSEEN_MAX: Duration = Duration::from_secs(1800);
/// How long the target may take to answer a cancel and a close. After that the client cuts the connection, which
/// also cancels the copy.
const CANCEL_MAX: Duration = Duration::from_secs(5);
const CANCEL: &[u8] = b"ofs.tpc cancel\0";
/// The configuration value with the methods by which a server takes delegated credentials.
const DELEGATION: &str = "tpcdlg";

impl RemoteFile {
    /// Waits for the end of the third-party copy into this file, which a first [`RemoteFile::sync`] has started.
    /// `len` is the final length in bytes. `shown` gets the target's length so far, in bytes.
    ///
    /// # Errors
    /// The reason why the server has not copied the file. [`ClientError::Stopped`], [`ClientError::Silent`], or
    /// [`ClientError::Stalled`] if the length has not grown for the time that a server may be silent. Then the
    /// caller must cancel the copy.
    pub fn finish_copy(&mut self, len: u64, shown: &mut dyn FnMut(u64)) -> Result<(), ClientError> {
        self.follow_copy(len, shown).inspect_err(|error| self.lost |= matches!(error, ClientError::Lost { .. }))
    }

    /// Whether the server copies into this file with a proxy that the client has delegated, so that the client need not open the source.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn copies_by_proxy(&mut self) -> Result<bool, ClientError> {
        let args = DELEGATION.as_bytes().to_vec();
        let request = Request::Query(Query { kind: QueryKind::Config, handle: FileHandle::default(), args });
        let body = self.call("query config", request)?;
        let server = self.url.server.clone();
        let reply = ConfigReply::decode(&body).map_err(|source| ClientError::Protocol { server, source })?;
        // A server that cannot do it repeats the word.
        let methods = reply.values.first().map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default();
        Ok(methods.split_ascii_whitespace().any(|method| method == Method::Gsi.name()))
    }

    /// Tells the server to stop the copy. Waits a few seconds for its answer. Unless the connection is lost, the
    /// file is still open, and the caller must close it with [`RemoteFile::end_copy`].
    pub fn cancel_copy(&mut self) {
        self.say(&Request::Query(Query { kind: QueryKind::OpaqueHandle, handle: self.handle, args: CANCEL.to_vec() }));
    }

    /// Closes the file of a cancelled copy. Waits a few seconds for the answer. Afterwards the file can only be
    /// dropped, which cuts the connection.
    pub fn end_copy(&mut self) {
        self.say(&Request::Close(Close { handle: self.handle }));
    }

    /// Sends a request even after a stop, and ignores its result. Without an answer the connection counts as lost.
    fn say(&mut self, request: &Request) {
        if self.lost {
            return;
        }
        self.session.set_stop(Stop::default());
        self.session.has_moved();
        self.session.be_patient(CANCEL_MAX);
        let end = Instant::now() + CANCEL_MAX;
        if let Ok(said) = self.session.queue(request) {
            while self.session.ready(end).is_ok_and(|ready| ready) {
                match self.session.response() {
                    Ok((stream, Response::WaitResp { .. })) if stream == said => {}
                    Ok((stream, _)) if stream != said => {}
                    Ok(_) => return,
                    Err(_) => break,
                }
            }
        }
        self.lost = true;
    }

    fn follow_copy(&mut self, len: u64, shown: &mut dyn FnMut(u64)) -> Result<(), ClientError> {
        let what = format!("copy to {}", self.url);
        let server = self.url.server.clone();
        let end = Request::Sync(Sync { handle: self.handle });
        let look = Request::Stat(Stat { options: StatOptions::NONE, target: Target::Handle(self.handle) });
        self.session.take_up(&what, self.session.deadline());
        self.session.has_moved();
        let mut sync = self.session.queue(&end)?;
        let (mut waits, mut looked) = (WaitLimit::default(), None);
        let mut progress = Progress::new(Instant::now());
        let (mut next_look, mut is_copied) = (Instant::now() + LOOK, false);
        // The last look may be answered after the end of the copy.
        while !is_copied || looked.is_some() {
            let now = Instant::now();
            if waits.is_due(now) {
                sync = self.session.queue(&end)?;
                waits.sent();
            }
            match looked {
                None if now >= next_look && !is_copied => looked = Some((self.session.queue(&look)?, now)),
                Some((_, since)) if now.saturating_duration_since(since) >= self.settings.silence_max => {
                    if is_copied {
                        // The server owes nothing else. What comes next shows whether it is still there.
                        return Ok(());
                    }
                    return Err(ClientError::Silent { server, after: self.settings.silence_max });
                }
                _ => {}
            }
            let (waited, most) = progress.waits(len, now, self.settings.silence_max);
            if waited >= most && !is_copied {
                return Err(ClientError::Stalled { server, what, after: most });
            }
            self.session.tell(WaitReason::Growth, (waited, most - waited));
            if !self.session.ready(now + LOOK)? {
                continue;
            }
            let (stream, response) = self.session.response()?;
            self.session.has_moved();
            if looked.is_some_and(|(look, _)| look == stream) {
                if let Response::WaitResp { .. } = response {
                    continue;
                }
                (looked, next_look) = (None, Instant::now() + LOOK);
                if let Response::Ok(body) = response
                    && let Ok(stat) = StatReply::decode(&body)
                    && progress.looked(stat.size, Instant::now())
                {
                    shown(stat.size);
                }
                continue;
            }
            match response {
                Response::Ok(_) if stream == sync => is_copied = true,
                Response::WaitResp { .. } if stream == sync => {}
                Response::Wait { seconds, text } if stream == sync => {
                    if !waits.put_off(seconds, Instant::now(), self.settings.wait_max) {
                        return Err(self.session.waited(&what, self.settings.wait_max, &text));
                    }
                }
                other => return Err(self.session.refused(&what, other)),
            }
        }
        Ok(())
    }
}

/// The progress of a copy, as far as the target shows it.
#[derive(Clone, Copy, Debug)]
struct Progress {
    seen: u64,
    since: Instant,
}

impl Progress {
    fn new(now: Instant) -> Self {
        Self { seen: 0, since: now }
    }

    /// Takes the target's present length of `size` bytes. Returns whether it has grown.
    fn looked(&mut self, size: u64, now: Instant) -> bool {
        let grown = size > self.seen;
        if grown {
            *self = Self { seen: size, since: now };
        }
        grown
    }

    /// Returns how long the copy has not grown, and how long it may. More time is allowed in two cases: a target of
    /// full length may still be comparing its checksum, and a target may never show its length.
    fn waits(&self, len: u64, now: Instant, patience: Duration) -> (Duration, Duration) {
        let most = if self.seen > 0 && self.seen < len { patience } else { patience.max(UNSEEN_MAX) };
        (now.saturating_duration_since(self.since), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_does_not_grow_is_abandoned() {
        let (start, patience) = (Instant::now(), Duration::from_secs(10));
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut progress = Progress::new(start);
        let is_stalled = |progress: &Progress, now| {
            let (waited, most) = progress.waits(100, now, patience);
            (waited >= most).then_some(most)
        };
        assert_eq!(is_stalled(&progress, after(11)), None, "not every server shows how far it is");
        assert_eq!(is_stalled(&progress, after(1800)), Some(UNSEEN_MAX));
        assert!(progress.looked(50, after(5)) && !progress.looked(50, after(9)) && !progress.looked(40, after(9)));
        assert_eq!(is_stalled(&progress, after(14)), None);
        assert_eq!(is_stalled(&progress, after(15)), Some(patience));
        assert!(progress.looked(100, after(20)));
        assert_eq!(is_stalled(&progress, after(40)), None, "its checksum may take its time");
    }
}
