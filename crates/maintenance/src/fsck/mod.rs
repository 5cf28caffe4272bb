//! `weir fsck`: checks the journal, the indexes, the names, the objects, and the bytes of a stopped node.
//!
//! Opening the data directory does the same as a start of the node: it cuts an unsynced tail of the journal and brings the indexes up to its end.
//! Only then is the state consistent. Beyond that, nothing is changed without `--repair`, `--repair-journal`, `--reset-journal` or
//! `--remove-unreferenced`.

pub(crate) mod after_repair;
pub mod check;
pub mod compare;
pub mod finding;
mod paged;
mod repair;
pub mod report;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use check::{Counts, Progress};
use console::Exit;
use finding::{Finding, Problem};
use foundation::{DataDir, Foundation, OpenError, Purpose, Settings, disk_of, marks, refused};
use report::Report;
use types::units::show_size;

use crate::Error;
use crate::index_repair::journal_reset::{self, JournalResetError, StoreIndex};
use crate::index_repair::{rebuild, repair_journal};
use crate::{now, open_data_dir};

/// The checks and repairs to do.
#[derive(Clone, Default, Debug)]
pub struct FsckOptions {
    /// Mark files whose bytes are gone or damaged, and recount directories with wrong totals.
    pub repair: bool,
    /// Remove objects that nothing refers to.
    pub remove_unreferenced: bool,
    /// Compare only names, records and lengths.
    pub quick: bool,
    /// Cut a damaged journal where the damage begins.
    pub repair_journal: bool,
    /// Rebuild the store's index if it is lost.
    pub rebuild_store: bool,
    /// Start a new journal if the journal is lost.
    pub reset_journal: bool,
    /// Print the result as JSON.
    pub json: bool,
    /// List at most this many findings of each kind.
    pub list: usize,
}

/// Checks the stopped node in `data`, and prints the findings. `settings` are those of the node, `grace` is the grace period of its writers.
///
/// # Errors
///
/// The directory was refused, or the check or a repair was interrupted.
pub fn run(data: &Path, settings: &Settings, grace: Duration, args: &FsckOptions) -> Result<Exit, Error> {
    let data = open_data_dir(data)?;
    let mut report = Report::new(args.list);
    refuse_unfinished(&data, args)?;
    let cut = args.repair_journal && cut_journal(&data, settings, &mut report)?;
    if args.reset_journal {
        begin_journal(&data, settings, &mut report)?;
    }
    let rebuilt = args.rebuild_store && rebuild_store(&data, settings, &mut report)?;
    let asked = args.repair_journal || args.reset_journal || rebuilt;
    let purpose = if asked { Purpose::Repair } else { Purpose::Check };
    let foundation = Foundation::open(&data, settings, purpose, now()).map_err(|error| refused(&data, error))?;
    if !args.json {
        for words in foundation.startup_report(grace.as_secs()) {
            let _ = writeln!(std::io::stderr(), "{}", words.text);
        }
    }
    if cut || args.reset_journal || foundation.is_older {
        let _ = writeln!(std::io::stderr(), "{}", after_repair::start_new_incarnation(&foundation)?);
    }
    if foundation.is_older {
        foundation.accept_older().map_err(|error| refused(&data, error))?;
    }
    if rebuilt || args.reset_journal {
        // After the journal was lost, the objects may be newer than their names.
        let restored = rebuild::restore_empty(&foundation, rebuilt).map_err(|error| refused(&data, error))?;
        let _ = writeln!(
            std::io::stderr(),
            "the store's index is whole again; files without a byte put into it: {restored}"
        );
    }
    if rebuilt {
        rebuild::finish(&*foundation.disk).map_err(|error| refused(&data, error.into()))?;
    }
    if args.reset_journal {
        journal_reset::finish(&*foundation.disk).map_err(|error| refused(&data, error))?;
    }
    let counts = look(&foundation, args, &mut report)?;
    foundation.close().map_err(Error::Close)?;

    let mut stdout = std::io::stdout().lock();
    let printed = if args.json {
        writeln!(stdout, "{}", report.to_json(&counts, args.quick))
    } else {
        report.print(&mut stdout, &counts, args.quick)
    };
    printed.and_then(|()| stdout.flush()).map_err(Error::Print)?;
    Ok(if report.remaining() == 0 { Exit::Done } else { Exit::Wrong })
}

/// Checks everything in `foundation`, makes the requested repairs, and adds the findings to `report`.
pub fn look(foundation: &Foundation, args: &FsckOptions, report: &mut Report) -> Result<Counts, Error> {
    for file in &foundation.objects.found.unexplained {
        report.add(Finding::general(Problem::UnexplainedFile { file: format!("store/{file}") }));
    }
    if foundation.was_repaired {
        after_repair::unknown_objects(foundation, report)?;
    }
    let (names, objects) = (&foundation.names.recovery, &foundation.objects.recovery);
    for file in names.damaged_checkpoints.iter().chain(&objects.damaged_checkpoints) {
        let finding = Finding::general(Problem::Checkpoint { what: format!("{file} does not read as it was written") });
        report.add(Finding { repaired: Some("set aside".into()), ..finding });
    }
    for (which, index) in [("namespace", &foundation.names.index), ("store", &foundation.objects.index)] {
        if let Err(error) = index.verify_checkpoints() {
            let what = format!("the {which}'s index: {error}");
            report.add(Finding::general(Problem::Checkpoint { what }));
        }
    }
    let mut progress = Screen { last: Instant::now(), shown: std::io::stderr().is_terminal() && !args.json };
    let mut repair = repair::Repair::new(foundation, args);
    // One view for the whole check. The repairs come after it, from its list of findings.
    let counts = {
        let read = kv::Kv::snapshot(&*foundation.names.embedded);
        let how = check::CheckOptions { quick: args.quick, was_repaired: foundation.was_repaired };
        check::check(&*read, &foundation.objects.store, how, &mut progress, &mut |found| repair.take(found, report))
            .map_err(Error::Check)?
    };
    progress.clear();
    repair.finish(report)?;
    Ok(counts)
}

/// `--repair-journal`. Returns whether anything was cut.
fn cut_journal(data: &DataDir, settings: &Settings, report: &mut Report) -> Result<bool, Error> {
    let repaired = repair_journal(data, settings).map_err(Error::RepairJournal)?;
    let cut = repaired.is_some();
    let text = match repaired {
        None => "the journal is not damaged; nothing was cut".to_owned(),
        Some(repaired) => {
            let (first, last) = repaired.lost;
            let text = format!(
                "the journal now ends with record {}; records {first} to {last} are lost. All from the damage on is saved in {}",
                repaired.last,
                repaired.saved.join(", ")
            );
            let finding = Finding::general(Problem::Journal { what: text.clone() });
            report.add(Finding {
                repaired: Some("the node can start again; what was lost stays lost".into()),
                ..finding
            });
            text
        }
    };
    let _ = writeln!(std::io::stderr(), "{text}");
    Ok(cut)
}

/// An unfinished repair must be finished first, by the command that began it.
fn refuse_unfinished(data: &DataDir, args: &FsckOptions) -> Result<(), Error> {
    let unfinished = || -> Result<(), OpenError> {
        let disk = disk_of(data);
        if !args.rebuild_store && marks::is_rebuilding(&*disk)? {
            return Err(OpenError::RebuildInterrupted);
        }
        if marks::is_restoring(&*disk)? {
            return Err(OpenError::RestoreInterrupted);
        }
        if !args.reset_journal && marks::JournalReset::read(&*disk)?.is_some_and(|mark| !mark.finished) {
            return Err(OpenError::JournalResetUnfinished);
        }
        Ok(())
    };
    unfinished().map_err(|error| refused(data, error).into())
}

/// `--rebuild-store`. Returns whether anything was rebuilt.
fn rebuild_store(data: &DataDir, settings: &Settings, report: &mut Report) -> Result<bool, Error> {
    let rebuilt = rebuild::rebuild(data, settings).map_err(Error::RebuildStore)?;
    let Some(rebuilt) = rebuilt else {
        let _ = writeln!(std::io::stderr(), "the store's index is not lost; nothing was rebuilt");
        return Ok(false);
    };
    for file in &rebuilt.unreadable {
        report.add(Finding::general(Problem::UnexplainedFile { file: file.clone() }));
    }
    let what =
        format!("the store's index was lost; {} small and {} large objects were found", rebuilt.small, rebuilt.large);
    let _ = writeln!(std::io::stderr(), "{what}");
    let finding = Finding::general(Problem::StoreIndex { what });
    report.add(Finding { repaired: Some("built again from the files of objects".into()), ..finding });
    Ok(true)
}

/// `--reset-journal`.
fn begin_journal(data: &DataDir, settings: &Settings, report: &mut Report) -> Result<(), Error> {
    let begun = journal_reset::reset_journal(data, settings, StoreIndex::MustExist).map_err(|error| match error {
        JournalResetError::JournalExists | JournalResetError::PartOfJournalExists { .. } => Error::NoNewJournal(error),
        _ => journal_reset::refused(data, error),
    })?;
    let aside = begun.aside.map_or_else(String::new, |aside| format!(". What was left of the old one is in {aside}"));
    let what = format!(
        "the journal is lost; a new one begins with record {}, and the names and objects are those that the indexes hold{aside}",
        begun.beginning.first
    );
    let _ = writeln!(std::io::stderr(), "{what}");
    let finding = Finding::general(Problem::Journal { what });
    report.add(Finding { repaired: Some("the node can start again; what was lost stays lost".into()), ..finding });
    // Objects may have changed after the index was last written to the disk. Their files show that.
    let rebuilt = rebuild::catch_up(data, settings).map_err(|error| refused(data, error))?;
    for file in rebuilt.unreadable {
        report.add(Finding::general(Problem::UnexplainedFile { file }));
    }
    Ok(())
}

/// A line on the screen that is rewritten during the check.
struct Screen {
    last: Instant,
    shown: bool,
}

impl Progress for Screen {
    fn step(&mut self, counts: &Counts) {
        if self.shown && self.last.elapsed() > Duration::from_millis(200) {
            self.last = Instant::now();
            let _ = write!(
                std::io::stderr(),
                "\r\x1b[K{} names, {} objects, {} read",
                counts.names,
                counts.replicas,
                show_size(counts.bytes_read)
            );
        }
    }
}

impl Screen {
    fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
