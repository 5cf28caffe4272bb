//! Asks an external service who a credential is, if no rule says it. What is asked and answered is in `identity`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use identity::{MAPPING_REPLY_BYTES_MAX, Mapped, MappingMemory, MappingQuestion, MappingReply, MappingReplyError};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tls::{Authorities, TrustError, TrustSource};

use crate::Clock;
use crate::https::{HttpsUrl, PostError, UrlError, post};

/// How long a client waits for the service, with all that belongs to it.
pub const MAPPING_TIME_MAX: Duration = Duration::from_secs(5);
/// How long one attempt to connect may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// Most questions at once.
pub const MAPPING_QUESTIONS_MAX: usize = 16;
/// Most of them about clients at one address, so that these do not keep out others.
pub const MAPPING_QUESTIONS_OF_PEER_MAX: usize = 4;
/// Most clients that wait until they can be asked about.
const WAITING_MAX: usize = 128;
/// Most of them at one address.
const WAITING_OF_PEER_MAX: usize = 64;
/// After an attempt that failed before the question was sent, the service is not asked for this long.
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

/// How many have a place.
#[derive(Debug, Default)]
struct Places {
    all: usize,
    /// Of each address that has any. Clients whose address is not known share theirs.
    of: BTreeMap<Option<IpAddr>, usize>,
}

impl Places {
    fn has_room(&self, peer: Option<IpAddr>, max: usize, of_peer_max: usize) -> bool {
        self.all < max && self.of.get(&peer).is_none_or(|count| *count < of_peer_max)
    }

    fn take(&mut self, peer: Option<IpAddr>) {
        self.all += 1;
        *self.of.entry(peer).or_default() += 1;
    }

    fn free(&mut self, peer: Option<IpAddr>) {
        self.all -= 1;
        if let Some(count) = self.of.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&peer);
            }
        }
    }
}

/// The right to ask, until it is dropped.
struct Place<'a> {
    service: &'a MappingService,
    peer: Option<IpAddr>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.service.state.lock().asking.free(self.peer);
        self.service.freed.notify_all();
    }
}

/// What can be done about a question.
enum Begun<'a> {
    /// The answer is known.
    Kept(MappingReply),
    /// It may be asked.
    Ask(Place<'a>),
}

struct State {
    memory: MappingMemory,
    asking: Places,
    waiting: Places,
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
    Post(#[from] PostError),
    #[error(transparent)]
    Reply(#[from] MappingReplyError),
}

impl Failure {
    /// Whether another question would fail as well. What somebody shows must not keep others out, so only what happens before
    /// it is sent counts.
    fn is_of_all(&self) -> bool {
        matches!(self, Self::Authorities(_) | Self::Post(PostError::NotSent(_)))
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
        let authorities = (!url.is_plain).then(|| Authorities::new("the mapping service", vec![trust.clone()]));
        // What is wrong with them shows at the start.
        authorities.as_ref().map(Authorities::get).transpose()?;
        let state = State {
            memory: MappingMemory::new(settings.keep),
            asking: Places::default(),
            waiting: Places::default(),
            down_until: Duration::ZERO,
            down_why: String::new(),
            complained: None,
        };
        Ok(Self { url, authorities, clock, counters, state: Mutex::new(state), freed: Condvar::new() })
    }

    /// How many authorities had a revocation list that cannot be used when they were read last.
    pub(crate) fn unusable_authorities(&self) -> usize {
        self.authorities.as_ref().map_or(0, Authorities::unusable)
    }

    /// Who the credential of the question is, of a client at `peer`. The inner error is the service's refusal. This waits for at most
    /// [`MAPPING_TIME_MAX`], except that the system's lookup of a host's address has its own limits.
    pub(crate) fn ask(
        &self,
        question: &MappingQuestion,
        peer: Option<IpAddr>,
    ) -> Result<Result<Mapped, String>, MappingServiceError> {
        let deadline = Instant::now() + MAPPING_TIME_MAX;
        let reply = match self.begin(question, peer.map(|peer| peer.to_canonical()), deadline) {
            // The place is free again once the answer is kept, so that who waits for it finds it.
            Ok(Begun::Ask(_place)) => {
                // Who has waited for long has less time left than the service may take.
                let has_time = deadline.saturating_duration_since(Instant::now()) >= CONNECT_TIME_MAX;
                self.finish(question, self.exchange(question, deadline), has_time)
            }
            Ok(Begun::Kept(kept)) => {
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

    /// Waits until the question may be asked, or need not be.
    fn begin(
        &self,
        question: &MappingQuestion,
        peer: Option<IpAddr>,
        deadline: Instant,
    ) -> Result<Begun<'_>, MappingServiceError> {
        let mut state = self.state.lock();
        loop {
            let now = self.clock.steady();
            // Again after each wait: somebody may have asked the same meanwhile.
            if let Some(reply) = state.memory.get(question, now) {
                return Ok(Begun::Kept(reply.clone()));
            }
            if now < state.down_until {
                let why = format!("it could not be reached a moment ago: {}", state.down_why);
                return Err(MappingServiceError::Away(why));
            }
            if state.asking.has_room(peer, MAPPING_QUESTIONS_MAX, MAPPING_QUESTIONS_OF_PEER_MAX) {
                state.asking.take(peer);
                return Ok(Begun::Ask(Place { service: self, peer }));
            }
            if !state.waiting.has_room(peer, WAITING_MAX, WAITING_OF_PEER_MAX) {
                return Err(MappingServiceError::Busy);
            }
            state.waiting.take(peer);
            let is_late = self.freed.wait_until(&mut state, deadline).timed_out();
            state.waiting.free(peer);
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
        has_time: bool,
    ) -> Result<MappingReply, MappingServiceError> {
        let mut state = self.state.lock();
        let now = self.clock.steady();
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
                if has_time && failure.is_of_all() {
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
