//! A file on its way to a server, in one `PUT`.

use std::io;
use std::time::Duration;

use super::agent::broken;
use super::answer::{Body, Head};
use super::connection::Connection;
use super::{Agent, HttpError, HttpUrl, Reply};

const METHOD: &str = "PUT";
/// How long a server may take to say that it wants the bytes; some never say it (RFC 9110, 10.1.1).
const CONTINUE_MAX: Duration = Duration::from_secs(1);

/// A `PUT` of which the bytes are still to be sent.
pub(in crate::target) struct Upload {
    agent: Agent,
    url: HttpUrl,
    connection: Connection,
    /// Bytes that are still to come. Servers differ in what they take in chunks, so all that is sent says how long it is.
    left: u64,
}

/// The answer before the bytes are sent; `None`: they may be.
fn consent(connection: &mut Connection) -> io::Result<Option<Head>> {
    match Head::read(connection, Some(CONTINUE_MAX), true) {
        Ok(head) => Ok(Some(head).filter(|head| head.status != 100)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
    }
}

impl Upload {
    /// Begins it, with `more` headers, where redirects lead: the bytes go to the server that takes them, and to no other.
    ///
    /// # Errors
    /// Of the connection; a refusal.
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
            // The server may still expect the bytes that were announced: nothing else can be asked on this connection.
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

    /// Where the bytes go.
    pub(in crate::target) fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Sends the next bytes.
    ///
    /// # Errors
    /// Of the connection, or what the server has to say against it.
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

    /// A server that refuses in the middle says why and closes: its words tell more than a broken pipe.
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

    /// Ends it, and waits until the server says that it has the file.
    ///
    /// # Errors
    /// Of the connection; a refusal; fewer bytes than were announced.
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
