//! An answer with its body, which is read in parts.

use std::io;

use super::agent::broken;
use super::answer::{Body, Head};
use super::connection::Connection;
use super::{Agent, HttpError, HttpUrl};

/// The most bytes of an unwanted body that are read to keep the connection.
const DRAIN_MAX: u64 = 64 << 10;

/// An answer. Its connection is kept if the body was read to the end, and closed otherwise.
pub(in crate::target) struct Reply {
    agent: Agent,
    method: &'static str,
    url: HttpUrl,
    connection: Option<Connection>,
    head: Head,
    body: Body,
}

impl Reply {
    pub(super) fn new(
        agent: Agent,
        method: &'static str,
        url: HttpUrl,
        connection: Connection,
        head: Head,
        body: Body,
    ) -> Self {
        let mut reply = Self { agent, method, url, connection: Some(connection), head, body };
        reply.keep_if_done();
        reply
    }

    pub(in crate::target) fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the offset of a partial file.
    pub(in crate::target) fn range_start(&self) -> Option<u64> {
        self.head.range_start
    }

    /// Returns the length of the whole file, for a partial file.
    pub(in crate::target) fn range_total(&self) -> Option<u64> {
        self.head.range_total
    }

    /// Returns `Content-Length`; for a `HEAD` it is the length of the file.
    pub(in crate::target) fn len(&self) -> Option<u64> {
        self.head.len
    }

    /// Whether its body was read to the end.
    pub(in crate::target) fn is_done(&self) -> bool {
        self.body.is_done()
    }

    /// Returns the address after redirects.
    pub(in crate::target) fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Returns the target, if the answer is a redirect that keeps the method.
    pub(super) fn redirect(&self) -> Result<Option<HttpUrl>, HttpError> {
        // 303 would turn an upload into a download, which is never wanted here.
        if !matches!(self.head.status, 301 | 302 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = &self.head.location else { return Ok(None) };
        self.url.follow(location).map(Some).map_err(|source| HttpError::Redirect {
            method: self.method,
            url: self.url.to_string(),
            source,
        })
    }

    /// Returns the answer, or an error if the server refused.
    pub(super) fn checked(mut self) -> Result<Self, HttpError> {
        if (200..300).contains(&self.head.status) {
            return Ok(self);
        }
        // A refusal does not require a new connection.
        self.drain();
        Err(HttpError::Status {
            method: self.method,
            url: self.url.to_string(),
            status: self.head.status,
            reason: std::mem::take(&mut self.head.reason),
        })
    }

    /// Reads until `into` is full or the body ends.
    pub(in crate::target) fn read_full(&mut self, into: &mut [u8]) -> Result<usize, HttpError> {
        let mut at = 0;
        while at < into.len() {
            match self.read_some(&mut into[at..]) {
                Ok(0) => break,
                Ok(read) => at += read,
                Err(source) => return Err(broken(self.method, &self.url, source)),
            }
        }
        Ok(at)
    }

    fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(connection) = &mut self.connection else { return Ok(0) };
        let read = self.body.read(connection, into)?;
        self.keep_if_done();
        Ok(read)
    }

    fn keep_if_done(&mut self) {
        if self.body.is_done()
            && let Some(connection) = self.connection.take()
            && !self.head.closes
            && !self.body.ends_connection()
        {
            self.agent.keep(connection);
        }
    }

    /// Reads the rest, if it is short.
    pub(in crate::target) fn drain(&mut self) {
        let (mut scrap, mut left) = ([0; 4096], DRAIN_MAX);
        while left > 0 {
            match self.read_some(&mut scrap) {
                Ok(0) | Err(_) => return,
                Ok(read) => left = left.saturating_sub(read as u64),
            }
        }
    }

    /// Makes an error for an answer that does not match the request.
    pub(in crate::target) fn odd(&self, why: impl Into<String>) -> HttpError {
        HttpError::Answer { method: self.method, url: self.url.to_string(), why: why.into() }
    }
}

impl io::Read for Reply {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_some(into)
    }
}
