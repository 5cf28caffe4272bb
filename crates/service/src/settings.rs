//! What the service was told, with the times that hold now.

use parking_lot::RwLock;

use crate::config::{Config, Planted, Times};

/// Shared by all parts.
pub(crate) struct Settings {
    /// As it was at the start.
    pub(crate) config: Config,
    /// Those of `config` at first.
    times: RwLock<Times>,
}

impl Settings {
    pub(crate) fn new(config: Config) -> Self {
        Self { times: RwLock::new(config.times), config }
    }

    /// The times that hold now.
    pub(crate) fn times(&self) -> Times {
        *self.times.read()
    }

    pub(crate) fn set_times(&self, times: Times) {
        *self.times.write() = times;
    }

    /// See [`Config::has`].
    pub(crate) fn has(&self, bug: Planted) -> bool {
        self.config.has(bug)
    }
}
