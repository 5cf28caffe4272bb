//! The keys of the issuers, and when they must be fetched: a machine that reads no clock and fetches nothing itself.
//!
//! Its promises:
//!
//! - Fetches of one issuer's keys begin at least [`CacheTimes::fetch_interval`] apart, whatever tokens arrive. So a flood
//!   of tokens with unknown keys costs an issuer one request in that time.
//! - Keys that were fetched longer than [`CacheTimes::keep`] ago are not used.
//! - Until then they are used even if the issuer is away, and they are refreshed before they are that old.
//! - Tokens wait for a fetch only while it is younger than [`WAIT_TIME_MAX`]. After that they are refused, so that an issuer
//!   that does not answer cannot pile up waiting clients. The shell limits how many wait at once.
//! - A fetch that was given up changes nothing, however late its report comes.
//!
//! The shell asks [`KeyCache::answer`] for each token and [`KeyCache::due`] now and then, fetches when it is told to, and
//! reports each fetch with [`KeyCache::fetched`] or [`KeyCache::failed`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::shown::shown;
use crate::{Issuer, IssuerUrl, Issuers, KeySet};

/// A fetch that was not reported after this time counts as failed, because its thread may have died.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(60);
/// Tokens wait for a fetch until it is this old. Nobody has verified them yet, so any client can send many of them.
pub const WAIT_TIME_MAX: Duration = Duration::from_secs(5);

/// The number of a fetch, which belongs to its report. Each is given once in the life of a cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetchNumber(u64);

/// The times of a cache. The defaults are those that the profile recommends (section 4.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheTimes {
    /// Keys that were fetched this long ago are refreshed. A key that its issuer revokes is refused as soon as a refresh
    /// succeeds. While the issuer cannot be reached, the key stays in use, up to [`CacheTimes::keep`].
    pub refresh: Duration,
    /// Keys that were fetched this long ago are not used: how long an issuer may be away.
    pub keep: Duration,
    /// Fetches of one issuer's keys begin at least this far apart.
    pub fetch_interval: Duration,
}

/// Why times of a cache are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CacheTimesError {
    /// No pause between fetches.
    #[error(
        "the interval between fetches of an issuer's keys is 0: each token with an unknown key would ask the issuer"
    )]
    NoInterval,
    /// The order is wrong.
    #[error(
        "an issuer's keys are fetched every {fetch_interval_s} s at most, refreshed after {refresh_s} s and kept for {keep_s} \
         s: no time may be longer than the next one"
    )]
    Order {
        /// The shortest time between fetches, in seconds.
        fetch_interval_s: u64,
        /// When keys are refreshed, in seconds.
        refresh_s: u64,
        /// How long keys are kept, in seconds.
        keep_s: u64,
    },
}

impl CacheTimes {
    fn check(&self) -> Result<(), CacheTimesError> {
        let Self { refresh, keep, fetch_interval } = *self;
        if fetch_interval.is_zero() {
            return Err(CacheTimesError::NoInterval);
        }
        if fetch_interval > refresh || refresh > keep {
            let [fetch_interval_s, refresh_s, keep_s] = [fetch_interval, refresh, keep].map(|time| time.as_secs());
            return Err(CacheTimesError::Order { fetch_interval_s, refresh_s, keep_s });
        }
        Ok(())
    }
}

impl Default for CacheTimes {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        Self { refresh: hours(6), keep: hours(48), fetch_interval: Duration::from_secs(60) }
    }
}

/// What to do about a token's key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyAnswer {
    /// Verify the token with these keys. With `refresh`, also fetch them again, without the token waiting for that.
    Use {
        /// The keys, among them one with the ID that was asked for.
        keys: Arc<KeySet>,
        /// The fetch that must begin, if one must.
        refresh: Option<FetchNumber>,
    },
    /// Fetch the issuer's keys, and report. Ask again after the report, or after [`WAIT_TIME_MAX`] if it has not come.
    Fetch(FetchNumber),
    /// A fetch is under way. Ask again after its report, or after [`WAIT_TIME_MAX`] if it has not come.
    Wait,
    /// Refuse the token.
    Refuse(KeyRefusal),
}

/// Why no key for a token can be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyRefusal {
    /// The issuer is not configured.
    #[error("the token's issuer `{0}` is not trusted here")]
    UnknownIssuer(String),
    /// The issuer does not publish such a key.
    #[error(
        "the token's issuer {issuer} does not publish the key `{key_id}`; its keys were fetched {age_s} s ago, and are fetched \
         again in {again_s} s at the earliest"
    )]
    UnknownKey {
        /// The issuer.
        issuer: String,
        /// The key's ID.
        key_id: String,
        /// How long ago the keys were fetched, in seconds.
        age_s: u64,
        /// When they can be fetched again, in seconds from now.
        again_s: u64,
    },
    /// The issuer publishes the key, and it cannot be used.
    #[error("the key `{key_id}` of the token's issuer {issuer} cannot be used here: {why}")]
    UnusableKey {
        /// The issuer.
        issuer: String,
        /// The key's ID.
        key_id: String,
        /// The reason.
        why: &'static str,
    },
    /// The issuer is slow.
    #[error(
        "the key `{key_id}` of the token's issuer {issuer} is not known yet: its keys are being fetched for {since_s} s; try \
         again later"
    )]
    FetchSlow {
        /// The issuer.
        issuer: String,
        /// The key's ID.
        key_id: String,
        /// How long ago the fetch began, in seconds.
        since_s: u64,
    },
    /// There are no keys, and the issuer could not be asked.
    #[error(
        "the keys of the token's issuer {issuer} are not known: {why}; the next attempt is in {again_s} s at the earliest"
    )]
    IssuerAway {
        /// The issuer.
        issuer: String,
        /// What failed.
        why: String,
        /// When the next attempt can be, in seconds from now.
        again_s: u64,
    },
}

/// The keys of all configured issuers. Times are those of a clock that never goes back, since any fixed moment.
#[derive(Clone, Debug)]
pub struct KeyCache {
    times: CacheTimes,
    issuers: BTreeMap<IssuerUrl, Entry>,
    /// The number of the next fetch.
    next: u64,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// The keys of the last fetch that succeeded, and when it was reported.
    keys: Option<(Arc<KeySet>, Duration)>,
    /// When the last fetch began.
    begun: Option<Duration>,
    /// Its number, until it is reported.
    fetching: Option<FetchNumber>,
    /// Why the last fetch failed, if it did.
    failure: Option<String>,
}

impl Entry {
    /// How long ago the fetch began that is under way.
    fn fetching_since(&self, now: Duration) -> Option<Duration> {
        self.fetching?;
        self.begun.map(|begun| now.saturating_sub(begun)).filter(|since| *since < FETCH_TIME_MAX)
    }

    /// How long until a fetch may begin.
    fn until_fetch(&self, now: Duration, times: &CacheTimes) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| times.fetch_interval.saturating_sub(now.saturating_sub(begun)))
    }

    /// Whether a fetch may begin: none is under way, and the last one began long enough ago.
    fn may_begin(&self, now: Duration, times: &CacheTimes) -> bool {
        self.fetching_since(now).is_none() && self.until_fetch(now, times).is_zero()
    }

    /// Begins a fetch, if one may begin.
    fn begin(&mut self, now: Duration, times: &CacheTimes, next: &mut u64) -> Option<FetchNumber> {
        if !self.may_begin(now, times) {
            return None;
        }
        if self.fetching.is_some() {
            self.failure = Some(format!("a fetch did not end within {} s", FETCH_TIME_MAX.as_secs()));
        }
        let number = FetchNumber(*next);
        *next += 1;
        self.begun = Some(now);
        self.fetching = Some(number);
        Some(number)
    }

    /// Whether `fetch` is the fetch that is under way. It is not any more then.
    fn end(&mut self, fetch: FetchNumber) -> bool {
        self.fetching.take_if(|number| *number == fetch).is_some()
    }

    /// The keys that may be used, and their age.
    fn usable(&self, now: Duration, times: &CacheTimes) -> Option<(&Arc<KeySet>, Duration)> {
        let (keys, fetched) = self.keys.as_ref()?;
        let age = now.saturating_sub(*fetched);
        (age < times.keep).then_some((keys, age))
    }
}

impl KeyCache {
    /// A cache that has no keys yet.
    ///
    /// # Errors
    ///
    /// [`CacheTimesError`].
    pub fn new(times: CacheTimes, issuers: &Issuers) -> Result<Self, CacheTimesError> {
        times.check()?;
        let issuers = issuers.iter().map(|issuer| (issuer.url().clone(), Entry::default())).collect();
        Ok(Self { times, issuers, next: 0 })
    }

    /// Takes over changed settings. Keys of issuers that stay are kept.
    pub fn set_issuers(&mut self, issuers: &Issuers) {
        self.issuers.retain(|url, _| issuers.get(url.as_str()).is_some());
        for url in issuers.iter().map(Issuer::url) {
            self.issuers.entry(url.clone()).or_default();
        }
    }

    /// What to do about a token of `issuer` that is signed with the key `key_id`.
    pub fn answer(&mut self, issuer: &str, key_id: &str, now: Duration) -> KeyAnswer {
        let Self { times, issuers, next } = self;
        let Some(entry) = issuers.get_mut(issuer) else {
            return KeyAnswer::Refuse(KeyRefusal::UnknownIssuer(shown(issuer)));
        };
        if let Some((keys, age)) = entry.usable(now, times)
            && keys.contains(key_id)
        {
            let keys = Arc::clone(keys);
            let refresh = if age >= times.refresh { entry.begin(now, times, next) } else { None };
            return KeyAnswer::Use { keys, refresh };
        }
        if let Some(since) = entry.fetching_since(now) {
            if since < WAIT_TIME_MAX {
                return KeyAnswer::Wait;
            }
            let (issuer, key_id, since_s) = (shown(issuer), shown(key_id), since.as_secs());
            return KeyAnswer::Refuse(KeyRefusal::FetchSlow { issuer, key_id, since_s });
        }
        if let Some(fetch) = entry.begin(now, times, next) {
            return KeyAnswer::Fetch(fetch);
        }
        let again_s = entry.until_fetch(now, times).as_secs_f64().ceil();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a cast of a float saturates
        let again_s = again_s as u64;
        KeyAnswer::Refuse(match entry.usable(now, times) {
            Some((keys, age)) => {
                let why = keys.skipped_because(key_id);
                let (issuer, key_id, age_s) = (shown(issuer), shown(key_id), age.as_secs());
                match why {
                    Some(why) => KeyRefusal::UnusableKey { issuer, key_id, why },
                    None => KeyRefusal::UnknownKey { issuer, key_id, age_s, again_s },
                }
            }
            None => {
                let why = entry.failure.clone().unwrap_or_else(|| "those that were fetched last are too old".into());
                KeyRefusal::IssuerAway { issuer: shown(issuer), why, again_s }
            }
        })
    }

    /// Begins fetches for which no token waits: of keys that were never fetched or are due for a refresh. At most `max` begin,
    /// those first whose issuers were not asked for the longest time. Ask again when fewer fetches are under way.
    pub fn due(&mut self, now: Duration, max: usize) -> Vec<(IssuerUrl, FetchNumber)> {
        let Self { times, issuers, next } = self;
        let is_due = |entry: &Entry| {
            entry.usable(now, times).is_none_or(|(_, age)| age >= times.refresh) && entry.may_begin(now, times)
        };
        let mut due: Vec<_> = issuers.iter_mut().filter(|(_, entry)| is_due(entry)).collect();
        due.sort_by_key(|(_, entry)| entry.begun);
        let begun = due.into_iter().take(max);
        begun.filter_map(|(url, entry)| Some((url.clone(), entry.begin(now, times, next)?))).collect()
    }

    /// Takes in keys that were fetched at `fetched`, before a restart. They count unless a fetch has given keys since.
    pub fn restore(&mut self, keys: KeySet, fetched: Duration) {
        if let Some(entry) = self.issuers.get_mut(keys.issuer()) {
            entry.keys.get_or_insert((Arc::new(keys), fetched));
        }
    }

    /// Reports the keys that a fetch gave. They replace all earlier ones of their issuer: a key that is missing now is revoked.
    /// The report is ignored if the fetch was given up, or if the issuer is not configured any more.
    pub fn fetched(&mut self, fetch: FetchNumber, keys: KeySet, now: Duration) {
        if let Some(entry) = self.issuers.get_mut(keys.issuer())
            && entry.end(fetch)
        {
            entry.keys = Some((Arc::new(keys), now));
            entry.failure = None;
        }
    }

    /// Reports that a fetch of the keys of `issuer` failed. Earlier keys stay in use. The report is ignored as by
    /// [`KeyCache::fetched`].
    pub fn failed(&mut self, issuer: &str, fetch: FetchNumber, why: &str) {
        if let Some(entry) = self.issuers.get_mut(issuer)
            && entry.end(fetch)
        {
            entry.failure = Some(shown(why));
        }
    }

    /// Why the last fetch of an issuer's keys failed, for the status; `None` if it succeeded or there was none.
    #[must_use]
    pub fn failure(&self, issuer: &str) -> Option<&str> {
        self.issuers.get(issuer)?.failure.as_deref()
    }
}
