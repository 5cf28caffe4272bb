//! Keeps looking at the health of a manager.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::health::NodeHealth;
use crate::supervisor::StateLine;

/// How often the thread looks.
const EVERY: Duration = Duration::from_secs(1);

/// Who looks.
pub(crate) enum HealthWatch {
    /// The caller of [`HealthWatch::look`].
    Caller(Arc<NodeHealth>, StateLine),
    /// A thread. It ends when this is dropped, and nobody waits for it: it may just wait for a database that is away.
    Thread(#[allow(dead_code)] Sender<()>), // only its end is noticed
}

impl HealthWatch {
    /// Begins. With `may_wait`, a look may take long, and the node must do other things meanwhile.
    pub(crate) fn start(health: &Arc<NodeHealth>, mut state: StateLine, may_wait: bool) -> std::io::Result<Self> {
        let health = Arc::clone(health);
        if !may_wait {
            return Ok(Self::Caller(health, state));
        }
        let (sender, stopped) = channel();
        std::thread::Builder::new().name("health".into()).spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                look(&health, &mut state);
            }
        })?;
        Ok(Self::Thread(sender))
    }

    /// Looks, unless a thread does. Call it about every second.
    pub(crate) fn look(&mut self) {
        if let Self::Caller(health, state) = self {
            look(health, state);
        }
    }
}

fn look(health: &NodeHealth, state: &mut StateLine) {
    health.look();
    state.look(|| health.recent());
}
