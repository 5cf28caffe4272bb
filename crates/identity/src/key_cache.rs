//! The keys of the issuers, and when they must be fetched: a machine that reads no clock and fetches nothing itself.
//!
//! Its promises:
//!
//! - Fetches of one issuer's keys begin at least [`CacheTimes::fetch_interval`] apart, whatever tokens arrive. So a flood
//!   of tokens with unknown keys costs an issuer one request in that time.
//! - Keys that were fetched longer than [`CacheTimes::keep`] ago are not used.
//! - Until then they are used even if the issuer is away, and they are refreshed before they are that old.
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

/// The times of a cache. The defaults are those that the profile recommends (section 4.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheTimes {
    /// Keys that were fetched this long ago are refreshed. A key that an issuer revokes is refused at the latest then.
    pub refresh: Duration,
    /// Keys that were fetched this long ago are not used: how long an issuer may be away.
    pub keep: Duration,
    /// Fetches of one issuer's keys begin at least this far apart.
    pub fetch_interval: Duration,
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
    /// Verify the token with these keys. If `refresh`, also fetch them again, without the token waiting for that.
    Use {
        /// The keys, among them one with the ID that was asked for.
        keys: Arc<KeySet>,
        /// Whether a fetch must begin.
        refresh: bool,
    },
    /// Fetch the issuer's keys, report, and ask again.
    Fetch,
    /// Somebody else fetches them. Wait for the report, and ask again. Bound the wait: the fetch may take
    /// [`FETCH_TIME_MAX`].
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
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// The keys of the last fetch that succeeded, and when it was reported.
    keys: Option<(Arc<KeySet>, Duration)>,
    /// When the last fetch began.
    begun: Option<Duration>,
    /// Whether it was not reported yet.
    fetching: bool,
    /// Why the last fetch failed, if it did.
    failure: Option<String>,
}

impl Entry {
    fn is_fetching(&self, now: Duration) -> bool {
        self.fetching && self.begun.is_some_and(|begun| now.saturating_sub(begun) < FETCH_TIME_MAX)
    }

    /// How long until a fetch may begin.
    fn until_fetch(&self, now: Duration, times: &CacheTimes) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| times.fetch_interval.saturating_sub(now.saturating_sub(begun)))
    }

    /// Begins a fetch, if one may begin and none is going on.
    fn begin(&mut self, now: Duration, times: &CacheTimes) -> bool {
        let may = !self.is_fetching(now) && self.until_fetch(now, times).is_zero();
        if may {
            if self.fetching {
                self.failure = Some(format!("a fetch did not end within {} s", FETCH_TIME_MAX.as_secs()));
            }
            self.begun = Some(now);
            self.fetching = true;
        }
        may
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
    #[must_use]
    pub fn new(times: CacheTimes, issuers: &Issuers) -> Self {
        let issuers = issuers.iter().map(|issuer| (issuer.url().clone(), Entry::default())).collect();
        Self { times, issuers }
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
        let times = self.times;
        let Some(entry) = self.issuers.get_mut(issuer) else {
            return KeyAnswer::Refuse(KeyRefusal::UnknownIssuer(shown(issuer)));
        };
        if let Some((keys, age)) = entry.usable(now, &times)
            && keys.contains(key_id)
        {
            let keys = Arc::clone(keys);
            return KeyAnswer::Use { keys, refresh: age >= times.refresh && entry.begin(now, &times) };
        }
        if entry.is_fetching(now) {
            return KeyAnswer::Wait;
        }
        if entry.begin(now, &times) {
            return KeyAnswer::Fetch;
        }
        let again_s = entry.until_fetch(now, &times).as_secs_f64().ceil();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a cast of a float saturates
        let again_s = again_s as u64;
        KeyAnswer::Refuse(match entry.usable(now, &times) {
            Some((_, age)) => {
                KeyRefusal::UnknownKey { issuer: shown(issuer), key_id: shown(key_id), age_s: age.as_secs(), again_s }
            }
            None => {
                let why = entry.failure.clone().unwrap_or_else(|| "those that were fetched last are too old".into());
                KeyRefusal::IssuerAway { issuer: shown(issuer), why, again_s }
            }
        })
    }

    /// The issuers whose keys must be fetched although no token waits for them: keys that were never fetched or are due for
    /// a refresh. Each of them counts as being fetched from now on.
    pub fn due(&mut self, now: Duration) -> Vec<IssuerUrl> {
        let times = self.times;
        let due = |entry: &Entry| entry.usable(now, &times).is_none_or(|(_, age)| age >= times.refresh);
        let begun = self.issuers.iter_mut().filter_map(|(url, entry)| {
            let begins = due(entry) && entry.begin(now, &times);
            begins.then(|| url.clone())
        });
        begun.collect()
    }

    /// Reports the keys that a fetch gave. They replace all earlier ones of the issuer: a key that is missing now is revoked.
    /// An issuer that is not configured any more is ignored.
    pub fn fetched(&mut self, issuer: &str, keys: KeySet, now: Duration) {
        if let Some(entry) = self.issuers.get_mut(issuer) {
            entry.keys = Some((Arc::new(keys), now));
            entry.fetching = false;
            entry.failure = None;
        }
    }

    /// Reports that a fetch failed. Earlier keys stay in use.
    pub fn failed(&mut self, issuer: &str, why: &str) {
        if let Some(entry) = self.issuers.get_mut(issuer) {
            entry.fetching = false;
            entry.failure = Some(shown(why));
        }
    }

    /// Why the last fetch of an issuer's keys failed, for the status; `None` if it succeeded or there was none.
    #[must_use]
    pub fn failure(&self, issuer: &str) -> Option<&str> {
        self.issuers.get(issuer)?.failure.as_deref()
    }
}
