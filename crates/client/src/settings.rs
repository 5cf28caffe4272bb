//! The client's patience, its stop, the servers that it may connect to, whom it trusts, and its identity.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::rate::RateLimit;
use crate::watch::Watch;
use crate::{Authorities, ClientError, Credentials, Endpoint, Url};

/// How often a wait checks whether it must stop.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest time for making a connection.
    pub connect_timeout: Duration,
    /// How long an answer may take, with the redirects on the way to it. Of a longer answer, at least 32 KiB must
    /// arrive in each such period.
    pub silence_max: Duration,
    /// If an address names several servers, and one of them sends no answer for so long to a request that can be repeated, the next one is asked. A server that
    /// asks to wait has answered.
    pub next_server_after: Duration,
    /// How long the client tries to restore a lost connection, for requests that can be repeated. All attempts count
    /// from the first loss until something moves, with everything that servers ask for meanwhile.
    pub recovery_max: Duration,
    /// The total time for which the client follows a server's requests to wait, for one request of its own.
    pub wait_max: Duration,
    /// The number of redirects that one request follows.
    pub redirects_max: u32,
    /// The number of requests with data that are under way on one connection.
    pub window: usize,
    /// The name of this program for the server.
    pub application: String,
    /// The user name for the login, if the address has none.
    pub user: String,
    /// What it may show to servers that want to know more than a name.
    pub credentials: Credentials,
    /// The authorities whose certificates it accepts.
    pub authorities: Authorities,
    /// Ends whatever is under way, with [`ClientError::Stopped`].
    pub stop: Stop,
    /// The servers that the client may connect to, also after redirects.
    pub reach: AllowedServers,
    /// The servers that any client with these settings has reached.
    pub met: ReachedServers,
    /// Hears what the client waits for.
    pub watch: Watch,
    /// The most bytes in a second.
    pub rate: RateLimit,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            silence_max: Duration::from_secs(300),
            next_server_after: Duration::from_secs(15),
            recovery_max: Duration::from_secs(60),
            wait_max: Duration::from_secs(600),
            redirects_max: 16,
            window: 4,
            application: "weir".to_owned(),
            user: std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default(),
            credentials: Credentials::default(),
            authorities: Authorities::default(),
            stop: Stop::default(),
            reach: AllowedServers::default(),
            met: ReachedServers::default(),
            watch: Watch::default(),
            rate: RateLimit::default(),
        }
    }
}

/// Servers that a client has reached. If such a server cannot be reached later, all clients that share this set
/// wait for it. They do not wait for a server that was never reached. They also share which servers of a list to ask last.
#[derive(Clone, Default, Debug)]
pub struct ReachedServers(Arc<Mutex<Reached>>);

#[derive(Default, Debug)]
struct Reached {
    servers: HashSet<Endpoint>,
    /// Servers of lists that could not be reached, or that have redirected to another one of their list, and when.
    last: HashMap<Endpoint, Instant>,
}

/// How long a server is asked after the others of its list.
const LAST_FOR: Duration = Duration::from_secs(30);

impl ReachedServers {
    pub(crate) fn add(&self, server: &Endpoint) {
        let met = &mut self.0.lock().servers;
        if !met.contains(server) {
            met.insert(server.clone());
        }
    }

    /// For a while, the other servers of its list are asked before this one.
    pub(crate) fn ask_last(&self, server: &Endpoint, now: Instant) {
        self.0.lock().last.insert(server.clone(), now);
    }

    /// Returns the servers of `url` in the order in which to ask them.
    pub(crate) fn in_order(&self, url: &Url, now: Instant) -> Vec<Endpoint> {
        let mut servers: Vec<Endpoint> = url.servers().cloned().collect();
        if servers.len() > 1 {
            let last = &self.0.lock().last;
            let is_recent = |since: &&Instant| now.saturating_duration_since(**since) < LAST_FOR;
            // Those without a mark first, then the one with the oldest mark. Otherwise as they are written.
            servers.sort_by_key(|server| last.get(server).filter(is_recent).copied());
        }
        servers
    }

    /// Whether one of the servers of `url` was reached.
    #[must_use]
    pub fn has_one_of(&self, url: &Url) -> bool {
        let met = self.0.lock();
        url.servers().any(|server| met.servers.contains(server))
    }

    /// The caller has given this server up: no client waits for it any more, until one reaches it again.
    pub fn forget(&self, server: &Endpoint) {
        self.0.lock().servers.remove(server);
    }

    /// Whether the server was reached.
    #[must_use]
    pub fn has(&self, server: &Endpoint) -> bool {
        self.0.lock().servers.contains(server)
    }
}

/// Tells when the client must stop; by default never. The client notices it within a quarter of a second, whatever
/// the server does.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// Stops when `asked` returns `true`. The client calls it often, from any thread.
    #[must_use]
    pub fn when(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asked)))
    }

    /// Whether the client must stop.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|asked| asked())
    }

    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.is_asked() { Err(ClientError::Stopped) } else { Ok(()) }
    }

    /// Sleeps, unless the client must stop.
    ///
    /// # Errors
    /// [`ClientError::Stopped`].
    pub fn sleep(&self, how_long: Duration) -> Result<(), ClientError> {
        let end = Instant::now() + how_long;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(TICK));
        }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stop(when asked)" } else { "Stop(never)" })
    }
}

/// The servers that the client may connect to; by default all.
#[derive(Clone, Default)]
pub struct AllowedServers(Option<Arc<Allowed>>);

type Allowed = dyn Fn(&Endpoint) -> bool + Send + Sync;

impl AllowedServers {
    /// Allows only servers for which `allowed` returns `true`.
    #[must_use]
    pub fn only(allowed: impl Fn(&Endpoint) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(allowed)))
    }

    pub(crate) fn check(&self, server: &Endpoint) -> Result<(), ClientError> {
        match &self.0 {
            Some(allowed) if !allowed(server) => Err(ClientError::OutOfReach { server: server.clone() }),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for AllowedServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Reach(some)" } else { "Reach(all)" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn a_server_that_failed_is_asked_last_for_a_while() {
        let (met, now) = (ReachedServers::default(), Instant::now());
        let url = Url::parse("root://m1,m2,m3//a").unwrap();
        let order = |after: Duration| {
            let hosts: Vec<String> = met.in_order(&url, now + after).into_iter().map(|server| server.host).collect();
            hosts.join(" ")
        };
        let fails = |host: &str, after: u64| {
            met.ask_last(&Endpoint::parse(host).unwrap(), now + Duration::from_secs(after));
        };
        assert_eq!(order(Duration::ZERO), "m1 m2 m3");
        fails("m1", 0);
        assert_eq!(order(Duration::from_secs(1)), "m2 m3 m1");
        fails("m2", 5);
        assert_eq!(order(Duration::from_secs(6)), "m3 m1 m2", "the one that failed first may be back first");
        assert_eq!(order(LAST_FOR), "m1 m3 m2");
        assert_eq!(order(LAST_FOR * 2), "m1 m2 m3");
        assert!(!met.has_one_of(&url));
        met.add(&url.others[1]);
        assert!(met.has_one_of(&url) && !met.has_one_of(&Url::parse("root://m1,m2//a").unwrap()));
    }
}
