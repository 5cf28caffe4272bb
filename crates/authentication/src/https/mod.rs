//! A client that gets one document over HTTPS, or asks a service once: no compression, no kept connections, no proxies. The variables
//! `https_proxy` and `no_proxy` are ignored.

mod answer;
mod connection;
mod url;

use std::time::{Duration, Instant};

pub use answer::AnswerError;
pub use connection::ConnectionError;
use tls::Trust;
pub use url::UrlError;

use answer::Answer;
use connection::{Ask, AskFailure, Bounds};
use identity::shown;
pub(crate) use url::HttpsUrl;

/// Most redirects on the way to a document.
pub const REDIRECTS_MAX: usize = 3;

/// Why a document could not be fetched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HttpsError {
    /// The URL cannot be asked.
    #[error("the URL cannot be used: {0}")]
    Url(#[from] UrlError),
    /// There was no connection, or it broke.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The answer cannot be used.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The server answered, but not with the document.
    #[error("the server answered {status} {reason}")]
    Status {
        /// The status.
        status: u16,
        /// Its words.
        reason: String,
    },
    /// More than [`REDIRECTS_MAX`] redirects.
    #[error("it was redirected more than {REDIRECTS_MAX} times, the last time to {0}")]
    TooManyRedirects(String),
    /// It failed where the server redirects to.
    #[error("redirected to {to}: {why}")]
    Redirected {
        /// The URL that was asked then.
        to: String,
        /// What went wrong there.
        why: Box<HttpsError>,
    },
    /// The server redirects to something that cannot be asked.
    #[error("the server redirects to `{to}`, which cannot be used: {why}")]
    Redirect {
        /// The location.
        to: String,
        /// What is wrong.
        why: UrlError,
    },
}

/// Why [`post`] fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// Before anything was sent.
    #[error(transparent)]
    NotSent(HttpsError),
    /// Later.
    #[error(transparent)]
    Sent(HttpsError),
}

impl HttpsError {
    /// Whether the server itself has answered. If not, it makes no sense to ask it for something else.
    pub(crate) fn is_of_answer(&self) -> bool {
        !matches!(self, Self::Url(_) | Self::Connection(_))
    }
}

/// Gets the document at `url`, with at most `body_max` bytes. All of it ends at `deadline`, and each attempt to connect after
/// `connect_time`.
pub(crate) fn get(
    trust: &Trust,
    url: &str,
    body_max: usize,
    connect_time: Duration,
    deadline: Instant,
) -> Result<Vec<u8>, HttpsError> {
    let mut url = HttpsUrl::parse(url)?;
    for redirects in 0..=REDIRECTS_MAX {
        // The caller knows only the URL that it has asked for.
        let failed = |why: HttpsError| match redirects {
            0 => why,
            _ => HttpsError::Redirected { to: shown(&url.to_string()), why: Box::new(why) },
        };
        let bounds = Bounds { body_max, connect: connect_time, deadline };
        let Answer { status, reason, location, body } =
            connection::ask(Some(trust), &url, Ask::Get, bounds).map_err(|failure| failed(failure.why))?;
        match (status, location) {
            (200, _) => return Ok(body),
            (301 | 302 | 303 | 307 | 308, Some(location)) => {
                let next = url.redirected(&location);
                url = next.map_err(|why| failed(HttpsError::Redirect { to: shown(&location), why }))?;
            }
            (status, _) => return Err(failed(HttpsError::Status { status, reason })),
        }
    }
    Err(HttpsError::TooManyRedirects(shown(&url.to_string())))
}

/// Sends `body` to the service at `url`, and returns the body of its answer, with at most `answer_max` bytes. `trust` is not
/// needed for a service on this machine. It is not redirected: what is sent is for this service alone. If it fails before
/// anything of `body` is sent, whatever is in it does not matter.
pub(crate) fn post(
    trust: Option<&Trust>,
    url: &HttpsUrl,
    body: &[u8],
    answer_max: usize,
    connect_time: Duration,
    deadline: Instant,
) -> Result<Vec<u8>, PostError> {
    let bounds = Bounds { body_max: answer_max, connect: connect_time, deadline };
    let trust = trust.filter(|_| !url.is_plain);
    if trust.is_none() && !url.is_plain {
        return Err(PostError::NotSent(ConnectionError::Tls("no authorities are known".into()).into()));
    }
    match connection::ask(trust, url, Ask::Post(body), bounds) {
        Ok(Answer { status: 200, body, .. }) => Ok(body),
        Ok(Answer { status, reason, .. }) => Err(PostError::Sent(HttpsError::Status { status, reason })),
        Err(AskFailure { why, was_sent: true }) => Err(PostError::Sent(why)),
        Err(AskFailure { why, was_sent: false }) => Err(PostError::NotSent(why)),
    }
}
