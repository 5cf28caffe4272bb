//! Keys for delegated proxies. Making one computes for some tenths of a second, so a thread of its own makes them before they are needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gsi::{ProxyKey, SecretError};
use parking_lot::{Condvar, Mutex};

/// So many keys are ready.
const READY: usize = 8;
/// So many logins can wait for a key.
const WAITING_MAX: usize = 64;
/// So many of one principal.
const WAITING_OF_ONE_MAX: usize = 16;
/// How long a login waits.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// So many keys one principal can have at once.
const AT_ONCE: u32 = 32;
/// Then it can have one more after this time.
const EVERY: Duration = Duration::from_secs(2);
/// So many principals are remembered. Those are forgotten that can have all of theirs again.
const PRINCIPALS_MAX: usize = 4096;

/// Makes a key.
type Make = dyn Fn() -> Result<ProxyKey, SecretError> + Send + Sync;

/// The keys that are ready, each for one proxy.
#[derive(Clone)]
pub(crate) struct ProxyKeys(Arc<Shared>);

struct Shared {
    make: Box<Make>,
    wait: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: Vec<ProxyKey>,
    waiting: usize,
    is_making: bool,
    shares: HashMap<String, Share>,
}

/// What a principal has had of late.
#[derive(Clone, Copy)]
struct Share {
    /// When it can have all of its keys again.
    whole_at: Duration,
    waiting: usize,
}

impl State {
    /// Counts a key for this principal. Returns whether it can have one.
    fn count(&mut self, principal: &str, now: Duration) -> bool {
        if self.shares.len() >= PRINCIPALS_MAX && !self.shares.contains_key(principal) {
            self.shares.retain(|_, share| share.whole_at > now || share.waiting > 0);
            if self.shares.len() >= PRINCIPALS_MAX {
                return false;
            }
        }
        let share = self.shares.entry(principal.to_owned()).or_insert(Share { whole_at: now, waiting: 0 });
        let whole_at = share.whole_at.max(now) + EVERY;
        let is_within = whole_at - now <= EVERY * AT_ONCE;
        if is_within {
            share.whole_at = whole_at;
        }
        is_within
    }

    /// One more of this principal waits. Returns whether it may.
    fn begin_waiting(&mut self, principal: &str) -> bool {
        let Some(share) = self.shares.get_mut(principal) else { return false };
        let may_wait = self.waiting < WAITING_MAX && share.waiting < WAITING_OF_ONE_MAX;
        if may_wait {
            self.waiting += 1;
            share.waiting += 1;
        }
        may_wait
    }

    fn end_waiting(&mut self, principal: &str) {
        self.waiting -= 1;
        if let Some(share) = self.shares.get_mut(principal) {
            share.waiting -= 1;
        }
    }
}

/// The thread that makes keys. If it panics, another one can begin, and nobody waits for it.
struct Making<'a>(&'a ProxyKeys);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.0.state.lock().is_making = false;
            self.0.0.changed.notify_all();
        }
    }
}

impl ProxyKeys {
    pub(crate) fn new() -> Self {
        let make = || ProxyKey::generate(&mut crate::gsi_login::SystemNumbers::new());
        Self::with(Box::new(make), WAIT_MAX)
    }

    fn with(make: Box<Make>, wait: Duration) -> Self {
        Self(Arc::new(Shared { make, wait, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Begins to make keys, if there are too few, on another thread.
    pub(crate) fn refill(&self) {
        let mut state = self.0.state.lock();
        if state.is_making || state.ready.len() >= READY {
            return;
        }
        state.is_making = true;
        drop(state);
        let keys = self.clone();
        let spawned = std::thread::Builder::new().name("proxy-keys".into()).spawn(move || keys.fill());
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread can be started that makes keys for delegated proxies");
            self.0.state.lock().is_making = false;
            self.0.changed.notify_all();
        }
    }

    fn fill(&self) {
        let _making = Making(self);
        loop {
            let key = (self.0.make)();
            let mut state = self.0.state.lock();
            match key {
                Ok(key) => state.ready.push(key),
                Err(error) => {
                    tracing::error!(%error, "cannot make a key for a delegated proxy");
                    state.is_making = false;
                }
            }
            // Those who wait take one at once, so this goes on while somebody does.
            state.is_making &= state.ready.len() < READY;
            let goes_on = state.is_making;
            drop(state);
            self.0.changed.notify_all();
            if !goes_on {
                return;
            }
        }
    }

    /// Takes a key for a client of this principal, and waits for it if none is ready; `None`: the principal has had its share, too many wait, it took
    /// too long, or none can be made. The calling thread must be one that nobody else waits for.
    pub(crate) fn take(&self, principal: &str, now: Duration) -> Option<ProxyKey> {
        let key = {
            let mut state = self.0.state.lock();
            if !state.count(principal, now) {
                return None;
            }
            state.ready.pop()
        };
        self.refill();
        if key.is_some() {
            return key;
        }
        let mut state = self.0.state.lock();
        if !state.begin_waiting(principal) {
            return None;
        }
        let has_none = |state: &mut State| state.ready.is_empty() && state.is_making;
        self.0.changed.wait_while_for(&mut state, has_none, self.0.wait);
        state.end_waiting(principal);
        let key = state.ready.pop();
        drop(state);
        // The thread may have made enough, and ended, before this one took its key.
        if key.is_some() {
            self.refill();
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const KEY: &[u8] = include_bytes!("../../gsi/tests/data/proxy.key");

    fn made() -> Result<ProxyKey, SecretError> {
        ProxyKey::from_pem(KEY)
    }

    #[test]
    fn keys_are_made_before_they_are_needed_and_no_more_than_that() {
        let keys = ProxyKeys::with(Box::new(made), Duration::from_secs(60));
        assert!(keys.take("ana", NOW).is_some(), "after a wait");
        let began = std::time::Instant::now();
        let is_full = |keys: &ProxyKeys| {
            let state = keys.0.state.lock();
            state.ready.len() == READY && !state.is_making
        };
        while !is_full(&keys) {
            assert!(began.elapsed() < Duration::from_secs(60), "no more are made");
            std::thread::yield_now();
        }
        keys.refill();
        assert!(is_full(&keys));
        for _ in 0..3 * READY {
            assert!(keys.take("ana", NOW).is_some());
        }
    }

    #[test]
    fn one_principal_does_not_take_all_keys() {
        let keys = ProxyKeys::with(Box::new(made), Duration::from_secs(60));
        for _ in 0..AT_ONCE {
            assert!(keys.take("ana", NOW).is_some());
        }
        assert!(keys.take("ana", NOW).is_none(), "her share");
        assert!(keys.take("ben", NOW).is_some());
        assert!(keys.take("ana", NOW + EVERY).is_some());
        assert!(keys.take("ana", NOW + EVERY).is_none());
        let mut state = keys.0.state.lock();
        for _ in 0..WAITING_OF_ONE_MAX {
            assert!(state.begin_waiting("ana"));
        }
        assert!(!state.begin_waiting("ana") && state.begin_waiting("ben"));
        state.end_waiting("ana");
        assert!(state.begin_waiting("ana"));
        // Those who wait, and those who have had some of late, are not forgotten.
        for number in 2..PRINCIPALS_MAX {
            assert!(state.count(&number.to_string(), NOW));
        }
        assert!(!state.count("one more", NOW));
        assert!(state.count("one more", NOW + EVERY * AT_ONCE * 2));
        assert_eq!(state.shares.len(), 3);
    }

    #[test]
    fn a_panic_does_not_end_the_making_of_keys() {
        let made_before = std::sync::atomic::AtomicBool::new(false);
        let make = move || {
            assert!(made_before.swap(true, std::sync::atomic::Ordering::Relaxed), "the first one panics");
            made()
        };
        let keys = ProxyKeys::with(Box::new(make), Duration::from_secs(60));
        let began = std::time::Instant::now();
        assert!(keys.take("ana", NOW).is_none());
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(keys.take("ana", NOW).is_some());
    }

    #[test]
    fn a_login_does_not_wait_for_ever() {
        let keys = ProxyKeys::with(Box::new(|| Err(SecretError::NoKey)), Duration::from_secs(60));
        let began = std::time::Instant::now();
        assert!(keys.take("ana", NOW).is_none());
        assert!(began.elapsed() < Duration::from_secs(30));
        let slow = || {
            std::thread::sleep(Duration::from_millis(300));
            made()
        };
        let keys = ProxyKeys::with(Box::new(slow), Duration::from_millis(20));
        assert!(keys.take("ana", NOW).is_none());
        keys.0.state.lock().waiting = WAITING_MAX;
        let began = std::time::Instant::now();
        assert!(keys.take("ana", NOW).is_none());
        assert!(began.elapsed() < Duration::from_millis(20), "nobody waits behind the last one");
    }
}
