//! `weir fsck`: the log, the indexes, the names, the contents, and the bytes of a node that is not running.
//!
//! Opening the data directory does what a start of the node does (an unsynced tail of the log is cut, the indexes are
//! brought up to its end), because only then is there something consistent to look at; beyond that nothing is changed
//! without `--repair`, `--repair-journal`, `--begin-new-log` or `--remove-unreferenced`.

pub(crate) mod after_repair;
pub mod check;
pub mod compare;
pub mod finding;
mod paged;
mod repair;
pub mod report;

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::backup::restore;
use crate::cli::FsckArgs;
use crate::config::Config;
use crate::config::units::show_size;
use crate::datadir::{DataDir, IfNew};
use crate::exit::Exit;
use crate::foundation::{Foundation, OpenError, Purpose, disk_of, repair_journal};
use crate::new_log::StoreIndex;
use crate::serve::{now, open_data_dir, refused};
use crate::{logging, new_log, rebuild, startup_report};

use check::{Counts, Progress};
use finding::{Finding, Problem};
use report::Report;

/// Runs the check.
pub fn run(args: &FsckArgs) -> Result<Exit, Failure> {
    let config = Config::load(args.config.as_deref()).map_err(|error| Failure::new(Exit::Usage, error))?;
    logging::start("warn")?;
    let data = open_data_dir(Some(&args.data), IfNew::Refuse)?;
    let mut report = Report::new(args.list);
    refuse_unfinished(&data, args)?;
    let cut = args.repair_journal && cut_journal(&data, &config, &mut report)?;
    if args.begin_new_log {
        begin_log(&data, &config, &mut report)?;
    }
    let rebuilt = args.rebuild_store && rebuild_store(&data, &config, &mut report)?;
    let asked = args.repair_journal || args.begin_new_log || rebuilt;
    let purpose = if asked { Purpose::Repair } else { Purpose::Check };
    let foundation = Foundation::open(&data, &config, purpose, now()).map_err(|error| refused(&data, error))?;
    if !args.json {
        for words in startup_report::in_words(&foundation.found, config.grace.as_secs()) {
            let _ = writeln!(std::io::stderr(), "{}", words.text);
        }
    }
    if cut || args.begin_new_log || foundation.is_older {
        let _ = writeln!(std::io::stderr(), "{}", after_repair::begin_new_life(&foundation)?);
    }
    if foundation.is_older {
        foundation.accept_older().map_err(|error| refused(&data, error))?;
    }
    if rebuilt || args.begin_new_log {
        // After a lost log the contents may be newer than their names.
        let restored = rebuild::restore_empty(&foundation, rebuilt).map_err(|error| refused(&data, error))?;
        let _ = writeln!(
            std::io::stderr(),
            "the store's index is whole again; files without a byte put into it: {restored}"
        );
    }
    if rebuilt {
        rebuild::finish(&*foundation.disk).map_err(|error| refused(&data, error.into()))?;
    }
    if args.begin_new_log {
        new_log::finish(&*foundation.disk).map_err(|error| refused(&data, error))?;
    }
    let counts = look(&foundation, args, &mut report)?;
    foundation
        .close()
        .map_err(|error| Failure::new(error.exit(), error).while_doing("cannot close the data directory"))?;

    let mut stdout = std::io::stdout().lock();
    let printed = if args.json {
        writeln!(stdout, "{}", report.to_json(&counts, args.quick))
    } else {
        report.print(&mut stdout, &counts, args.quick)
    };
    printed.and_then(|()| stdout.flush()).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(if report.remaining() == 0 { Exit::Done } else { Exit::Wrong })
}

/// Looks at everything in `foundation`, repairs what was asked for, and tells `report`.
pub fn look(foundation: &Foundation, args: &FsckArgs, report: &mut Report) -> Result<Counts, Failure> {
    let failed =
        |error: check::CheckError| Failure::new(Exit::Failed, error).while_doing("the check could not be finished");
    for file in &foundation.found.store.unexplained {
        report.add(Finding::general(Problem::UnexplainedFile { file: format!("store/{file}") }));
    }
    if foundation.was_repaired {
        after_repair::unknown_objects(foundation, report)?;
    }
    let found = &foundation.found;
    for file in found.namespace.damaged_checkpoints.iter().chain(&found.index.damaged_checkpoints) {
        let finding = Finding::general(Problem::Checkpoint { what: format!("{file} does not read as it was written") });
        report.add(Finding { repaired: Some("set aside".into()), ..finding });
    }
    for (which, index) in [("namespace", &foundation.namespace_index), ("store", &foundation.store_index)] {
        if let Err(error) = index.verify_checkpoints() {
            let what = format!("the {which}'s index: {error}");
            report.add(Finding::general(Problem::Checkpoint { what }));
        }
    }
    let mut progress = Screen { last: Instant::now(), shown: std::io::stderr().is_terminal() && !args.json };
    let mut repair = repair::Repair::new(foundation, args);
    // One view for the whole check; repairs are made after it, from the list that it leaves.
    let counts = {
        let read = kv::Kv::snapshot(&*foundation.embedded);
        let how = check::How { quick: args.quick, was_repaired: foundation.was_repaired };
        check::check(&*read, &foundation.store, how, &mut progress, &mut |found| repair.take(found, report))
            .map_err(failed)?
    };
    progress.clear();
    repair.finish(report)?;
    Ok(counts)
}

/// `--repair-journal`. Says whether anything was cut.
fn cut_journal(data: &DataDir, config: &Config, report: &mut Report) -> Result<bool, Failure> {
    let repaired = repair_journal(data, config)
        .map_err(|error| Failure::new(error.exit(), error).while_doing("the journal could not be repaired"))?;
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

/// What was begun and not finished is finished first, by the command that began it.
fn refuse_unfinished(data: &DataDir, args: &FsckArgs) -> Result<(), Failure> {
    let unfinished = || -> Result<(), OpenError> {
        let disk = disk_of(data)?;
        if !args.rebuild_store && rebuild::is_under_way(&*disk)? {
            return Err(OpenError::RebuildInterrupted);
        }
        if restore::is_under_way(&*disk)? {
            return Err(OpenError::RestoreInterrupted);
        }
        if !args.begin_new_log && new_log::NewLog::read(&*disk)?.is_some_and(|mark| !mark.finished) {
            return Err(OpenError::NewLogUnfinished);
        }
        Ok(())
    };
    unfinished().map_err(|error| refused(data, error))
}

/// `--rebuild-store`. Says whether anything was rebuilt.
fn rebuild_store(data: &DataDir, config: &Config, report: &mut Report) -> Result<bool, Failure> {
    let rebuilt = rebuild::rebuild(data, config).map_err(|error| {
        Failure::new(error.exit(), error).while_doing("the store's index could not be rebuilt; run this again")
    })?;
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

/// `--begin-new-log`.
fn begin_log(data: &DataDir, config: &Config, report: &mut Report) -> Result<(), Failure> {
    let begun = new_log::begin_new_log(data, config, StoreIndex::MustBeThere).map_err(|error| match &error {
        OpenError::LogIsThere | OpenError::PartOfLog { .. } => {
            Failure::new(error.exit(), error).while_doing("no new journal was started")
        }
        _ => refused(data, error),
    })?;
    let aside = begun.aside.map_or_else(String::new, |aside| format!(". What was left of the old one is in {aside}"));
    let what = format!(
        "the journal is lost; a new one begins with record {}, and the names and objects are those that the indexes hold{aside}",
        begun.beginning.first
    );
    let _ = writeln!(std::io::stderr(), "{what}");
    let finding = Finding::general(Problem::Journal { what });
    report.add(Finding { repaired: Some("the node can start again; what was lost stays lost".into()), ..finding });
    // Contents were moved, changed and settled after the index was last written to the disk: their files tell.
    let rebuilt = rebuild::catch_up(data, config).map_err(|error| refused(data, error))?;
    for file in rebuilt.unreadable {
        report.add(Finding::general(Problem::UnexplainedFile { file }));
    }
    Ok(())
}

/// A line that is rewritten while the check goes on.
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
