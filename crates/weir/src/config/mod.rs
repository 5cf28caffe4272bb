//! The configuration: defaults, then a TOML file, then flags. [`keys::KEYS`] is the one list of what can be set; the
//! defaults, the file's parser, the errors and the test of `docs/configure.md` all go by it.

mod file;
pub mod keys;
pub mod units;

use std::path::PathBuf;
use std::time::Duration;

pub use file::ConfigError;

use crate::cli::ServeArgs;

/// Everything that can be set. Sizes in bytes. The keys' meanings stand in [`keys::KEYS`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Config {
    pub data: Option<PathBuf>,
    pub listen: String,
    pub insecure: bool,
    pub existing: bool,
    pub log: String,
    pub grace: Duration,
    pub uploads_kept: Duration,
    pub connections: u64,
    pub writers_memory: u64,
    pub ballast: u64,
    pub floor: Option<u64>,
    pub segment_size: u64,
    pub overlay: u64,
    pub cache: u64,
    pub third_party_copy: bool,
    pub scrub_rate: u64,
    pub scrub_period: Duration,
}

impl Config {
    /// What holds when nothing is set: each key's default, read by the same code that reads the file.
    #[must_use]
    pub fn defaults() -> Self {
        let mut config = Self {
            data: None,
            listen: String::new(),
            insecure: false,
            existing: false,
            log: String::new(),
            grace: Duration::ZERO,
            uploads_kept: Duration::ZERO,
            connections: 0,
            writers_memory: 0,
            ballast: 0,
            floor: None,
            segment_size: 0,
            overlay: 0,
            cache: 0,
            third_party_copy: false,
            scrub_rate: 0,
            scrub_period: Duration::ZERO,
        };
        for key in keys::KEYS {
            if let Some(default) = key.default {
                let taken = (key.set)(&mut config, default);
                debug_assert_eq!(taken, Ok(()), "the default of `{}`", key.name);
            }
        }
        config
    }

    /// Defaults, then the file at `path` if there is one.
    pub fn load(path: Option<&std::path::Path>) -> Result<Self, ConfigError> {
        let mut config = Self::defaults();
        if let Some(path) = path {
            file::read_into(&mut config, path)?;
        }
        Ok(config)
    }

    /// Puts the flags of `weir serve` over what is set.
    #[must_use]
    pub fn with_flags(mut self, args: &ServeArgs) -> Self {
        if let Some(data) = &args.data {
            self.data = Some(data.clone());
        }
        if let Some(listen) = &args.listen {
            self.listen.clone_from(listen);
        }
        if let Some(log) = &args.log {
            self.log.clone_from(log);
        }
        if let Some(seconds) = args.grace_seconds {
            self.grace = Duration::from_secs(seconds);
        }
        self.insecure |= args.insecure;
        self.existing |= args.existing;
        self
    }
}
