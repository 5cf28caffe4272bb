//! The keys of all issuers: `identity::KeyCache` decides, and this fetches, waits and remembers.
//!
//! Each fetch has a thread of its own, and each issuer at most one. So no lookup, slow server or disk holds up a client for
//! longer than [`FetchTimes::wait`], and a slow issuer is no other's trouble.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use identity::{
    CacheTimes, CacheTimesError, FetchNumber, Issuer, IssuerUrl, Issuers, KeyAnswer, KeyCache, KeyRefusal, KeySet,
};
use parking_lot::{Condvar, Mutex};
use tls::{Authorities, TrustError, TrustSource};

use crate::clock::Clock;
use crate::counters::IssuerStatus;
use crate::fetch::{FetchError, FetchTimes, Fetched, fetch};
use crate::key_files::KeyFiles;

/// Most clients that wait for the keys of one issuer.
pub const WAITING_MAX: usize = 64;
/// Most fetches at a time for which no client waits.
const FETCHES_MAX: usize = 8;
/// What the steady clock of the cache begins with, so that keys can be older than this process.
const BEFORE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The stack of a thread that fetches.
const STACK_BYTES: usize = 256 << 10;

/// Why there are no keys for a token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeysError {
    /// The issuer does not publish such a key, or is not configured.
    #[error(transparent)]
    Refused(KeyRefusal),
    /// The issuer could not be asked, and no keys of before can be used.
    #[error("the keys of the token's issuer are not known: {why}; the next attempt is in {again_s} s at the earliest")]
    Away {
        /// What failed.
        why: Arc<FetchError>,
        /// When the next attempt can be, in seconds from now.
        again_s: u64,
    },
    /// The fetch takes too long.
    #[error("the issuer {issuer} did not tell its keys within {waited_s} s; try again")]
    Slow {
        /// The issuer.
        issuer: IssuerUrl,
        /// How long the client has waited.
        waited_s: u64,
    },
    /// Too many clients wait already.
    #[error("{WAITING_MAX} clients wait for keys of the issuer {0} already; try again")]
    Busy(IssuerUrl),
}

/// What is known of an issuer beside its keys.
#[derive(Debug, Default)]
struct Known {
    /// How many clients wait for its keys.
    waiting: usize,
    /// Whether a thread fetches its keys.
    is_fetching: bool,
    /// When its present keys were fetched, and how many there are.
    keys: Option<(Duration, usize)>,
    /// Why the last fetch failed, if it did.
    failure: Option<Arc<FetchError>>,
    /// Whether the log says that the issuer can be reached; `None`: nothing yet.
    said: Option<bool>,
    succeeded: u64,
    failed: u64,
}

struct State {
    cache: KeyCache,
    issuers: BTreeMap<IssuerUrl, Known>,
    authorities: Arc<Authorities>,
}

/// See the module.
pub(crate) struct IssuerKeys {
    clock: Arc<dyn Clock>,
    times: FetchTimes,
    keep: Duration,
    files: Option<KeyFiles>,
    state: Mutex<State>,
    /// A fetch has ended, or the issuers have changed.
    changed: Condvar,
}

/// Keys that a token can be verified with.
pub(crate) struct Keys {
    pub(crate) keys: Arc<KeySet>,
    /// How long ago they were fetched.
    pub(crate) age: Duration,
}

impl IssuerKeys {
    /// With the keys that are kept in `files`.
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        cache_times: CacheTimes,
        times: FetchTimes,
        files: Option<KeyFiles>,
        issuers: &Issuers,
        authorities: Authorities,
    ) -> Result<Arc<Self>, CacheTimesError> {
        let state = State {
            cache: KeyCache::new(cache_times, issuers)?,
            issuers: BTreeMap::new(),
            authorities: Arc::new(authorities),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let keys = Self { clock, times, keep: cache_times.keep, files, state, changed };
        keys.take_issuers(&mut keys.state.lock(), issuers);
        Ok(Arc::new(keys))
    }

    /// Takes over changed issuers and authorities. Keys of issuers that stay are kept.
    pub(crate) fn set_issuers(&self, issuers: &Issuers, authorities: Authorities) {
        let mut state = self.state.lock();
        state.authorities = Arc::new(authorities);
        state.cache.set_issuers(issuers);
        self.take_issuers(&mut state, issuers);
        self.changed.notify_all();
    }

    /// How many of the authorities for issuers had a revocation list that cannot be used when they were read last.
    pub(crate) fn unusable_authorities(&self) -> usize {
        let authorities = Arc::clone(&self.state.lock().authorities);
        authorities.unusable()
    }

    fn take_issuers(&self, state: &mut State, issuers: &Issuers) {
        state.issuers.retain(|url, _| issuers.get(url.as_str()).is_some());
        for url in issuers.iter().map(Issuer::url) {
            if state.issuers.contains_key(url) {
                continue;
            }
            let mut known = Known::default();
            let kept = self.files.as_ref().and_then(|files| files.load(url, self.clock.wall(), self.keep));
            if let Some((keys, age)) = kept {
                let fetched = self.now().saturating_sub(age);
                known.keys = Some((fetched, keys.keys().len()));
                state.cache.restore(keys, fetched);
            }
            state.issuers.insert(url.clone(), known);
        }
    }

    fn now(&self) -> Duration {
        BEFORE + self.clock.steady()
    }

    /// The keys of `issuer`, among them one called `key_id`. Waits for a fetch if it must.
    pub(crate) fn get(self: &Arc<Self>, issuer: &IssuerUrl, key_id: &str) -> Result<Keys, KeysError> {
        let begun = Instant::now();
        let deadline = begun + self.times.wait;
        let mut state = self.state.lock();
        loop {
            let now = self.now();
            match state.cache.answer(issuer.as_str(), key_id, now) {
                KeyAnswer::Use { keys, refresh } => {
                    if let Some(number) = refresh {
                        self.begin(&mut state, issuer, number);
                    }
                    let fetched = state.issuers.get(issuer).and_then(|known| known.keys);
                    let age = fetched.map_or(Duration::ZERO, |(fetched, _)| now.saturating_sub(fetched));
                    return Ok(Keys { keys, age });
                }
                KeyAnswer::Fetch(number) => {
                    // If it cannot begin, the cache knows why by now.
                    if !self.begin(&mut state, issuer, number) {
                        continue;
                    }
                }
                KeyAnswer::Wait => {}
                KeyAnswer::Refuse(refusal) => return Err(refused(&state, issuer, refusal)),
            }
            if Instant::now() >= deadline {
                return Err(KeysError::Slow { issuer: issuer.clone(), waited_s: begun.elapsed().as_secs() });
            }
            match state.issuers.get_mut(issuer) {
                Some(known) if known.waiting >= WAITING_MAX => return Err(KeysError::Busy(issuer.clone())),
                Some(known) => known.waiting += 1,
                None => continue,
            }
            self.changed.wait_until(&mut state, deadline);
            if let Some(known) = state.issuers.get_mut(issuer) {
                known.waiting = known.waiting.saturating_sub(1);
            }
        }
    }

    /// Begins to fetch the keys that no token waits for: those that were never fetched, or are due for a refresh.
    pub(crate) fn fetch_due(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let under_way = state.issuers.values().filter(|known| known.is_fetching).count();
        for (issuer, number) in state.cache.due(self.now(), FETCHES_MAX.saturating_sub(under_way)) {
            self.begin(&mut state, &issuer, number);
        }
    }

    /// Begins a fetch that the cache wants. Returns whether that worked.
    fn begin(self: &Arc<Self>, state: &mut State, issuer: &IssuerUrl, number: FetchNumber) -> bool {
        let not_begun = |why: String| Err(FetchError::NotBegun { issuer: issuer.clone(), why });
        let Some(known) = state.issuers.get_mut(issuer) else { return false };
        if known.is_fetching {
            // The cache has given it up; a lookup of the host may take that long.
            let outcome = not_begun("the attempt of before has not ended yet".into());
            self.take_outcome(state, issuer, number, outcome);
            return false;
        }
        let (keys, issuer_of_thread) = (Arc::clone(self), issuer.clone());
        let thread = std::thread::Builder::new().name("issuer-keys".into()).stack_size(STACK_BYTES);
        match thread.spawn(move || keys.fetch(&issuer_of_thread, number)) {
            Ok(_) => {
                known.is_fetching = true;
                true
            }
            Err(error) => {
                let outcome = not_begun(format!("the system gives no thread: {error}"));
                self.take_outcome(state, issuer, number, outcome);
                false
            }
        }
    }

    /// Fetches, on a thread of its own.
    fn fetch(&self, issuer: &IssuerUrl, number: FetchNumber) {
        // The thread that has begun this holds the lock until it is known as begun.
        let authorities = Arc::clone(&self.state.lock().authorities);
        let _panic = EndOfPanic { keys: self, issuer };
        let outcome = fetch(&authorities, issuer, self.times);
        let document = outcome.as_ref().ok().map(|fetched| fetched.document.clone());
        let now = self.clock.wall();
        let is_known = {
            let mut state = self.state.lock();
            self.take_outcome(&mut state, issuer, number, outcome);
            // Whoever sees the outcome may begin the next fetch.
            state.issuers.get_mut(issuer).map(|known| known.is_fetching = false).is_some()
        };
        // Clients need not wait for the disk.
        self.changed.notify_all();
        if let (Some(files), Some(document), true) = (&self.files, document, is_known)
            && let Err(error) = files.store(issuer, &document, now)
        {
            tracing::warn!(%issuer, %error, "the keys of an issuer cannot be kept on the disk: a restart must fetch them");
        }
    }

    fn take_outcome(
        &self,
        state: &mut State,
        issuer: &IssuerUrl,
        number: FetchNumber,
        outcome: Result<Fetched, FetchError>,
    ) {
        let now = self.now();
        let Some(known) = state.issuers.get_mut(issuer) else { return };
        match outcome {
            Ok(Fetched { keys, .. }) => {
                known.succeeded += 1;
                known.failure = None;
                let count = keys.keys().len();
                known.keys = Some((now, count));
                if known.said != Some(true) {
                    tracing::info!(%issuer, keys = count, "the keys of an issuer were fetched");
                    for skipped in keys.skipped() {
                        tracing::info!(%issuer, key = %skipped, "a key of an issuer cannot be used");
                    }
                }
                known.said = Some(true);
                state.cache.fetched(number, keys, now);
            }
            Err(error) => {
                known.failed += 1;
                if known.said != Some(false) {
                    let usable_s =
                        known.keys.map_or(0, |(fetched, _)| (fetched + self.keep).saturating_sub(now).as_secs());
                    tracing::warn!(%error, usable_s, "the keys of an issuer cannot be fetched; those of before are used for usable_s more seconds");
                }
                known.said = Some(false);
                state.cache.failed(issuer.as_str(), number, &error.to_string());
                known.failure = Some(Arc::new(error));
            }
        }
    }

    /// What is known of each issuer.
    pub(crate) fn status(&self) -> Vec<IssuerStatus> {
        let (state, now) = (self.state.lock(), self.now());
        let one = |(issuer, known): (&IssuerUrl, &Known)| IssuerStatus {
            issuer: issuer.clone(),
            keys: known
                .keys
                .filter(|(fetched, _)| now.saturating_sub(*fetched) < self.keep)
                .map_or(0, |(_, count)| count),
            keys_age: known.keys.map(|(fetched, _)| now.saturating_sub(fetched)),
            fetches_succeeded: known.succeeded,
            fetches_failed: known.failed,
            failure: known.failure.as_ref().map(ToString::to_string),
            waiting: known.waiting,
        };
        state.issuers.iter().map(one).collect()
    }
}

/// If the thread of a fetch panics, the issuer must not be without fetches for ever.
struct EndOfPanic<'a> {
    keys: &'a IssuerKeys,
    issuer: &'a IssuerUrl,
}

impl Drop for EndOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(known) = self.keys.state.lock().issuers.get_mut(self.issuer)
        {
            known.is_fetching = false;
        }
    }
}

/// Reads the authorities once, so that a mistake shows at the start.
pub(crate) fn authorities(source: TrustSource, issuers: &Issuers) -> Result<Authorities, TrustError> {
    let authorities = Authorities::new("issuers", vec![source]);
    if issuers.iter().next().is_some() {
        authorities.get()?;
    }
    Ok(authorities)
}

fn refused(state: &State, issuer: &IssuerUrl, refusal: KeyRefusal) -> KeysError {
    let failure = state.issuers.get(issuer).and_then(|known| known.failure.clone());
    match (refusal, failure) {
        (KeyRefusal::IssuerAway { again_s, .. }, Some(why)) => KeysError::Away { why, again_s },
        (refusal, _) => KeysError::Refused(refusal),
    }
}
