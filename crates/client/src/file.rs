//! A file that is open at a server.

use std::time::Duration;

use wire::request::{OpenOptions, Read, Stat, StatOptions, Sync, Target, Truncate, Write};
use wire::response::StatReply;
use wire::{FileHandle, Request};

use crate::pace::Pace;
use crate::session::Answer;
use crate::{ClientError, Endpoint, Session, Settings, Url};

/// The speed of the fastest connection that is considered: 100 Gbit/s.
const BYTES_PER_MICROSECOND: u128 = 12_500;

/// An open file with a connection of its own.
#[derive(Debug)]
pub struct RemoteFile {
    pub(crate) session: Session,
    pub(crate) handle: FileHandle,
    pub(crate) url: Url,
    /// The URL that was opened first. Its server may know other holders of the file.
    pub(crate) origin: Url,
    pub(crate) options: OpenOptions,
    pub(crate) settings: Settings,
    /// The number of lost connections since bytes were last moved.
    pub(crate) fruitless: u32,
    moved: usize,
    /// Somebody else writes it, so it may be longer when it is opened again.
    pub(crate) grows: bool,
    stat: StatReply,
    /// Its connection is lost, and the file is not open again yet.
    pub(crate) lost: bool,
    /// Servers whose replica is damaged where it is being read.
    pub(crate) damaged: Vec<Endpoint>,
    /// The first bytes of the file, as the answer to the open had them.
    pub(crate) beginning: Vec<u8>,
    /// The server that was asked first is the manager of a weir cluster, and has chosen the file's server.
    pub(crate) is_of_cluster: bool,
}

impl RemoteFile {
    pub(crate) fn new(
        mut session: Session,
        (origin, url): (Url, Url),
        handle: FileHandle,
        stat: StatReply,
        options: OpenOptions,
        settings: Settings,
    ) -> Self {
        session.has_moved();
        Self {
            session,
            handle,
            url,
            origin,
            options,
            settings,
            fruitless: 0,
            moved: 0,
            grows: false,
            stat,
            lost: false,
            damaged: Vec::new(),
            beginning: Vec::new(),
            is_of_cluster: false,
        }
    }

    /// Notes that `bytes` were moved over this connection. Then a lost connection is no reason to stop.
    pub(crate) fn has_moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
        if Pace::is_progress(self.moved) {
            (self.fruitless, self.moved) = (0, 0);
        }
    }

    /// Leaves this word of its URL out when the file is opened again.
    pub fn forget_word(&mut self, word: &str) {
        self.url.remove_word(word);
        self.origin.remove_word(word);
    }

    /// Sets how many requests of a [`crate::Writer`] are under way at a time. The default is the settings'
    /// `window`.
    #[must_use]
    pub fn with_window(mut self, requests: usize) -> Self {
        self.settings.window = requests.max(1);
        self
    }

    /// Returns how many requests of `len` bytes must be under way to keep the connection busy. That is few on a
    /// short round trip, and never more than the settings' `window`. More would only cost memory, and touching
    /// memory for the first time takes time.
    #[must_use]
    pub fn window_for(&self, len: usize) -> usize {
        busy(self.session.round_trip(), len).clamp(1, self.settings.window.max(1))
    }

    /// Returns the first bytes of the file at the time of the open, once; none if the server did not send them.
    pub fn take_beginning(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.beginning)
    }

    /// Copies bytes at `offset` from the beginning that came with the open. Returns their number. A reader of the whole
    /// file needs them once, so the last copy drops them.
    pub(crate) fn copy_beginning(&mut self, offset: u64, into: &mut [u8]) -> usize {
        let from = usize::try_from(offset).ok().and_then(|offset| self.beginning.get(offset..)).unwrap_or_default();
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        if len > 0 && len == from.len() {
            self.beginning = Vec::new();
        }
        len
    }

    /// Returns its attributes at the time of the open.
    #[must_use]
    pub fn stat(&self) -> &StatReply {
        &self.stat
    }

    /// Whether the server still has the file open for this client, as far as is known. While a file is open for
    /// writing, no other client writes it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.lost
    }

    /// Asks the server for the present length, in bytes.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn len_now(&mut self) -> Result<u64, ClientError> {
        let stat = Stat { options: StatOptions::NONE, target: Target::Handle(self.handle) };
        let body = self.call("stat", Request::Stat(stat))?;
        StatReply::decode(&body).map(|stat| stat.size).map_err(|source| self.session.malformed(source))
    }

    /// Returns the URL of the server that has the file open, after redirects.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Reads once. Returns fewer bytes than requested only at the end of the file.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, ClientError> {
        let mut got = 0;
        while got < into.len() {
            let left = into.len() - got;
            let len = u32::try_from(left.min(4 << 20)).unwrap_or(4 << 20);
            let read = Read::new(self.handle, offset + got as u64, len);
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

    /// Writes. The server has acknowledged all bytes when this returns.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        for (index, part) in data.chunks(4 << 20).enumerate() {
            let offset = offset + (index as u64) * (4 << 20);
            let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let write = Write { handle: self.handle, offset, path_id: 0, len };
            self.call_with("write to", Request::Write(write), &[part])?;
        }
        Ok(())
    }

    /// Makes the acknowledged bytes durable.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn sync(&mut self) -> Result<(), ClientError> {
        let request = Request::Sync(Sync { handle: self.handle });
        self.call("sync", request).map(drop)
    }

    /// Sets its length, in bytes.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn truncate(&mut self, len: u64) -> Result<(), ClientError> {
        let request = Request::Truncate(Truncate { len, target: Target::Handle(self.handle) });
        self.call("truncate", request).map(drop)
    }

    /// Closes the file. A written file is complete then. Returns the connection for further use.
    ///
    /// # Errors
    /// The server refuses (perhaps a write that had no answer yet), or the connection fails.
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
        self.session.has_asked(false);
        let answer =
            self.session.call_with(&what, &request, data).inspect_err(|error| self.lost |= error.is_connection());
        match answer? {
            Answer::Done(body) => {
                self.session.has_moved();
                Ok(body)
            }
            Answer::Elsewhere(_) => {
                self.lost = true;
                Err(ClientError::Moved { server: self.url.server.clone() })
            }
        }
    }
}

/// Returns how many requests of `len` bytes keep the fastest connection with this round trip busy: one being
/// answered, one on its way, and as many more as the round trip has room for.
fn busy(round_trip: Duration, len: usize) -> usize {
    let on_the_way = round_trip.as_micros().saturating_mul(BYTES_PER_MICROSECOND);
    let more = on_the_way / u128::try_from(len.max(1)).unwrap_or(1);
    usize::try_from(more).unwrap_or(usize::MAX).saturating_add(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distant_servers_get_more_requests_than_near_ones() {
        let of_4_mib = |micros| busy(Duration::from_micros(micros), 4 << 20);
        assert_eq!([of_4_mib(0), of_4_mib(300), of_4_mib(400), of_4_mib(1_000), of_4_mib(20_000)], [2, 2, 3, 4, 61]);
        assert_eq!(busy(Duration::from_micros(100), 64 << 10), 21);
        assert_eq!(busy(Duration::MAX, 0), usize::MAX);
    }
}
