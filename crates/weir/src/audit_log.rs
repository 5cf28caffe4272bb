//! The audit log of a node, and `weir audit`, which reads its files.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use audit::{AuditError, Event, Filter, LINE_MAX, Log, Reader, Record, time_in_line};
use config::{AUDIT_DIR, AuditTo, Config};
use console::time_text::parse_time;

use crate::Failure;
use crate::cli::AuditArgs;
use crate::exit::Exit;

/// How often new lines are looked for.
const LOOKS: Duration = Duration::from_millis(200);

/// Opens the log that the configuration asks for. Its directory may be in the data directory, so that is open already.
///
/// # Errors
/// The log cannot be opened. A node that should have one does not run without.
pub(crate) fn open(config: &Config) -> Result<Log, Failure> {
    let failed = |error: AuditError| Failure::new(Exit::Failed, error);
    match config.audit() {
        Some(settings) => Log::start(&settings).map_err(failed),
        None if config.audit_to == AuditTo::Nowhere => Ok(Log::off()),
        None => Err(Failure::message(Exit::Usage, "`audit.to` is \"files\": set `data` or `audit.directory`")),
    }
}

/// Runs `weir audit`.
pub(crate) fn run(args: &AuditArgs) -> Result<Exit, Failure> {
    let filter = filter_of(args)?;
    let mut output = Output { out: io::BufWriter::new(io::stdout().lock()), json: args.json };
    let printed = if args.stdin { of_stdin(&filter, &mut output) } else { of_files(args, &filter, &mut output) };
    match printed {
        // A closed reader (`| head`) is no error.
        Err(Stopped::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(Stopped::Output(error)) => Err(Failure::new(Exit::Failed, error)),
        Err(Stopped::Failure(failure)) => Err(failure),
        Ok(()) => Ok(Exit::Done),
    }
}

/// Why nothing more is printed.
enum Stopped {
    Output(io::Error),
    Failure(Failure),
}

fn of_files(args: &AuditArgs, filter: &Filter, output: &mut Output<impl io::Write>) -> Result<(), Stopped> {
    let failed = |error: AuditError| Stopped::Failure(Failure::new(Exit::Failed, error));
    let mut reader = Reader::open(&directory_of(args).map_err(Stopped::Failure)?).map_err(failed)?;
    loop {
        let mut shown = Ok(());
        let mut show = |record: Record, line: &[u8]| {
            shown = output.show(&record, line);
            shown.is_ok()
        };
        reader.read(filter, &mut show).map_err(failed)?;
        shown.and_then(|()| output.out.flush()).map_err(Stopped::Output)?;
        if !args.follow {
            break;
        }
        std::thread::sleep(LOOKS);
    }
    if reader.strange() > 0 {
        let what = format!("weir: {} lines are none of an audit log; a crash may have cut one", reader.strange());
        // Stderr may be closed.
        let _ = writeln!(io::stderr(), "{what}");
    }
    Ok(())
}

/// Filters lines from elsewhere, such as the journal. A line that is none is passed over, as in files.
fn of_stdin(filter: &Filter, output: &mut Output<impl io::Write>) -> Result<(), Stopped> {
    let unreadable = |error| {
        Stopped::Failure(Failure::new(Exit::Failed, error).while_doing("cannot read the lines from standard input"))
    };
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        input.by_ref().take(LINE_MAX as u64).read_until(b'\n', &mut line).map_err(unreadable)?;
        if line.is_empty() {
            return output.out.flush().map_err(Stopped::Output);
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        if let Some(record) = Record::parse(&line).filter(|record| filter.wants(record)) {
            output.show(&record, &line).and_then(|()| output.out.flush()).map_err(Stopped::Output)?;
        }
    }
}

fn directory_of(args: &AuditArgs) -> Result<PathBuf, Failure> {
    if let Some(directory) = &args.directory {
        return Ok(directory.clone());
    }
    let Some(file) = &args.config else { return Ok(args.data.join(AUDIT_DIR)) };
    let config = Config::load(Some(file)).map_err(|error| Failure::new(Exit::Usage, error))?;
    if config.audit_to == AuditTo::Journald {
        let why = "this node writes its audit log to the journal: journalctl _SYSTEMD_UNIT=weir.service -t weir-audit -o cat | weir audit --stdin";
        return Err(Failure::message(Exit::Usage, why));
    }
    Ok(config.audit_files_at().unwrap_or_else(|| args.data.join(AUDIT_DIR)))
}

fn filter_of(args: &AuditArgs) -> Result<Filter, Failure> {
    let time = |given: &Option<String>| {
        let parsed = given.as_deref().map(parse_time).transpose();
        parsed.map(|time| time.map(time_in_line)).map_err(|why| Failure::message(Exit::Usage, why))
    };
    Ok(Filter {
        principals: args.principals.clone(),
        // As lines have them.
        paths: args.paths.iter().map(|path| path.as_bytes().escape_ascii().to_string()).collect(),
        operations: args.operations.clone(),
        events: args.events.clone(),
        results: args.results.clone(),
        since: time(&args.since)?,
        until: time(&args.until)?,
    })
}

/// Where lines are printed.
struct Output<W> {
    out: W,
    json: bool,
}

impl<W: io::Write> Output<W> {
    fn show(&mut self, record: &Record, line: &[u8]) -> io::Result<()> {
        if self.json { self.out.write_all(line) } else { writeln!(self.out, "{}", in_columns(record)) }
    }
}

/// A line for people. Names of other people cannot move the cursor or hide anything in it.
fn in_columns(record: &Record) -> String {
    let plain = |text: &str| -> String {
        let shown = |c: char| -> String { if is_plain(c) { c.into() } else { c.escape_default().to_string() } };
        text.chars().map(shown).collect()
    };
    let time = record.time.split_once('.').map_or(&*record.time, |(seconds, _)| seconds).replace('T', " ");
    let number = record.number.map(|number| number.to_string());
    let who = record.principal.as_deref().or(number.as_deref()).unwrap_or("-");
    let mut line = format!(
        "{:19}  {:10}  {:12}  {:21}  {}",
        plain(&time),
        record.result.name(),
        plain(who),
        plain(record.address.as_deref().unwrap_or("-")),
        plain(&record.operation)
    );
    for (between, text) in [(" ", &record.path), (" -> ", &record.to)] {
        line.extend(text.as_deref().map(|text| format!("{between}{}", plain(text))));
    }
    let by = [&record.mechanism, &record.credential].into_iter().flatten();
    if record.event == Event::Login {
        line.extend(by.map(|text| format!(" {}", plain(text))));
    }
    line.extend(record.detail.as_deref().map(|text| format!(" ({})", plain(text))));
    line.extend(record.lines.map(|lines| format!(" {lines} lines")));
    line.extend(record.reason.as_deref().map(|text| format!(": {}", plain(text))));
    line
}

/// Whether a terminal shows the character as it is, in its place.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use audit::Outcome;

    use super::*;

    #[test]
    fn a_line_for_people_has_no_hidden_characters() {
        let record = Record {
            time: "2026-11-21T09:45:00.123Z".into(),
            operation: "rename".into(),
            path: Some("/a\u{1b}[2J".into()),
            to: Some("/b\u{202e}c\nd é".into()),
            result: Outcome::Denied,
            number: Some(7),
            reason: Some("no".into()),
            ..Record::default()
        };
        let shown = in_columns(&record);
        assert_eq!(
            shown,
            "2026-11-21 09:45:00  denied      7             -                      rename /a\\u{1b}[2J -> /b\\u{202e}c\\nd \u{e9}: no"
        );
    }
}
