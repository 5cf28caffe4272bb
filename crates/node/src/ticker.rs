//! A thread that runs a task several times a second until it is stopped.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use cluster::Time;
use parking_lot::{Condvar, Mutex};
use types::Timestamp;

/// How often.
pub const TICK: Duration = Duration::from_millis(100);

/// The thread. Dropping it stops it.
pub struct Ticker {
    shared: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Calls `each` once per [`TICK`], in a thread of this name.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(name: &str, mut each: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let inner = Arc::clone(&shared);
        let tick = move || {
            let (stopping, wake) = &*inner;
            loop {
                let mut stopping = stopping.lock();
                if !*stopping {
                    wake.wait_for(&mut stopping, TICK);
                }
                if *stopping {
                    return;
                }
                drop(stopping);
                each();
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(tick)?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.shared.0.lock() = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread that ticks had panicked");
        }
    }
}

/// The process's own clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since it started.
    #[must_use]
    pub fn now(self) -> Time {
        Time(self.0.elapsed())
    }
}

/// The time of day.
#[must_use]
pub fn wall_clock() -> Timestamp {
    SystemTime::now().into()
}
