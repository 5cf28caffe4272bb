//! `weir restore`: the namespace of a data directory as a backup has it.
//!
//! The contents stay as they are. Where the log is there and has everything since the backup, the namespace is brought up to the log's end and
//! nothing is lost. Otherwise it is as of the backup, and begins a new life above all numbers that can have been used; what it names and the
//! store has not, and the other way round, is listed as `weir fsck` does.
//!
//! Each step can be interrupted anywhere and done again. The namespace that was there is moved aside first. Then a mark says that a restore is
//! under way ([`super::under_way`]), and no start goes on until it is gone.

use std::io::{self, Write as _};
use std::sync::Arc;

use disk::{Disk, DiskError};
use journal::{Journal, JournalError, Seq, StreamId};
use types::Incarnation;

use super::manifest::{Kind, Manifest};
use super::target::{Target, TargetError};
use super::under_way::{FILE as UNDER_WAY, Placed, UnderWay};
use crate::cli::{FsckArgs, RestoreArgs};
use crate::config::Config;
use crate::config::units::show_size;
use crate::datadir::{DataDir, Format};
use crate::exit::Exit;
use crate::foundation::{
    Foundation, JOURNAL_DIR, NAMESPACE_CHECKPOINT_DIR, NAMESPACE_DIR, OpenError, Purpose, STORE_DIR, disk_of,
    journal_config,
};
use crate::fsck::after_repair::begin_new_life;
use crate::fsck::report::Report;
use crate::new_log::{NewLog, StoreIndex};
use crate::serve::{now, refused};
use crate::table::table_lines;
use crate::time_text::parse_time;
use crate::{Failure, fsck, logging, new_log, rebuild};

/// Where the namespace is made.
const NEW: &str = "namespace.new";
/// What an interrupted restore had made, on its way out.
const GONE: &str = "namespace.gone";
/// How namespaces that were there are called, a number behind it.
const ASIDE: &str = "namespace-lost-";

/// Whether a restore was begun and not finished.
pub fn is_under_way(disk: &dyn Disk) -> Result<bool, DiskError> {
    Ok(disk.len_of(UNDER_WAY)?.is_some())
}

/// Runs `weir restore`.
pub fn run(args: &RestoreArgs) -> Result<Exit, Failure> {
    let config = Config::load(args.config.as_deref()).map_err(|error| Failure::new(Exit::Usage, error))?;
    logging::start("warn")?;
    let target = Target::open(&args.target, None).map_err(of_target)?;
    let until = args.until.as_deref().map(Until::parse).transpose();
    let until = until.map_err(|why| Failure::message(Exit::Usage, format!("--until: {why}")))?;
    if args.list || args.verify {
        return look(args, &target);
    }
    let Some(path) = &args.data else {
        return Err(Failure::message(
            Exit::Usage,
            "no data directory given; say --data DIR, or --list to see the backups",
        ));
    };
    let chain = choose(&target, until).map_err(of_target)?;
    // All of it, before anything is touched.
    chain.iter().try_for_each(|manifest| target.verify(manifest)).map_err(of_target)?;
    let whose = target.whose();
    let mut data = DataDir::for_restore(path, whose.cluster, whose.store, whose.created)
        .map_err(|error| Failure::new(error.exit(), error))?;
    restore(args, &config, &target, &chain, until, &mut data)
}

/// Which state is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Until {
    /// Taken no later.
    Time(types::Timestamp),
    /// No record of the log after this one.
    Record(Seq),
}

impl Until {
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(record) => Ok(Self::Record(Seq(record))),
            Err(_) => {
                parse_time(text).map(Self::Time).map_err(|why| format!("{why}; or the number of a record of the log"))
            }
        }
    }

    fn takes(self, manifest: &Manifest) -> bool {
        match self {
            Self::Time(time) => manifest.taken <= time,
            Self::Record(seq) => Seq(manifest.upto) <= seq,
        }
    }
}

/// The newest backup that is wanted, and what leads to it.
fn choose(target: &Target, until: Option<Until>) -> Result<Vec<Manifest>, TargetError> {
    let mut newest = target.backups().iter().rev().filter(|manifest| until.is_none_or(|until| until.takes(manifest)));
    let last = newest.next().ok_or_else(|| {
        TargetError::NoSuch(match until {
            None => "in this folder".into(),
            Some(_) => "from before the time, or the record, that --until names".into(),
        })
    })?;
    target.chain(last)
}

/// What there is of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Log {
    /// These records.
    There { oldest: Seq, last: Seq },
    /// Nothing.
    Gone,
}

/// How far a backup is followed by the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To its end: nothing is lost.
    ToTheEnd,
    /// Up to this record, which somebody wants.
    ToTheRecord(Seq),
    /// Not at all.
    AsOfTheBackup,
}

impl Way {
    /// What is wanted, of a backup that stands at `upto`, beside a log that ends at `end`; `follows`: it has all that came after the backup.
    /// `branched`: what it has behind that is none of the namespace's history. Records tell no time: with one, it is a backup's.
    fn of(until: Option<Until>, upto: Seq, end: Seq, follows: bool, branched: bool) -> Self {
        let all = if branched { Way::ToTheRecord(end) } else { Way::ToTheEnd };
        match until {
            None if follows => all,
            // There is nothing after it that could be lost.
            Some(Until::Record(record)) if follows && record >= end => all,
            Some(Until::Record(record)) if follows && record > upto => Way::ToTheRecord(record),
            _ => Way::AsOfTheBackup,
        }
    }
}

fn log_of(disk: &dyn Disk, config: &Config) -> Result<Log, JournalError> {
    match Journal::check(disk, JOURNAL_DIR, &journal_config(config)) {
        Ok(found) => Ok(Log::There { oldest: found.oldest, last: found.last }),
        Err(JournalError::Missing { .. }) => Ok(Log::Gone),
        // Not even a folder.
        Err(JournalError::Disk(error)) if error.source.kind() == io::ErrorKind::NotFound => Ok(Log::Gone),
        Err(error) => Err(error),
    }
}

fn restore(
    args: &RestoreArgs,
    config: &Config,
    target: &Target,
    chain: &[Manifest],
    until: Option<Until>,
    data: &mut DataDir,
) -> Result<Exit, Failure> {
    let failed = |error: OpenError| refused_restore(data, error);
    let disk = disk_of(data).map_err(|error| failed(error.into()))?;
    if rebuild::is_under_way(&*disk).map_err(|error| failed(error.into()))? {
        return Err(failed(OpenError::RebuildInterrupted));
    }
    let Some(last) = chain.last() else { return Ok(Exit::Failed) };
    let unfinished = NewLog::read(&*disk).map_err(failed)?.is_some_and(|mark| !mark.finished);
    let found = if unfinished { Log::Gone } else { log_of(&*disk, config).map_err(|error| failed(error.into()))? };
    let upto = Seq(last.upto);
    let before = UnderWay::read(&*disk).map_err(|error| failed(error.into()))?;
    // Until it is written, nothing is changed.
    let nothing_found = UnderWay { log: 0, end: upto, branched: false, placed: None };
    let (way, at, mark) = match found {
        Log::Gone => (Way::AsOfTheBackup, upto, UnderWay { placed: None, ..before.unwrap_or(nothing_found) }),
        Log::There { oldest, last: end } => {
            let has_the_backups_end = upto <= end;
            let (end, log) = end_of_log(&disk, config).map_err(failed)?;
            let known = before.map(|mark| if mark.log == log { mark } else { UnderWay { log, end, ..mark } });
            let mark = known.unwrap_or(UnderWay { log, end, ..nothing_found });
            let end_then = mark.end.min(end);
            let follows = oldest <= upto.next() && has_the_backups_end && upto <= end_then && log == last.log;
            // What an interrupted restore has put in place already needs no log any more, which may have been trimmed since.
            let wanted = Way::of(until, upto, end_then, true, mark.branched);
            let stands = mark.log == log && mark.placed == Some(Placed { backup: last.number, way: wanted });
            match if stands { wanted } else { Way::of(until, upto, end_then, follows, mark.branched) } {
                Way::ToTheEnd => (Way::ToTheEnd, upto, mark),
                way => (way, end, mark),
            }
        }
    };
    let end = mark.end;
    let whole = way == Way::ToTheEnd;
    let aside = place(data, &disk, config, (target, chain), (way, at), mark).map_err(failed)?;
    let format =
        Format { incarnation: Incarnation(data.format.incarnation.0 + u64::from(!whole)), ..data.format.clone() };
    let mut report = Report::new(args.list_max);
    if found == Log::Gone {
        new_log::begin_new_log(data, config, StoreIndex::MayBeMadeAnew).map_err(failed)?;
        for folder in ["objects", "segments"] {
            disk.create_dir_all(&format!("{STORE_DIR}/{folder}")).map_err(|error| failed(error.into()))?;
        }
        for file in rebuild::catch_up(data, config).map_err(failed)?.unreadable {
            report.add(fsck::finding::Finding::general(fsck::finding::Problem::UnexplainedFile { file }));
        }
    }
    let foundation = Foundation::open(data, config, Purpose::Repair, now()).map_err(failed)?;
    if !whole {
        let _ = writeln!(io::stderr(), "{}", begin_new_life(&foundation)?);
        foundation.accept_older().map_err(failed)?;
        rebuild::restore_empty(&foundation, false).map_err(failed)?;
    }
    new_log::finish(&*disk).map_err(failed)?;
    let quick =
        FsckArgs { data: data.path.clone(), quick: true, list: args.list_max, json: args.json, ..FsckArgs::default() };
    let counts = fsck::look(&foundation, &quick, &mut report)?;
    foundation.close().map_err(failed)?;
    if format != data.format {
        data.replace_format(format).map_err(|error| Failure::new(error.exit(), error))?;
    }
    disk.remove(UNDER_WAY).and_then(|()| disk.sync_dir("")).map_err(|error| refused_restore(data, error.into()))?;

    let as_of = match way {
        Way::ToTheRecord(record) => record,
        Way::ToTheEnd => end,
        Way::AsOfTheBackup => upto,
    };
    // The log's end may have to be named where another attempt has written behind it.
    let lost = match way {
        Way::ToTheEnd => false,
        Way::ToTheRecord(record) => record < end,
        Way::AsOfTheBackup => true,
    };
    let mut words = vec![match way {
        Way::ToTheEnd => {
            format!("restored from backup {}, and brought up to the end of the log: nothing is lost", last.number)
        }
        Way::ToTheRecord(record) if !lost => format!(
            "restored from backup {}, and brought up to record {record}, the end of the log when an interrupted restore began: nothing is \
             lost",
            last.number
        ),
        Way::ToTheRecord(record) => format!(
            "restored from backup {}, and brought up to record {record} of the log; what was changed since is lost",
            last.number
        ),
        Way::AsOfTheBackup => format!(
            "restored as of backup {}, {}, record {}; what was changed since is lost",
            last.number,
            last.taken_text(),
            last.upto
        ),
    }];
    match (until, way) {
        (Some(Until::Record(record)), Way::AsOfTheBackup) if record > upto => {
            words.push(format!("the log does not have what was changed from there to record {record}"));
        }
        (Some(Until::Record(record)), Way::ToTheEnd | Way::ToTheRecord(_)) if record > end => {
            words.push(format!("there is no record {record}: the log ends with {end}"));
        }
        _ => {}
    }
    words.extend(aside.map(|aside| format!("the namespace that was there is in {aside}")));
    let mut stdout = io::stdout().lock();
    let printed = if args.json {
        let mut value = report.to_json(&counts, true);
        if let Some(object) = value.as_object_mut() {
            object.insert("backup".into(), last.to_json());
            object.insert("nothing_lost".into(), (!lost).into());
            object.insert("record".into(), as_of.0.into());
        }
        writeln!(stdout, "{value}")
    } else {
        words
            .iter()
            .try_for_each(|line| writeln!(stdout, "{line}"))
            .and_then(|()| report.print(&mut stdout, &counts, true))
    };
    printed.and_then(|()| stdout.flush()).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(if report.remaining() == 0 { Exit::Done } else { Exit::Wrong })
}

/// The log's last record, once an unsynced tail was cut as at any start, and its incarnation there: numbers alone do not tell one log from
/// another.
fn end_of_log(disk: &Arc<dyn Disk>, config: &Config) -> Result<(Seq, u64), OpenError> {
    let (journal, _) = Journal::open(Arc::clone(disk), JOURNAL_DIR, journal_config(config))?;
    let end = (journal.appended(), journal.incarnation());
    journal.close()?;
    Ok(end)
}

/// Moves what there is of a namespace aside, and puts the backup in its place, to stand at the log's record `at`. Gives the folder that holds
/// what was moved.
fn place(
    data: &DataDir,
    disk: &Arc<dyn Disk>,
    config: &Config,
    (target, chain): (&Target, &[Manifest]),
    (way, at): (Way, Seq),
    mark: UnderWay,
) -> Result<Option<String>, OpenError> {
    let number = chain.last().map_or(0, |last| last.number);
    let placed = Placed { backup: number, way };
    let standing = mark.placed == Some(placed);
    let mark = UnderWay { branched: mark.branched || way != Way::ToTheEnd, placed: None, ..mark };
    let root = disk.list("")?;
    let is_there = |name: &str| root.iter().any(|entry| entry.name == name);
    let mut aside = None;
    if !is_under_way(&**disk)? {
        if is_there(NAMESPACE_DIR) {
            let number = |name: &str| name.strip_prefix(ASIDE).and_then(|number| number.parse::<u64>().ok());
            let last = root.iter().filter_map(|entry| number(&entry.name)).max().unwrap_or(0);
            let name = format!("{ASIDE}{}", last + 1);
            disk.rename(NAMESPACE_DIR, &name)?;
            disk.sync_dir("")?;
            aside = Some(name);
        }
        mark.write(&**disk)?;
    } else if is_there(NAMESPACE_DIR) {
        if standing {
            return Ok(None);
        }
        // What an interrupted restore has put there. Under another name first: a half of it must never be taken for the whole.
        mark.write(&**disk)?;
        disk.rename(NAMESPACE_DIR, GONE)?;
        disk.sync_dir("")?;
    } else {
        mark.write(&**disk)?;
    }
    remove_all(data, NEW)?;
    remove_all(data, GONE)?;
    let files: Vec<String> = chain.iter().map(Manifest::file).collect();
    let folder = NAMESPACE_CHECKPOINT_DIR.replacen(NAMESPACE_DIR, NEW, 1);
    let from = (target.disk(), files.as_slice());
    let log = match way {
        Way::ToTheRecord(until) => {
            Some((Journal::open(Arc::clone(disk), JOURNAL_DIR, journal_config(config))?.0, until))
        }
        Way::ToTheEnd | Way::AsOfTheBackup => None,
    };
    let followed = log.as_ref().map(|(log, until)| kv::Followed { log, until: *until });
    kv::restore_backups(from, followed, StreamId::NAMESPACE, Arc::clone(disk), &folder, at)
        .map_err(|source| OpenError::Index { which: "namespace", source })?;
    if let Some((log, _)) = log {
        log.close()?;
    }
    disk.rename(NEW, NAMESPACE_DIR)?;
    disk.create_dir_all(STORE_DIR)?;
    disk.sync_dir("")?;
    // From here on the log may be trimmed below `at`: another attempt goes on with what stands there now.
    UnderWay { placed: Some(placed), ..mark }.write(&**disk)?;
    Ok(aside)
}

/// Removes a folder of ours, if it is there.
fn remove_all(data: &DataDir, folder: &str) -> Result<(), DiskError> {
    match std::fs::remove_dir_all(data.path.join(folder)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DiskError { op: disk::DiskOp::Remove, path: folder.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn look(args: &RestoreArgs, target: &Target) -> Result<Exit, Failure> {
    let mut wrong = target.damaged().len();
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for manifest in target.backups() {
        let trouble = match args.verify {
            true => target.chain(manifest).and_then(|_| target.verify(manifest)).err().map(|error| error.to_string()),
            false => None,
        };
        wrong += usize::from(trouble.is_some());
        let kind = if manifest.kind == Kind::Full { "full" } else { "delta" };
        let state = match (&trouble, args.verify) {
            (Some(_), _) => "DAMAGED",
            (None, true) => "whole",
            (None, false) => "",
        };
        let numbers = [manifest.upto.to_string(), manifest.entries.to_string(), show_size(manifest.bytes)];
        let mut row = vec![manifest.number.to_string(), kind.to_owned(), manifest.taken_text()];
        row.extend(numbers);
        row.push(state.to_owned());
        rows.push(row);
        let mut value = manifest.to_json();
        if let Some(object) = value.as_object_mut() {
            object.insert("trouble".into(), trouble.clone().into());
        }
        values.push(value);
        if let Some(trouble) = trouble {
            let _ = writeln!(io::stderr(), "{trouble}");
        }
    }
    for name in target.damaged() {
        let _ = writeln!(io::stderr(), "{name} does not read as it was written; the backup does not count");
    }
    let mut stdout = io::stdout().lock();
    let printed = if args.json {
        writeln!(stdout, "{}", serde_json::json!({ "backups": values, "damaged_manifests": target.damaged() }))
    } else {
        table_lines(&["backup", "kind", "taken", "record", "keys", "size", ""], &rows)
            .iter()
            .try_for_each(|line| writeln!(stdout, "{line}"))
    };
    printed.and_then(|()| stdout.flush()).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(if wrong == 0 { Exit::Done } else { Exit::Wrong })
}

fn of_target(error: TargetError) -> Failure {
    Failure::new(error.exit(), error)
}

fn refused_restore(data: &DataDir, error: OpenError) -> Failure {
    let failure = refused(data, error);
    failure.while_doing("the restore was not brought to its end; it may be run again. The backup is as it was")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_follows_up_to_the_record_that_is_wanted() {
        let record = |record| Some(Until::Record(Seq(record)));
        let way = |until, follows| Way::of(until, Seq(10), Seq(20), follows, false);
        assert_eq!([way(None, true), way(None, false)], [Way::ToTheEnd, Way::AsOfTheBackup]);
        assert_eq!(way(record(15), true), Way::ToTheRecord(Seq(15)));
        assert_eq!([way(record(20), true), way(record(99), true)], [Way::ToTheEnd, Way::ToTheEnd], "there is no more");
        assert_eq!(way(record(15), false), Way::AsOfTheBackup);
        // An interrupted restore of an older state has written behind the end.
        let branched = |until| Way::of(until, Seq(10), Seq(20), true, true);
        assert_eq!([None, record(20), record(99)].map(branched), [Way::ToTheRecord(Seq(20)); 3]);
        assert_eq!(branched(record(15)), Way::ToTheRecord(Seq(15)));
        assert_eq!(way(record(10), true), Way::AsOfTheBackup);
        assert_eq!(way(Some(Until::Time(types::Timestamp(0))), true), Way::AsOfTheBackup);
    }

    #[test]
    fn until_is_a_time_or_a_record() {
        assert_eq!(Until::parse("77"), Ok(Until::Record(Seq(77))));
        assert!(matches!(Until::parse("2026-11-21 09:45"), Ok(Until::Time(_))));
        assert!(Until::parse("yesterday").is_err());
        let (number, kind, after, upto, log) = (1, Kind::Full, 0, 77, 5);
        let taken = types::Timestamp(1_795_254_300_000_000_000);
        let manifest = Manifest { number, kind, after, upto, log, taken, bytes: 1, entries: 1, sum: 1 };
        for (text, takes) in [("76", false), ("77", true), ("2026-11-21 09:44:59", false), ("2026-11-21 09:45", true)] {
            assert_eq!(Until::parse(text).unwrap().takes(&manifest), takes, "{text}");
        }
    }
}
