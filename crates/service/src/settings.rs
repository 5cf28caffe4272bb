//! The configuration of the service, with the times as they are now.

use parking_lot::RwLock;

use crate::config::{Config, PlantedBug, Times};

/// Settings that all parts share.
pub(crate) struct Settings {
    /// The configuration at the start.
    pub(crate) config: Config,
    /// Initially those of `config`.
    times: RwLock<Times>,
}

impl Settings {
    pub(crate) fn new(config: Config) -> Self {
        Self { times: RwLock::new(config.times), config }
    }

    /// The current times.
    pub(crate) fn times(&self) -> Times {
        *self.times.read()
    }

    pub(crate) fn set_times(&self, times: Times) {
        *self.times.write() = times;
    }

    /// See [`Config::has`].
    pub(crate) fn has(&self, bug: PlantedBug) -> bool {
        self.config.has(bug)
    }
}
