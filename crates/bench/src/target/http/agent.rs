//! Sends requests over kept or new connections, and follows redirects.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use client::Settings;
use rustls::ClientConfig;

use super::answer::{Body, Head};
use super::connection::Connection;
use super::token::Token;
use super::{HttpError, HttpUrl, Reply, tls};

/// The most idle connections that are kept: one to a manager and some to disk servers.
const IDLE_MAX: usize = 8;

/// State that all sessions of a target share.
#[derive(Debug)]
struct Common {
    settings: Settings,
    token: Option<Token>,
    /// Loaded for the first connection that needs it, because there may be hundreds of certificates.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
}

/// Sends the requests of one session over its own connections.
#[derive(Clone)]
pub(in crate::target) struct Agent {
    home: HttpUrl,
    common: Arc<Common>,
    /// The last used connection is the last of the list.
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// A request without a streamed body.
#[derive(Clone, Debug, Default)]
pub(in crate::target) struct Request<'a> {
    pub(in crate::target) method: &'static str,
    pub(in crate::target) headers: &'a [(&'static str, &'a str)],
    pub(in crate::target) body: &'a str,
}

impl Agent {
    /// Makes an agent for requests at and below `home`.
    ///
    /// # Errors
    /// The token is not valid.
    pub(in crate::target) fn new(home: &HttpUrl, settings: &Settings) -> Result<Self, HttpError> {
        let common = Common { settings: settings.clone(), token: Token::find()?, tls: OnceLock::new() };
        Ok(Self { home: home.clone(), common: Arc::new(common), idle: Arc::default() })
    }

    /// Returns an agent that shares only settings, with its own connections.
    pub(in crate::target) fn with_own_connections(&self) -> Self {
        Self { idle: Arc::default(), ..self.clone() }
    }

    /// Sends a request and follows redirects. Returns an answer of 2xx.
    ///
    /// # Errors
    /// The connection fails, or the server returns another answer.
    pub(in crate::target) fn ask(&self, url: &HttpUrl, request: &Request<'_>) -> Result<Reply, HttpError> {
        let mut at = url.clone();
        for _ in 0..=self.redirects_max() {
            let broken = |source| broken(request.method, &at, source);
            let mut text = self.head(&at, request.method, request.headers);
            if !request.body.is_empty() {
                text.push_str(&format!("Content-Length: {}\r\n", request.body.len()));
            }
            text.push_str("\r\n");
            text.push_str(request.body);
            let (head, connection) =
                self.exchange(request.method, &at, &text, |connection| Head::read(connection, None, false))?;
            let body = Body::of(&head, request.method).map_err(broken)?;
            let mut reply = Reply::new(self.clone(), request.method, at.clone(), connection, head, body);
            match reply.redirect()? {
                None => return reply.checked(),
                Some(to) => {
                    reply.drain();
                    at = to;
                }
            }
        }
        Err(self.too_many(request.method, &at))
    }

    pub(super) fn redirects_max(&self) -> u32 {
        self.common.settings.redirects_max
    }

    pub(super) fn too_many(&self, method: &'static str, url: &HttpUrl) -> HttpError {
        HttpError::Redirects { method, url: url.to_string(), redirects: self.redirects_max() }
    }

    /// Returns the head of a request, without the final empty line.
    pub(super) fn head(&self, url: &HttpUrl, method: &str, headers: &[(&str, &str)]) -> String {
        let mut text = format!("{method} ");
        url.write_target(&mut text);
        text.push_str(&format!(
            " HTTP/1.1\r\nHost: {}\r\nUser-Agent: {}\r\n",
            url.server(),
            self.common.settings.application
        ));
        if let Some(token) = self.common.token.as_ref().filter(|_| self.home.trusts(url)) {
            text.push_str(&format!("Authorization: Bearer {}\r\n", token.value()));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text
    }

    /// Sends a head, and reads its answer with `read`. Some servers close a connection silently after an answer. So
    /// if a kept connection ends before any byte has come, the request is repeated on a new one. All requests here
    /// are idempotent (RFC 9110, 9.2.2).
    pub(super) fn exchange<T>(
        &self,
        method: &'static str,
        url: &HttpUrl,
        text: &str,
        mut read: impl FnMut(&mut Connection) -> io::Result<T>,
    ) -> Result<(T, Connection), HttpError> {
        let mut once = |connection: &mut Connection| connection.send(text.as_bytes()).and_then(|()| read(connection));
        if let Some(mut kept) = self.kept(url) {
            match once(&mut kept) {
                Ok(found) => return Ok((found, kept)),
                Err(error) if !(is_lost(&error) && kept.come().is_empty()) => return Err(broken(method, url, error)),
                Err(_) => {}
            }
        }
        let mut connection = self.connect(url)?;
        let found = once(&mut connection).map_err(|source| broken(method, url, source))?;
        Ok((found, connection))
    }

    fn kept(&self, url: &HttpUrl) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(place) = idle.iter().rposition(|kept| kept.leads_to(url.server(), url.is_tls())) {
            let kept = idle.remove(place);
            if !kept.is_spent() {
                return Some(kept);
            }
        }
        None
    }

    fn connect(&self, url: &HttpUrl) -> Result<Connection, HttpError> {
        let failed = |source| HttpError::Connect { server: url.server().clone(), source };
        let tls = if url.is_tls() { Some(self.common.tls.get_or_init(tls::settings)) } else { None };
        let tls = tls.map(Result::as_ref).transpose().map_err(|why| HttpError::Authorities { why: why.clone() })?;
        Connection::open(url.server(), tls, &self.common.settings).map_err(failed)
    }

    /// Keeps a connection whose answer was read to the end.
    pub(super) fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push(connection);
    }
}

/// Whether the other side has closed the connection.
fn is_lost(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::ConnectionReset | E::ConnectionAborted | E::BrokenPipe | E::UnexpectedEof)
}

pub(super) fn broken(method: &'static str, url: &HttpUrl, source: io::Error) -> HttpError {
    HttpError::Broken { method, url: url.to_string(), source }
}
