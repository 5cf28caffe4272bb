//! The log: lines on stderr, for people; how much is said is set by `--log`.

use tracing_subscriber::EnvFilter;

use crate::Failure;
use crate::exit::Exit;

/// Sends log events at `level` (or by filter, as in `info,server=debug`) to stderr from now on.
pub fn start(level: &str) -> Result<(), Failure> {
    use std::io::IsTerminal as _;
    let filter = EnvFilter::try_new(level).map_err(|error| {
        Failure::message(
            Exit::Usage,
            format!("`{level}` is not a log level: {error}; write error, warn, info, debug, trace, or a filter such as info,server=debug"),
        )
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(true);
    // A second call (tests in one process) keeps the first one's.
    let _ = subscriber.try_init();
    Ok(())
}
