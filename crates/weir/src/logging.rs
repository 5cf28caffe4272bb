//! The log: lines on stderr, for people or (as JSON) for programs; how much is said is set by `--log`, also while it runs.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, fmt, reload};

use crate::Failure;
use crate::exit::Exit;

/// The log that was started: its filter can be changed.
pub struct Logging(reload::Handle<EnvFilter, Registry>);

/// Sends log events at `level` (or by filter, as in `info,server=debug`) to stderr from now on.
pub fn start(level: &str) -> Result<(), Failure> {
    start_as(level, false).map(drop)
}

/// The same, as JSON (an object on a line) if asked for, and the filter can be changed later.
pub fn start_as(level: &str, json: bool) -> Result<Logging, Failure> {
    use std::io::IsTerminal as _;
    let (filter, handle) = reload::Layer::new(filter(level).map_err(|reason| Failure::message(Exit::Usage, reason))?);
    let lines = if json {
        fmt::layer().with_writer(std::io::stderr).json().flatten_event(true).boxed()
    } else {
        fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    // A second call (tests in one process) keeps the first one's.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Ok(Logging(handle))
}

/// The filter, or why it is none.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|error| {
        format!("`{level}` is not a log level: {error}; write error, warn, info, debug, trace, or a filter such as info,server=debug")
    })
}

impl Logging {
    /// Says as much as `filter` lets through from now on.
    pub fn set(&self, filter: EnvFilter) {
        if let Err(error) = self.0.reload(filter) {
            tracing::error!("the log's filter stays as it was: {error}");
        }
    }
}
