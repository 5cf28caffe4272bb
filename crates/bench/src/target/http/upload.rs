//! The upload of a file, in one `PUT`.

use std::io;
use std::time::Duration;

use super::agent::broken;
use super::answer::{Body, Head};
use super::connection::Connection;
use super::{Agent, HttpError, HttpUrl, Reply};

const METHOD: &str = "PUT";
/// How long the server may take to ask for the bytes. Some never ask (RFC 9110, 10.1.1).
const CONTINUE_MAX: Duration = Duration::from_secs(1);

/// A `PUT` whose bytes are still to be sent.
pub(in crate::target) struct Upload {
    agent: Agent,
    url: HttpUrl,
    connection: Connection,
    /// The bytes still to come. Not all servers accept chunks, so the length is always sent.
    left: u64,
}

/// Reads a final answer before the bytes are sent; `None`: they may be sent.
fn consent(connection: &mut Connection) -> io::Result<Option<Head>> {
    match Head::read(connection, Some(CONTINUE_MAX), true) {
        Ok(head) => Ok(Some(head).filter(|head| head.status != 100)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
    }
}

impl Upload {
    /// Starts it, with `more` headers, and follows redirects. The bytes go only to the server that accepts them.
    ///
    /// # Errors
    /// The connection fails, or the server refuses.
    pub(in crate::target) fn begin(
        agent: &Agent,
        url: &HttpUrl,
        len: u64,
        more: &[(&'static str, &str)],
    ) -> Result<Self, HttpError> {
        let length = len.to_string();
        let headers = [&[("Content-Length", length.as_str()), ("Expect", "100-continue")][..], more].concat();
        let mut at = url.clone();
        for _ in 0..=agent.redirects_max() {
            let mut text = agent.head(&at, METHOD, &headers);
            text.push_str("\r\n");
            let (head, connection) = agent.exchange(METHOD, &at, &text, consent)?;
            let Some(mut head) = head else {
                return Ok(Self { agent: agent.clone(), url: at, connection, left: len });
            };
            // The server may still expect the announced bytes, so the connection cannot be used for another
            // request.
            head.closes = true;
            let body = Body::of(&head, METHOD).map_err(|source| broken(METHOD, &at, source))?;
            let reply = Reply::new(agent.clone(), METHOD, at.clone(), connection, head, body);
            match reply.redirect()? {
                Some(to) => at = to,
                None => {
                    let reply = reply.checked()?;
                    return Err(reply.odd("an answer before the bytes were sent"));
                }
            }
        }
        Err(agent.too_many(METHOD, &at))
    }

    /// Returns the address that takes the bytes.
    pub(in crate::target) fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Sends the next bytes.
    ///
    /// # Errors
    /// The connection fails, or the server refuses.
    pub(in crate::target) fn send(&mut self, bytes: &[u8]) -> Result<(), HttpError> {
        let sent = match self.left.checked_sub(bytes.len() as u64) {
            Some(rest) => {
                self.left = rest;
                self.connection.send(bytes)
            }
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "more bytes than were announced")),
        };
        sent.map_err(|source| self.why(source))
    }

    /// A server that refuses in the middle gives its reason and closes. That reason is better than a broken pipe.
    fn why(&mut self, source: io::Error) -> HttpError {
        match Head::read(&mut self.connection, Some(CONTINUE_MAX), false) {
            Ok(head) if head.status >= 300 => HttpError::Status {
                method: METHOD,
                url: self.url.to_string(),
                status: head.status,
                reason: head.reason,
            },
            _ => broken(METHOD, &self.url, source),
        }
    }

    /// Ends it, and waits until the server has confirmed the file.
    ///
    /// # Errors
    /// The connection fails, the server refuses, or fewer bytes were sent than announced.
    pub(in crate::target) fn finish(mut self) -> Result<(), HttpError> {
        if self.left > 0 {
            let text = format!("it was ended {} bytes early", self.left);
            return Err(broken(METHOD, &self.url, io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let failed = |source| broken(METHOD, &self.url, source);
        let head = Head::read(&mut self.connection, None, false).map_err(failed)?;
        let body = Body::of(&head, METHOD).map_err(failed)?;
        let reply = Reply::new(self.agent, METHOD, self.url, self.connection, head, body);
        reply.checked()?.drain();
        Ok(())
    }
}
