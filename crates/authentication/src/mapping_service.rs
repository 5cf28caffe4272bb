//! Asks an external service who a credential is, if no rule says it. What is asked and answered is in `identity`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use identity::{MAPPING_REPLY_BYTES_MAX, Mapped, MappingMemory, MappingQuestion, MappingReply, MappingReplyError};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tls::{TrustError, TrustSource};

use crate::Clock;
use crate::fetch::Authorities;
use crate::https::{ConnectionError, HttpsError, HttpsUrl, UrlError, post};

/// How long a client waits for the service, with all that belongs to it.
pub const MAPPING_TIME_MAX: Duration = Duration::from_secs(5);
/// How long one attempt to connect may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// Most questions at once.
pub const MAPPING_QUESTIONS_MAX: usize = 16;
/// Most clients that wait until they can be asked about.
const WAITING_MAX: usize = 128;
/// After an attempt to connect that failed, the service is not asked for this long.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// The log says at most this often that the service does not answer.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// The external mapping service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappingServiceSettings {
    /// Where it is asked: `https`, or `http` on this machine.
    pub url: String,
    /// How long an answer counts.
    pub keep: Duration,
}

/// Why a service cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MappingServiceSettingsError {
    /// The URL is wrong.
    #[error("cannot use `authentication.mapping_service`: {0}")]
    Url(#[from] UrlError),
    /// The authorities cannot be read.
    #[error("cannot ask `authentication.mapping_service`: {0}")]
    Authorities(#[from] TrustError),
}

/// Why the service has said nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MappingServiceError {
    /// It cannot be reached, or its answer is none. The reason is for the log, not for clients.
    #[error("the mapping service gives no answer at this time: try again later")]
    Away(String),
    /// Too many clients are being asked about.
    #[error("the mapping service is asked about too many clients at this time: try again in some seconds")]
    Busy,
}

/// What happened, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MappingServiceStatus {
    /// Questions that it has answered with a principal.
    pub mapped: u64,
    /// Questions that it has answered with a refusal.
    pub refused: u64,
    /// Questions that it has not answered, or that could not be asked.
    pub failed: u64,
    /// Logins that needed no question, because an answer was kept.
    pub kept: u64,
}

/// Counts over all reloads.
#[derive(Debug, Default)]
pub(crate) struct MappingCounters {
    mapped: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    kept: AtomicU64,
}

impl MappingCounters {
    pub(crate) fn status(&self) -> MappingServiceStatus {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Self { mapped, refused, failed, kept } = self;
        MappingServiceStatus { mapped: of(mapped), refused: of(refused), failed: of(failed), kept: of(kept) }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

struct State {
    memory: MappingMemory,
    asking: usize,
    waiting: usize,
    /// Until when it is not asked.
    down_until: Duration,
    /// The reason.
    down_why: String,
    /// When the log said that it does not answer, until it says that it does.
    complained: Option<Duration>,
}

/// The service, and what it has said.
pub(crate) struct MappingService {
    url: HttpsUrl,
    /// `None`: it is on this machine, and needs none.
    authorities: Option<Authorities>,
    clock: Arc<dyn Clock>,
    counters: Arc<MappingCounters>,
    state: Mutex<State>,
    /// A question less is being asked.
    freed: Condvar,
}

/// Why one question was not answered.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Authorities(#[from] TrustError),
    #[error(transparent)]
    Https(#[from] HttpsError),
    #[error(transparent)]
    Reply(#[from] MappingReplyError),
}

impl Failure {
    /// Whether another question would fail as well. What somebody shows must not keep others out, so only what happens before
    /// it is sent counts.
    fn is_of_all(&self) -> bool {
        use ConnectionError::{Connect, Lookup, Tls};
        matches!(self, Self::Authorities(_) | Self::Https(HttpsError::Connection(Lookup { .. } | Connect(..) | Tls(_))))
    }
}

impl MappingService {
    pub(crate) fn new(
        settings: &MappingServiceSettings,
        trust: &TrustSource,
        clock: Arc<dyn Clock>,
        counters: Arc<MappingCounters>,
    ) -> Result<Self, MappingServiceSettingsError> {
        let url = HttpsUrl::parse_private(&settings.url)?;
        let authorities = (!url.is_plain).then(|| Authorities::new(trust.clone()));
        // What is wrong with them shows at the start.
        authorities.as_ref().map(Authorities::get).transpose()?;
        let state = State {
            memory: MappingMemory::new(settings.keep),
            asking: 0,
            waiting: 0,
            down_until: Duration::ZERO,
            down_why: String::new(),
            complained: None,
        };
        Ok(Self { url, authorities, clock, counters, state: Mutex::new(state), freed: Condvar::new() })
    }

    /// Who the credential of the question is. The inner error is the service's refusal. This waits for at most
    /// [`MAPPING_TIME_MAX`], except that the system's lookup of a host's address has its own limits.
    pub(crate) fn ask(&self, question: &MappingQuestion) -> Result<Result<Mapped, String>, MappingServiceError> {
        let deadline = Instant::now() + MAPPING_TIME_MAX;
        let reply = match self.begin(question, deadline) {
            Ok(None) => self.finish(question, self.exchange(question, deadline)),
            Ok(Some(kept)) => {
                count(&self.counters.kept);
                return Ok(kept.verdict());
            }
            Err(error) => Err(error),
        };
        count(match &reply {
            Ok(MappingReply::Principal { .. }) => &self.counters.mapped,
            Ok(MappingReply::Refused(_)) => &self.counters.refused,
            Err(_) => &self.counters.failed,
        });
        reply.map(MappingReply::verdict)
    }

    /// The answer that is kept; `None`: the question may be asked, and [`Self::finish`] must follow.
    fn begin(
        &self,
        question: &MappingQuestion,
        deadline: Instant,
    ) -> Result<Option<MappingReply>, MappingServiceError> {
        let mut state = self.state.lock();
        loop {
            let now = self.clock.steady();
            // Again after each wait: somebody may have asked the same meanwhile.
            if let Some(reply) = state.memory.get(question, now) {
                return Ok(Some(reply.clone()));
            }
            if now < state.down_until {
                let why = format!("it could not be reached a moment ago: {}", state.down_why);
                return Err(MappingServiceError::Away(why));
            }
            if state.asking < MAPPING_QUESTIONS_MAX {
                state.asking += 1;
                return Ok(None);
            }
            if state.waiting >= WAITING_MAX {
                return Err(MappingServiceError::Busy);
            }
            state.waiting += 1;
            let is_late = self.freed.wait_until(&mut state, deadline).timed_out();
            state.waiting -= 1;
            if is_late {
                return Err(MappingServiceError::Busy);
            }
        }
    }

    fn exchange(&self, question: &MappingQuestion, deadline: Instant) -> Result<MappingReply, Failure> {
        let trust = self.authorities.as_ref().map(Authorities::get).transpose()?;
        let body = question.json();
        let reply = post(trust.as_ref(), &self.url, body, MAPPING_REPLY_BYTES_MAX, CONNECT_TIME_MAX, deadline)?;
        Ok(MappingReply::parse(&reply)?)
    }

    fn finish(
        &self,
        question: &MappingQuestion,
        result: Result<MappingReply, Failure>,
    ) -> Result<MappingReply, MappingServiceError> {
        let mut state = self.state.lock();
        let now = self.clock.steady();
        state.asking -= 1;
        self.freed.notify_all();
        match result {
            Ok(reply) => {
                state.memory.put(question, reply.clone(), now);
                if state.complained.take().is_some() {
                    tracing::info!(url = %self.url, "the mapping service answers again");
                }
                Ok(reply)
            }
            Err(failure) => {
                let why = failure.to_string();
                if failure.is_of_all() {
                    state.down_until = now + AFTER_FAILURE;
                    state.down_why.clone_from(&why);
                }
                self.complain(state, now, question, &why);
                Err(MappingServiceError::Away(why))
            }
        }
    }

    fn complain(&self, mut state: MutexGuard<'_, State>, now: Duration, question: &MappingQuestion, why: &str) {
        if state.complained.is_none_or(|at| now.saturating_sub(at) >= COMPLAIN_EVERY) {
            state.complained = Some(now);
            drop(state);
            tracing::error!(
                url = %self.url, credential = %question, reason = why,
                "the mapping service gives no answer; clients that no [[identity]] matches are refused"
            );
        }
    }
}
