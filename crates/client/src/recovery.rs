//! A file whose connection was lost is opened again at the server that held it.
//!
//! As the stock client does it, so that servers know what it means: the same path for update, without what would empty
//! the file or refuse it because it is there; the lost session is ended first. A server that has lost something
//! that it had acknowledged refuses, and so does this.

use std::time::Instant;

use wire::Request;
use wire::request::{Access, Endsess, Open, OpenOptions};
use wire::response::{OpenReply, StatReply};

use crate::fs::PAUSES;
use crate::session::Answer;
use crate::{ClientError, Kind, RemoteFile, Session};

/// Connections that may be lost one after the other without anything moved over them. A server that takes a connection, opens the
/// file and then ends it would be asked again for ever.
const FRUITLESS_MAX: u32 = 5;
/// One that falls silent counts for so many: that takes its time.
const SILENT_COUNTS: u32 = 3;

impl RemoteFile {
    /// Was it opened for writing?
    pub(crate) fn is_writer(&self) -> bool {
        [OpenOptions::UPDATE, OpenOptions::NEW, OpenOptions::DELETE, OpenOptions::WRITE_ONLY, OpenOptions::APPEND]
            .iter()
            .any(|bit| self.options.has(*bit))
    }

    /// Opens it again after `lost`. All requests that were under way have to be sent again.
    ///
    /// # Errors
    /// `lost` itself where that is no question of the connection, or the server cannot be reached in time; else why the
    /// server does not go on with the file.
    pub(crate) fn recover(&mut self, lost: ClientError) -> Result<(), ClientError> {
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
            match self.reopen() {
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

    /// The name may stand for another file by now.
    fn must_be_the_same(&self, found: Option<&StatReply>) -> Result<(), ClientError> {
        let (before, Some(found)) = (self.stat(), found) else { return Ok(()) };
        let same =
            before.id == found.id && (self.is_writer() || (before.size, before.mtime) == (found.size, found.mtime));
        if same {
            return Ok(());
        }
        let what = format!("{} is another file since the connection was lost", self.url);
        Err(ClientError::Unexpected { server: self.url.server.clone(), what })
    }

    fn reopen(&mut self) -> Result<(), ClientError> {
        let user = self.url.user.clone().unwrap_or_else(|| self.settings.user.clone());
        let mut session = Session::connect(&self.url.server, &user, &self.settings)?;
        // It may be gone already, or be of an earlier run of the server.
        match session.call("end the lost session", &Request::Endsess(Endsess { session: self.session.id() })) {
            Err(error) if error.is_connection() => return Err(error),
            _ => {}
        }
        let mut options = self.options;
        if self.is_writer() {
            options = options.without(OpenOptions::NEW).without(OpenOptions::DELETE) | OpenOptions::UPDATE;
        }
        let open = Open::plain(Access::NONE, options, self.url.target());
        let what = format!("open {} again", self.url);
        let Answer::Done(body) = session.call(&what, &Request::Open(open))? else {
            let what = format!("{what}: a redirect to elsewhere");
            return Err(ClientError::Unexpected { server: self.url.server.clone(), what });
        };
        let reply = OpenReply::decode(&body).map_err(|source| session.malformed(source))?;
        self.must_be_the_same(reply.stat.as_ref())?;
        self.handle = reply.handle;
        self.session = session;
        self.lost = false;
        Ok(())
    }
}
