//! The log: lines on stderr, for people or (as JSON) for programs. `--log` sets the level, which can change while the node runs. If stderr
//! is systemd's journal, each line for people begins with a priority (sd-daemon(3)) and has no time, because the journal adds it.

use std::ffi::OsStr;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Registry, fmt, reload};

use crate::Failure;
use crate::exit::Exit;

/// The target of audit lines. They are written at every level, unless the filter names this target.
const AUDIT: &str = "audit";
const AUDIT_ALWAYS: &str = "audit=info";

/// The running log; its filter can change.
pub struct Logging(reload::Handle<EnvFilter, Registry>);

/// Sends log events at `level` (or by a filter such as `info,xrootd=debug`) to stderr from now on.
pub fn start(level: &str) -> Result<(), Failure> {
    start_as(level, false).map(drop)
}

/// Like [`start`], as JSON (an object on each line) if `json`. The returned value can change the filter.
pub fn start_as(level: &str, json: bool) -> Result<Logging, Failure> {
    use std::io::IsTerminal as _;
    let (filter, handle) = reload::Layer::new(filter(level).map_err(|reason| Failure::message(Exit::Usage, reason))?);
    let lines = if json {
        fmt::layer().with_writer(std::io::stderr).json().flatten_event(true).boxed()
    } else if goes_to_journal() {
        let format = ForJournal(fmt::format().without_time());
        fmt::layer().with_writer(std::io::stderr).with_ansi(false).event_format(format).boxed()
    } else {
        fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()).boxed()
    };
    // A second call (tests in one process) keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Ok(Logging(handle))
}

/// Parses a filter, or says why it is invalid.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    // Only a directive for the audit log itself changes it, not one for a module with such a name.
    let is_audit = |directive: &str| directive.split('=').next() == Some(AUDIT);
    let names_audit = level.split(',').any(is_audit);
    let filter = EnvFilter::try_new(level).map(|filter| match (names_audit, AUDIT_ALWAYS.parse()) {
        (false, Ok(always)) => filter.add_directive(always),
        _ => filter,
    });
    filter.map_err(|error| {
        format!("`{level}` is not a log level: {error}; write error, warn, info, debug, trace, or a filter such as info,xrootd=debug")
    })
}

impl Logging {
    /// Replaces the filter.
    pub fn set(&self, filter: EnvFilter) {
        if let Err(error) = self.0.reload(filter) {
            tracing::error!("the log's filter stays as it was: {error}");
        }
    }
}

/// Whether stderr is systemd's journal.
#[must_use]
pub fn goes_to_journal() -> bool {
    let stderr = rustix::fs::fstat(std::io::stderr());
    stderr.is_ok_and(|stderr| is_journal(std::env::var_os("JOURNAL_STREAM").as_deref(), stderr.st_dev, stderr.st_ino))
}

/// `JOURNAL_STREAM` (systemd.exec(5)) holds device and inode of the journal's socket. A process that inherits it may have another stderr.
fn is_journal(stream: Option<&OsStr>, device: u64, inode: u64) -> bool {
    let ids = stream.and_then(OsStr::to_str).and_then(|stream| stream.split_once(':'));
    ids.is_some_and(|(dev, ino)| dev.parse() == Ok(device) && ino.parse() == Ok(inode))
}

/// An error of ours as it goes to stderr. For the journal, each line gets the priority of an error.
#[must_use]
pub fn as_error(text: &str) -> String {
    if goes_to_journal() { with_priority(Level::ERROR, text) } else { text.to_owned() }
}

/// The journal makes an entry of each line. A line without a priority gets the service's default.
fn with_priority(level: Level, text: &str) -> String {
    text.split_inclusive('\n').flat_map(|line| [priority(level), line]).collect()
}

/// The number of syslog(3).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

struct ForJournal(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        to.write_str(&with_priority(*event.metadata().level(), &text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systemd_journal_is_known_by_device_and_inode() {
        let stream = |text: &'static str| is_journal(Some(OsStr::new(text)), 9, 12345);
        assert!(stream("9:12345"));
        for other in ["9:12346", "8:12345", "9:", "9", "", "9:12345:1", "x:12345"] {
            assert!(!stream(other), "{other}");
        }
        assert!(!is_journal(None, 9, 12345));
    }

    #[test]
    fn audit_lines_are_written_unless_the_filter_names_them() {
        let written = |level: &str| filter(level).unwrap().to_string().split(',').any(|one| one == AUDIT_ALWAYS);
        for level in ["warn", "error,manager::audit=debug", "info,auditor=off"] {
            assert!(written(level), "{level}");
        }
        assert!(!written("info,audit=off"));
    }

    #[test]
    fn each_line_of_a_message_has_its_priority() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        let out = std::sync::Arc::new(temp.reopen().unwrap());
        let format = ForJournal(fmt::format().without_time());
        let lines = fmt::layer().with_writer(out).with_ansi(false).event_format(format);
        tracing::subscriber::with_default(Registry::default().with(lines), || {
            tracing::warn!("the disk is full\n  because: it is small\n\n  and: old");
            tracing::info!("ready");
        });
        let text = std::fs::read_to_string(temp.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!(lines[1..4], ["<4>  because: it is small", "<4>", "<4>  and: old"]);
        assert!(lines[0].starts_with("<4>") && lines[0].ends_with("the disk is full"), "{text}");
        assert!(lines[4].starts_with("<6>") && lines[4].ends_with("ready") && text.ends_with("ready\n"), "{text}");
        assert_eq!(with_priority(Level::ERROR, "weir: no\n  because: so"), "<3>weir: no\n<3>  because: so");
        assert_eq!(with_priority(Level::ERROR, ""), "");
    }
}
