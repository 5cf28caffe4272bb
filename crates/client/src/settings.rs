//! How patient the client is, when it ends, whom it may reach, and who it says it is.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{ClientError, Endpoint};

/// How often it is looked whether everything is to end.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long a server may say nothing while an answer is awaited, or be so slow that it is as good as nothing: less than
    /// 32 KiB come in this time, and more is due.
    pub silence_max: Duration,
    /// How long a lost connection is tried to be made again, for what can be repeated.
    pub recovery_max: Duration,
    /// How long a server's requests to wait are followed, in all, for one request of ours.
    pub wait_max: Duration,
    /// Redirects that one request follows.
    pub redirects_max: u32,
    /// Requests with data under way at a time on one connection.
    pub window: usize,
    /// What the server is told that this program is.
    pub application: String,
    /// Who to log in as, if the address does not say.
    pub user: String,
    /// When to end whatever is under way, with [`ClientError::Stopped`].
    pub stop: Stop,
    /// Which servers may be connected to; where a redirect leads counts too.
    pub reach: Reach,
    /// Which servers have been reached, by whichever client with these settings.
    pub met: Met,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            silence_max: Duration::from_secs(300),
            recovery_max: Duration::from_secs(60),
            wait_max: Duration::from_secs(600),
            redirects_max: 16,
            window: 4,
            application: "weir".to_owned(),
            user: std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default(),
            stop: Stop::default(),
            reach: Reach::default(),
            met: Met::default(),
        }
    }
}

/// Servers that have been reached. One that was there once is waited for when it cannot be reached, by everybody who shares this; one that never was is not.
#[derive(Clone, Default, Debug)]
pub struct Met(Arc<Mutex<HashSet<Endpoint>>>);

impl Met {
    pub(crate) fn add(&self, server: &Endpoint) {
        let mut met = self.0.lock();
        if !met.contains(server) {
            met.insert(server.clone());
        }
    }

    /// Was it reached?
    #[must_use]
    pub fn has(&self, server: &Endpoint) -> bool {
        self.0.lock().contains(server)
    }
}

/// Says when everything is to end; by default never. Noticed within a quarter of a second, whatever the server does.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// Once `asked` gives `true`. It is asked often, from any thread.
    #[must_use]
    pub fn when(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(asked)))
    }

    /// Whether everything is to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|asked| asked())
    }

    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.is_asked() { Err(ClientError::Stopped) } else { Ok(()) }
    }

    /// Sleeps, unless everything is to end.
    ///
    /// # Errors
    /// [`ClientError::Stopped`]: it is.
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

/// Which servers may be connected to; by default all.
#[derive(Clone, Default)]
pub struct Reach(Option<Arc<Allowed>>);

type Allowed = dyn Fn(&Endpoint) -> bool + Send + Sync;

impl Reach {
    /// Those for which `allowed` gives `true`.
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

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Reach(some)" } else { "Reach(all)" })
    }
}
