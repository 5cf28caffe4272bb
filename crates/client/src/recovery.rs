//! A file whose connection was lost is opened again at the server that held it; where that cannot be reached, or sends elsewhere, at the one that the
//! server sends to that was asked first.
//!
//! As the stock client does it, so that servers know what it means: the same path for update, without what would empty
//! the file or refuse it because it is there; the lost session is ended first. A server that has lost something
//! that it had acknowledged refuses, and so does this.
//!
//! A reader whose server finds its copy damaged goes on with another one, if whoever has sent it there knows one.

use std::time::Instant;

use types::capability::CONTENT_KEY;
use wire::Request;
use wire::request::{Access, Endsess, Open, OpenOptions};
use wire::response::{OpenReply, Redirect, StatReply};

use crate::fs::{PAUSES, follow};
use crate::session::Answer;
use crate::{ClientError, Endpoint, Kind, RemoteFile, Session, Url};

/// Connections that may be lost one after the other without anything moved over them. A server that takes a connection, opens the
/// file and then ends it would be asked again for ever.
const FRUITLESS_MAX: u32 = 5;

/// How often it is asked for another copy. Servers that share a host cannot be told apart by what is said of them (`tried=`): which of them is
/// meant is drawn anew each time.
const OTHERS_MAX: usize = 8;

/// One that falls silent counts for so many: that takes its time.
const SILENT_COUNTS: u32 = 3;

impl RemoteFile {
    /// Was it opened for writing?
    pub(crate) fn is_writer(&self) -> bool {
        [OpenOptions::UPDATE, OpenOptions::NEW, OpenOptions::DELETE, OpenOptions::WRITE_ONLY, OpenOptions::APPEND]
            .iter()
            .any(|bit| self.options.has(*bit))
    }

    /// Is it that copy which is damaged, so that another one may be whole? What was refused then is to be sent again after [`RemoteFile::recover`].
    pub(crate) fn may_be_whole_elsewhere(&self, error: &ClientError) -> bool {
        error.kind() == Kind::Checksum && !self.is_writer() && self.origin.server != self.url.server
    }

    /// Opens it again after `lost`. All requests that were under way have to be sent again.
    ///
    /// # Errors
    /// `lost` itself where that is no question of the connection or of one copy, the server cannot be reached in time, or no other copy is to be had; else
    /// why the server does not go on with the file.
    pub(crate) fn recover(&mut self, lost: ClientError) -> Result<(), ClientError> {
        if self.may_be_whole_elsewhere(&lost) {
            return self.reopen_elsewhere(lost);
        }
        self.lost |= lost.is_connection();
        self.fruitless += if matches!(lost, ClientError::Silent { .. }) { SILENT_COUNTS } else { 1 };
        if !lost.is_connection() || self.fruitless > FRUITLESS_MAX {
            return Err(lost);
        }
        tracing::info!(%lost, "opening {} again", self.url);
        let began = Instant::now();
        let mut last = lost;
        let mut pauses = PAUSES.iter().chain(std::iter::repeat(&PAUSES[PAUSES.len() - 1]));
        while began.elapsed() < self.settings.recovery_max {
            if let Some(pause) = pauses.next() {
                self.settings.stop.sleep(*pause)?;
            }
            match self.reopen_anywhere() {
                Ok(()) => return Ok(()),
                // The server may not have noticed yet that the old connection is gone.
                Err(error)
                    if error.is_connection() || error.kind() == Kind::Other && began.elapsed().as_secs() < 20 =>
                {
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// The name may stand for another file by now. Where a redirect has said which content it leads to, that tells; it may have grown meanwhile.
    fn must_be_the_same(&self, url: &Url, found: Option<&StatReply>) -> Result<(), ClientError> {
        let (before, Some(found)) = (self.stat(), found) else { return Ok(()) };
        let same = match (self.url.word(CONTENT_KEY), url.word(CONTENT_KEY)) {
            (Some(before), Some(found)) => before == found,
            _ => self.is_writer() || (before.size, before.mtime) == (found.size, found.mtime),
        };
        if same && before.id == found.id {
            return Ok(());
        }
        let what = format!("{} is another file since the connection was lost", self.url);
        Err(ClientError::Unexpected { server: self.url.server.clone(), what })
    }

    /// At the server that held it; if that is gone, where it was asked for first, which is told who could not be reached.
    fn reopen_anywhere(&mut self) -> Result<(), ClientError> {
        let lost = match self.reopen(self.url.clone()) {
            Err(lost) if lost.is_connection() && self.origin.server != self.url.server => lost,
            result => return result,
        };
        let mut origin = self.origin.clone();
        origin.add_words(&format!("tried={}", self.url.server.host));
        tracing::info!(%lost, "asking {} which other server has it", self.origin.server);
        self.reopen(origin)
    }

    /// At a server whose copy is not known to be damaged.
    fn reopen_elsewhere(&mut self, damaged: ClientError) -> Result<(), ClientError> {
        tracing::warn!(%damaged, "asking {} which other server has it", self.origin.server);
        self.damaged.push(self.url.server.clone());
        let mut origin = self.origin.clone();
        self.damaged.iter().for_each(|server| origin.add_tried(&server.host));
        for _ in 0..OTHERS_MAX {
            let (at, opened) = self.reopen_whole(origin.clone());
            match opened {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.is_connection() => origin.add_tried(&at.host),
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

    /// Where `origin` sends to, and whether it was opened there: not at a server whose copy is damaged.
    fn reopen_whole(&mut self, origin: Url) -> (Endpoint, Result<bool, ClientError>) {
        let mut at = origin;
        for _ in 0..=self.settings.redirects_max {
            if self.damaged.contains(&at.server) {
                return (at.server, Ok(false));
            }
            match self.reopen_at(&at).and_then(|redirect| redirect.map(|to| follow(&at, &to)).transpose()) {
                Ok(Some(to)) => at = to,
                Ok(None) => return (at.server, Ok(true)),
                Err(error) => return (at.server, Err(error)),
            }
        }
        (at.server, Ok(false))
    }

    /// At `url`, or where that sends to.
    fn reopen(&mut self, url: Url) -> Result<(), ClientError> {
        let mut at = url;
        for _ in 0..=self.settings.redirects_max {
            match self.reopen_at(&at)? {
                None => return Ok(()),
                Some(redirect) => at = follow(&at, &redirect)?,
            }
        }
        let what = format!("open {} again", self.url);
        Err(ClientError::Redirects { server: at.server, what, limit: self.settings.redirects_max })
    }

    /// Asks once; gives the redirect, if that is the answer.
    fn reopen_at(&mut self, url: &Url) -> Result<Option<Redirect>, ClientError> {
        let user = url.user.clone().unwrap_or_else(|| self.settings.user.clone());
        let mut session = Session::connect(&url.server, &user, &self.settings)?;
        // It may be gone already, or be of an earlier run of the server, or another server's.
        match session.call("end the lost session", &Request::Endsess(Endsess { session: self.session.id() })) {
            Err(error) if error.is_connection() => return Err(error),
            _ => {}
        }
        let mut options = self.options;
        if self.is_writer() {
            options = options.without(OpenOptions::NEW).without(OpenOptions::DELETE) | OpenOptions::UPDATE;
        }
        let open = Open::plain(Access::NONE, options, url.target());
        let what = format!("open {} again", self.url);
        let body = match session.call(&what, &Request::Open(open))? {
            Answer::Done(body) => body,
            Answer::Elsewhere(redirect) => return Ok(Some(redirect)),
        };
        let reply = OpenReply::decode(&body).map_err(|source| session.malformed(source))?;
        self.must_be_the_same(url, reply.stat.as_ref())?;
        self.handle = reply.handle;
        self.session = session;
        self.url = url.clone();
        self.lost = false;
        Ok(None)
    }
}
