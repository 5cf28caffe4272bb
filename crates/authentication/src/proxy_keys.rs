//! Keys for delegated proxies. Making one computes for some tenths of a second, so a thread of its own makes them before they are needed.

use std::sync::Arc;
use std::time::Duration;

use gsi::{ProxyKey, SecretError};
use parking_lot::{Condvar, Mutex};

/// So many keys are ready.
const READY: usize = 8;
/// So many logins can wait for a key.
const WAITING_MAX: usize = 64;
/// How long a login waits.
const WAIT_MAX: Duration = Duration::from_secs(10);

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

    /// Takes a key, and waits for it if none is ready; `None`: too many wait, it took too long, or none can be made. The calling thread
    /// must be one that nobody else waits for.
    pub(crate) fn take(&self) -> Option<ProxyKey> {
        let key = self.take_ready();
        self.refill();
        if key.is_some() {
            return key;
        }
        let mut state = self.0.state.lock();
        if state.waiting >= WAITING_MAX {
            return None;
        }
        state.waiting += 1;
        let has_none = |state: &mut State| state.ready.is_empty() && state.is_making;
        self.0.changed.wait_while_for(&mut state, has_none, self.0.wait);
        state.waiting -= 1;
        state.ready.pop()
    }

    fn take_ready(&self) -> Option<ProxyKey> {
        self.0.state.lock().ready.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = include_bytes!("../../gsi/tests/data/proxy.key");

    fn made() -> Result<ProxyKey, SecretError> {
        ProxyKey::from_pem(KEY)
    }

    #[test]
    fn keys_are_made_before_they_are_needed_and_no_more_than_that() {
        let keys = ProxyKeys::with(Box::new(made), Duration::from_secs(60));
        assert!(keys.take().is_some(), "after a wait");
        let is_full = |keys: &ProxyKeys| {
            let state = keys.0.state.lock();
            state.ready.len() == READY && !state.is_making
        };
        while !is_full(&keys) {
            std::thread::yield_now();
        }
        keys.refill();
        assert!(is_full(&keys));
        for _ in 0..3 * READY {
            assert!(keys.take().is_some());
        }
    }

    #[test]
    fn a_login_does_not_wait_for_ever() {
        let keys = ProxyKeys::with(Box::new(|| Err(SecretError::NoKey)), Duration::from_secs(60));
        let began = std::time::Instant::now();
        assert!(keys.take().is_none());
        assert!(began.elapsed() < Duration::from_secs(30));
        let slow = || {
            std::thread::sleep(Duration::from_millis(300));
            made()
        };
        let keys = ProxyKeys::with(Box::new(slow), Duration::from_millis(20));
        assert!(keys.take().is_none());
        keys.0.state.lock().waiting = WAITING_MAX;
        let began = std::time::Instant::now();
        assert!(keys.take().is_none());
        assert!(began.elapsed() < Duration::from_millis(20), "nobody waits behind the last one");
    }
}
