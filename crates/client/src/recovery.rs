//! Opens a file again after its connection was lost. The client first asks the server that had the file open. If
//! that server cannot be reached, or redirects, it asks the server that was asked first.
//!
//! It does what the stock client does, so that servers understand it. It opens the same path for update, without
//! options that would empty the file or refuse it because it exists. Before that it ends the lost session. A server
//! that has lost acknowledged bytes refuses the open, and the client reports that.
//!
//! If a reader's server finds its replica damaged, the reader continues with another replica, if the redirecting
//! server knows one.

use std::time::Instant;

use types::capability::OBJECT_KEY;
use wire::request::{Access, Endsess, Open, OpenOptions};
use wire::response::{OpenReply, Redirect, StatReply};
use wire::{ErrorNumber, Request};

use crate::deadline::Deadline;
use crate::fs::{PAUSES, follow};
use crate::session::Answer;
use crate::waiting::Waiting;
use crate::{ClientError, Endpoint, Kind, RemoteFile, Session, Url};

/// How many connections may be lost one after the other without any bytes moved. Without this bound, a server that
/// accepts a connection, opens the file and then ends the connection would be asked for ever.
const FRUITLESS_MAX: u32 = 5;

/// How often the client asks for another replica. Servers on the same host cannot be told apart by `tried=`, so
/// each attempt may lead to either of them.
const OTHERS_MAX: usize = 8;

/// A server that falls silent counts as this many attempts, because each costs time.
const SILENT_COUNTS: u32 = 3;

impl RemoteFile {
    /// Whether it was opened for writing.
    pub(crate) fn is_writer(&self) -> bool {
        [OpenOptions::UPDATE, OpenOptions::NEW, OpenOptions::DELETE, OpenOptions::WRITE_ONLY, OpenOptions::APPEND]
            .iter()
            .any(|bit| self.options.has(*bit))
    }

    /// Whether the error is a damaged replica, so that another one may be undamaged. Then the refused request must
    /// be sent again after [`RemoteFile::recover`].
    pub(crate) fn may_be_whole_elsewhere(&self, error: &ClientError) -> bool {
        error.kind() == Kind::Checksum && !self.is_writer() && self.origin.server != self.url.server
    }

    /// Opens the file again after `lost`. All requests that were under way must be sent again.
    ///
    /// # Errors
    /// `lost` itself, if it does not concern the connection or one replica, if no server can be reached in time, or
    /// if there is no other replica. Otherwise the reason why the server refuses to continue.
    pub(crate) fn recover(&mut self, lost: ClientError) -> Result<(), ClientError> {
        if self.may_be_whole_elsewhere(&lost) {
            return self.reopen_elsewhere(lost);
        }
        self.lost |= lost.is_connection();
        self.fruitless += if matches!(lost, ClientError::Silent { .. }) { SILENT_COUNTS } else { 1 };
        if !lost.may_help_to_retry() || self.fruitless > FRUITLESS_MAX {
            return Err(lost);
        }
        tracing::info!(%lost, "opening {} again", self.url);
        // Everything until the file is open again shares the time since the first loss.
        let mut deadline = self.session.deadline();
        let what = format!("open {} again", self.url);
        let mut last = lost;
        let mut pauses = PAUSES.iter().chain(std::iter::repeat(&PAUSES[PAUSES.len() - 1]));
        let began = Instant::now();
        while deadline.lost(Instant::now()) {
            if let Some(pause) = pauses.next() {
                Waiting::new(&self.url.server, &what, deadline, &self.settings).pause(*pause, &last)?;
            }
            match self.reopen_anywhere(deadline) {
                Ok(()) => return Ok(()),
                // Its writer went away meanwhile. That does not change.
                Err(error) if self.grows && error.is_refused_as(ErrorNumber::IN_PROGRESS) => return Err(error),
                // That does not change either. A server that combines a striped file must say so before its own client gives it
                // up, and opens the new file in the middle of the old one.
                Err(error) if !self.is_writer() && error.is_replaced() => {
                    return Err(ClientError::Replaced { file: self.url.to_string(), since: "it was opened" });
                }
                // The server may not have noticed yet that the old connection is gone.
                Err(error)
                    if error.may_help_to_retry() || error.kind() == Kind::Other && began.elapsed().as_secs() < 20 =>
                {
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.gave_up(self.settings.recovery_max))
    }

    /// The name may lead to another file by now. If a redirect named the object, that decides. The object may have
    /// grown meanwhile.
    fn must_be_the_same(&self, url: &Url, found: Option<&StatReply>) -> Result<(), ClientError> {
        let (before, Some(found)) = (self.stat(), found) else { return Ok(()) };
        let same = match (self.url.word(OBJECT_KEY), url.word(OBJECT_KEY)) {
            (Some(before), Some(found)) => before == found,
            _ if self.grows => found.size >= before.size,
            _ => self.is_writer() || (before.size, before.mtime) == (found.size, found.mtime),
        };
        if same && before.id == found.id {
            return Ok(());
        }
        Err(ClientError::Replaced { file: self.url.to_string(), since: "the connection was lost" })
    }

    /// Opens it at the server that had it open. If that server is gone, it asks the first server, and tells it
    /// which one could not be reached.
    fn reopen_anywhere(&mut self, deadline: Deadline) -> Result<(), ClientError> {
        let lost = match self.reopen(self.url.clone(), deadline) {
            Err(lost) if lost.may_help_to_retry() && self.origin.server != self.url.server => lost,
            result => return result,
        };
        let mut origin = self.origin.clone();
        origin.add_words(&format!("tried={}", self.url.server.host));
        tracing::info!(%lost, "asking {} which other server has it", self.origin.server);
        self.reopen(origin, deadline)
    }

    /// Opens it at a server whose replica is not known to be damaged.
    fn reopen_elsewhere(&mut self, damaged: ClientError) -> Result<(), ClientError> {
        tracing::warn!(%damaged, "asking {} which other server has it", self.origin.server);
        self.damaged.push(self.url.server.clone());
        let mut origin = self.origin.clone();
        self.damaged.iter().for_each(|server| origin.add_tried(&server.host));
        let mut deadline = self.session.deadline();
        for _ in 0..OTHERS_MAX {
            if !deadline.lost(Instant::now()) {
                break;
            }
            let (at, opened) = self.reopen_whole(origin.clone(), deadline);
            match opened {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.may_help_to_retry() => origin.add_tried(&at.host),
                Err(error) => {
                    tracing::info!(%error, "no other replica is available");
                    break;
                }
            }
            self.settings.stop.check()?;
        }
        self.damaged.clear();
        Err(damaged)
    }

    /// Returns where `origin` redirects to, and whether the file was opened there. Skips servers with a damaged
    /// replica.
    fn reopen_whole(&mut self, origin: Url, deadline: Deadline) -> (Endpoint, Result<bool, ClientError>) {
        let mut at = origin;
        for _ in 0..=self.settings.redirects_max {
            if self.damaged.contains(&at.server) {
                return (at.server, Ok(false));
            }
            match self.reopen_at(&at, deadline).and_then(|redirect| redirect.map(|to| follow(&at, &to)).transpose()) {
                Ok(Some(to)) => at = to,
                Ok(None) => return (at.server, Ok(true)),
                Err(error) => return (at.server, Err(error)),
            }
        }
        (at.server, Ok(false))
    }

    /// Opens it at `url`, or where that redirects to.
    fn reopen(&mut self, url: Url, deadline: Deadline) -> Result<(), ClientError> {
        let mut at = url;
        for _ in 0..=self.settings.redirects_max {
            match self.reopen_at(&at, deadline)? {
                None => return Ok(()),
                Some(redirect) => at = follow(&at, &redirect)?,
            }
        }
        let what = format!("open {} again", self.url);
        Err(ClientError::Redirects { server: at.server, what, limit: self.settings.redirects_max })
    }

    /// Asks once. Returns a redirect, if that is the answer.
    fn reopen_at(&mut self, url: &Url, deadline: Deadline) -> Result<Option<Redirect>, ClientError> {
        let what = format!("open {} again", self.url);
        let mut session = Session::connect_within(url, &self.settings, (&what, deadline))?;
        // The session may have ended already, or belong to an earlier run of the server or to another server.
        match session.call("end the lost session", &Request::Endsess(Endsess { session: self.session.id() })) {
            Err(error) if error.is_connection() => return Err(error),
            _ => {}
        }
        let mut options = self.options;
        if self.is_writer() {
            options = options.without(OpenOptions::NEW).without(OpenOptions::DELETE) | OpenOptions::UPDATE;
        }
        let open = Open::plain(Access::NONE, options, url.target());
        let body = match session.call(&what, &Request::Open(open))? {
            Answer::Done(body) => body,
            Answer::Elsewhere(redirect) => return Ok(Some(redirect)),
        };
        let reply = OpenReply::decode(&body).map_err(|source| session.malformed(source))?;
        self.must_be_the_same(url, reply.stat.as_ref())?;
        self.handle = reply.handle;
        session.deadline_mut().restored(Instant::now());
        self.session = session;
        self.url = url.clone();
        self.lost = false;
        Ok(None)
    }
}
