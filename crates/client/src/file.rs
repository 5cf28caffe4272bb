//! A file that is open at a server.

use std::time::Duration;

use wire::request::{OpenOptions, Read, Stat, StatOptions, Sync, Target, Truncate, Write};
use wire::response::StatReply;
use wire::{FileHandle, Request};

use crate::pace::Pace;
use crate::session::Answer;
use crate::{ClientError, Endpoint, Session, Settings, Url};

/// The fastest connection that is thought of: 100 Gbit/s.
const BYTES_PER_MICROSECOND: u128 = 12_500;

/// An open file with a connection of its own.
#[derive(Debug)]
pub struct RemoteFile {
    pub(crate) session: Session,
    pub(crate) handle: FileHandle,
    pub(crate) url: Url,
    /// Where it was asked for first: that server may know who else has it.
    pub(crate) origin: Url,
    pub(crate) options: OpenOptions,
    pub(crate) settings: Settings,
    /// Lost connections since something was last moved.
    pub(crate) fruitless: u32,
    moved: usize,
    stat: StatReply,
    /// Its connection broke, and it has not been opened again.
    pub(crate) lost: bool,
    /// Servers whose copy is damaged where it is being read.
    pub(crate) damaged: Vec<Endpoint>,
}

impl RemoteFile {
    pub(crate) fn new(
        session: Session,
        (origin, url): (Url, Url),
        handle: FileHandle,
        stat: StatReply,
        options: OpenOptions,
        settings: Settings,
    ) -> Self {
        Self {
            session,
            handle,
            url,
            origin,
            options,
            settings,
            fruitless: 0,
            moved: 0,
            stat,
            lost: false,
            damaged: Vec::new(),
        }
    }

    /// `bytes` have been moved over this connection: losing it is no reason to give up.
    pub(crate) fn has_moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
        if Pace::is_progress(self.moved) {
            (self.fruitless, self.moved) = (0, 0);
        }
    }

    /// When it is opened again, this word is not said any more.
    pub(crate) fn forget_word(&mut self, word: &str) {
        self.url.remove_word(word);
        self.origin.remove_word(word);
    }

    /// Sets how many requests of a [`crate::Writer`] are under way at a time; the settings' `window` otherwise.
    #[must_use]
    pub fn with_window(mut self, requests: usize) -> Self {
        self.settings.window = requests.max(1);
        self
    }

    /// How many requests of `len` bytes are to be under way so that the way to the server and back is never what is waited for: few where it is
    /// short, and never more than the settings' `window`. What is more than that costs memory, which is not free when it is touched for the first
    /// time.
    #[must_use]
    pub fn window_for(&self, len: usize) -> usize {
        busy(self.session.round_trip(), len).clamp(1, self.settings.window.max(1))
    }

    /// Its attributes when it was opened.
    #[must_use]
    pub fn stat(&self) -> &StatReply {
        &self.stat
    }

    /// Has the server got it open for us, as far as is known? While a file is open for writing, nobody else writes it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.lost
    }

    /// How long it is now, as the server says.
    ///
    /// # Errors
    /// Of the server or of the connection.
    pub fn len_now(&mut self) -> Result<u64, ClientError> {
        let stat = Stat { options: StatOptions::NONE, target: Target::Handle(self.handle) };
        let body = self.call("stat", Request::Stat(stat))?;
        StatReply::decode(&body).map(|stat| stat.size).map_err(|source| self.session.malformed(source))
    }

    /// Where it is: the server that holds it, after redirects.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Reads once; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// Of the server or of the connection.
    pub fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, ClientError> {
        let mut got = 0;
        while got < into.len() {
            let left = into.len() - got;
            let len = u32::try_from(left.min(4 << 20)).unwrap_or(4 << 20);
            let read =
                Read { handle: self.handle, offset: offset + got as u64, len, path_id: None, read_ahead: Vec::new() };
            let body = self.call("read", Request::Read(read))?;
            if body.len() > left {
                let what = format!("{} bytes, where {left} were asked for", body.len());
                return Err(ClientError::Unexpected { server: self.url.server.clone(), what });
            }
            into[got..got + body.len()].copy_from_slice(&body);
            got += body.len();
            if body.is_empty() {
                break;
            }
        }
        Ok(got)
    }

    /// Writes; all of it is with the server when this returns.
    ///
    /// # Errors
    /// Of the server or of the connection.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        for (index, part) in data.chunks(4 << 20).enumerate() {
            let offset = offset + (index as u64) * (4 << 20);
            let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let write = Write { handle: self.handle, offset, path_id: 0, len };
            self.call_with("write to", Request::Write(write), &[part])?;
        }
        Ok(())
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// Of the server or of the connection.
    pub fn sync(&mut self) -> Result<(), ClientError> {
        let request = Request::Sync(Sync { handle: self.handle });
        self.call("sync", request).map(drop)
    }

    /// Sets its length.
    ///
    /// # Errors
    /// Of the server or of the connection.
    pub fn truncate(&mut self, len: u64) -> Result<(), ClientError> {
        let request = Request::Truncate(Truncate { len, target: Target::Handle(self.handle) });
        self.call("truncate", request).map(drop)
    }

    /// Closes it, which for a written file says that it is complete. Gives the connection back for further use.
    ///
    /// # Errors
    /// Of the server (a write that had not been answered yet may be what fails) or of the connection.
    pub fn close(mut self) -> Result<Session, ClientError> {
        let request = Request::Close(wire::request::Close { handle: self.handle });
        self.call("close", request)?;
        Ok(self.session)
    }

    pub(crate) fn call(&mut self, what: &str, request: Request) -> Result<Vec<u8>, ClientError> {
        self.call_with(what, request, &[])
    }

    fn call_with(&mut self, what: &str, request: Request, data: &[&[u8]]) -> Result<Vec<u8>, ClientError> {
        let what = format!("{what} {}", self.url);
        let answer =
            self.session.call_with(&what, &request, data).inspect_err(|error| self.lost |= error.is_connection());
        match answer? {
            Answer::Done(body) => Ok(body),
            Answer::Elsewhere(_) => {
                self.lost = true;
                Err(ClientError::Moved { server: self.url.server.clone() })
            }
        }
    }
}

/// Requests of `len` bytes that keep the fastest connection busy whose way there and back takes so long: one is being answered while the other is on its
/// way, and as many more as there is room for on the way.
fn busy(round_trip: Duration, len: usize) -> usize {
    let on_the_way = round_trip.as_micros().saturating_mul(BYTES_PER_MICROSECOND);
    let more = on_the_way / u128::try_from(len.max(1)).unwrap_or(1);
    usize::try_from(more).unwrap_or(usize::MAX).saturating_add(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_servers_have_more_under_way_than_near_ones() {
        let of_4_mib = |micros| busy(Duration::from_micros(micros), 4 << 20);
        assert_eq!([of_4_mib(0), of_4_mib(300), of_4_mib(400), of_4_mib(1_000), of_4_mib(20_000)], [2, 2, 3, 4, 61]);
        assert_eq!(busy(Duration::from_micros(100), 64 << 10), 21);
        assert_eq!(busy(Duration::MAX, 0), usize::MAX);
    }
}
