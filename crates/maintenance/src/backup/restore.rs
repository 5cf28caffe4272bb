//! `weir restore`: puts the namespace of a backup into a data directory.
//!
//! The objects stay as they are. If the journal has everything since the backup, the restore brings the namespace up to its end. Then nothing is
//! lost. Otherwise the namespace is as old as the backup. It starts a new incarnation above all numbers that may have been used. The restore then
//! lists files without an object and objects without a file, like `weir fsck`.
//!
//! A cluster's manager has only names: [`super::manager`] ends its restore.
//!
//! Each step can be interrupted anywhere and repeated. The restore first moves the existing namespace aside ([`super::place`]). Then it writes a mark
//! ([`super::under_way`]), and the node does not start until the mark is gone.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use console::Exit;
use console::table::table_lines;
use console::time_text::parse_time;
use disk::Disk;
use foundation::datadir::Format;
use foundation::layout::{JOURNAL_DIR, STORE_DIR};
use foundation::marks::{JournalReset, RESTORING};
use foundation::{DataDir, DatabaseMark, DirRole, Foundation, OpenError, Purpose, Settings, disk_of, marks, refused};
use journal::{Journal, JournalError, Seq};
use types::Incarnation;
use types::units::show_size;

use super::authority::{self, PutBack};
use super::manager;
use super::manifest::{Kind, Manifest};
use super::place::{JournalHere, fits_the_journal, place, placed};
use super::target::{Target, TargetError};
use super::under_way::RestoreMark;
use crate::Error;
use crate::fsck::after_repair::start_new_incarnation;
use crate::fsck::report::Report;
use crate::fsck::{self, FsckOptions};
use crate::index_repair::journal_reset::{self, StoreIndex};
use crate::index_repair::rebuild;
use crate::now;

/// The source and the target of a restore.
#[derive(Clone, Default, Debug)]
pub struct RestoreOptions {
    /// The folder of backups.
    pub target: PathBuf,
    /// The data directory that gets the namespace.
    pub data: Option<PathBuf>,
    /// The newest state that is not after this time, or the state at this journal record.
    pub until: Option<String>,
    /// List the backups and do nothing else.
    pub list: bool,
    /// Like `list`, after reading all backups through.
    pub verify: bool,
    /// Print the result as JSON.
    pub json: bool,
    /// List at most this many findings of each kind.
    pub list_max: usize,
}

/// Restores a namespace, or lists backups, and prints the result. `settings` are those of the node.
///
/// # Errors
///
/// The folder or the directory was refused, or the restore was interrupted. Run it again.
pub fn run(args: &RestoreOptions, settings: &Settings) -> Result<Exit, Error> {
    let target = Target::open(&args.target, None)?;
    let until = args.until.as_deref().map(RestorePoint::parse).transpose();
    let until = until.map_err(Error::RestorePoint)?;
    if args.list || args.verify {
        return look(args, &target);
    }
    let Some(path) = &args.data else {
        return Err(Error::NoDirectory);
    };
    let chain = choose(&target, until)?;
    // Verifies the whole chain before anything is touched.
    chain.iter().try_for_each(|manifest| target.verify(manifest))?;
    let whose = target.whose();
    if let Some(DatabaseMark { address, .. }) = DatabaseMark::in_directory(path).map_err(Error::Mark)? {
        let advice = "restore that by PostgreSQL's own tools, or give a new directory";
        return Err(Error::InDatabase { data: path.clone(), address, advice });
    }
    let mut data = DataDir::for_restore(path, whose.format())?;
    restore(args, settings, &target, &chain, until, &mut data)
}

/// The requested state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RestorePoint {
    /// A backup taken no later than this.
    Time(types::Timestamp),
    /// The state at this journal record.
    Record(Seq),
}

impl RestorePoint {
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(record) => Ok(Self::Record(Seq(record))),
            Err(_) => parse_time(text)
                .map(Self::Time)
                .map_err(|why| format!("{why}; or the number of a record of the journal")),
        }
    }

    fn takes(self, manifest: &Manifest) -> bool {
        match self {
            Self::Time(time) => manifest.taken <= time,
            Self::Record(seq) => Seq(manifest.upto) <= seq,
        }
    }
}

/// The newest backup that `until` allows, preceded by the backups that it builds on.
fn choose(target: &Target, until: Option<RestorePoint>) -> Result<Vec<Manifest>, TargetError> {
    let mut newest = target.backups().iter().rev().filter(|manifest| until.is_none_or(|until| until.takes(manifest)));
    let last = newest.next().ok_or_else(|| {
        TargetError::NoSuch(match until {
            None => "in this folder".into(),
            Some(_) => "from before the time, or the record, that --until names".into(),
        })
    })?;
    target.chain(last)
}

/// What the operator of a restored manager must know.
pub(crate) const LOST_BY_A_MANAGER: [&str; 4] = [
    "nodes, stores, policies, and names of users and groups are as at that time: `weir status` lists the nodes; \
     remove those again that you had removed since, and let nodes that joined since join again",
    "tokens that nobody has used do not count any more",
    "files that were being written at that time must be written again",
    "start the manager, then run `weir restored`: it lists files that the disk servers no longer have, and replicas on \
     them that have no name. The manager removes and replaces nothing on them until you run `weir restored --accept`",
];

/// The state of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Log {
    /// It has these records.
    There { oldest: Seq, last: Seq },
    /// It is gone.
    Gone,
}

/// How far the journal brings a backup forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatchUp {
    /// To its end: nothing is lost.
    ToTheEnd,
    /// Up to this requested record.
    ToTheRecord(Seq),
    /// Not at all.
    AsOfTheBackup,
}

impl CatchUp {
    /// The way for a backup at `upto` beside a journal that ends at `end`. `follows`: the journal has everything after the backup. `branched`: the
    /// records after `end` do not belong to the namespace's history. Records have no time, so a restore to a time takes the state of a backup.
    fn of(until: Option<RestorePoint>, upto: Seq, end: Seq, follows: bool, branched: bool) -> Self {
        let all = if branched { CatchUp::ToTheRecord(end) } else { CatchUp::ToTheEnd };
        match until {
            None if follows => all,
            // The namespace has no history after this record that could be lost.
            Some(RestorePoint::Record(record)) if follows && record >= end => all,
            Some(RestorePoint::Record(record)) if follows && record > upto => CatchUp::ToTheRecord(record),
            _ => CatchUp::AsOfTheBackup,
        }
    }
}

fn log_of(disk: &dyn Disk, settings: &Settings) -> Result<Log, JournalError> {
    match Journal::check(disk, JOURNAL_DIR, &settings.journal()) {
        Ok(found) => Ok(Log::There { oldest: found.oldest, last: found.last }),
        Err(JournalError::Missing { .. }) => Ok(Log::Gone),
        // The folder is missing too.
        Err(JournalError::Disk(error)) if error.source.kind() == io::ErrorKind::NotFound => Ok(Log::Gone),
        Err(error) => Err(error),
    }
}

fn restore(
    args: &RestoreOptions,
    settings: &Settings,
    target: &Target,
    chain: &[Manifest],
    until: Option<RestorePoint>,
    data: &mut DataDir,
) -> Result<Exit, Error> {
    let failed = |error: OpenError| refused_restore(data, error);
    let disk = disk_of(data);
    if marks::is_rebuilding(&*disk).map_err(|error| failed(error.into()))? {
        return Err(failed(OpenError::RebuildInterrupted));
    }
    let Some(last) = chain.last() else { return Ok(Exit::Failed) };
    let is_manager = data.format.role == DirRole::Manager;
    let key = is_manager.then(|| authority::put_back(target, data)).transpose()?;
    let unfinished = JournalReset::read(&*disk).map_err(failed)?.is_some_and(|mark| !mark.finished);
    let found = if unfinished { Log::Gone } else { log_of(&*disk, settings).map_err(|error| failed(error.into()))? };
    let upto = Seq(last.upto);
    let before = RestoreMark::read(&*disk).map_err(|error| failed(error.into()))?;
    let here = match found {
        Log::Gone => None,
        Log::There { oldest, .. } => Some(journal_here(&disk, settings, oldest).map_err(failed)?),
    };
    // A namespace that an interrupted restore has put in place needs no earlier part of the journal. That part may have been trimmed since.
    let fits = before.is_some_and(|mark| mark.placed.is_some())
        && fits_the_journal(data, &disk, settings, here).map_err(failed)?;
    let there = before.and_then(|mark| mark.placed).filter(|_| fits);
    let is_there = |way| there == Some(placed(last, way, here));
    // Decides everything before it changes the namespace.
    let (mark, end, way) = match (here, found) {
        (Some(log), Log::There { last: found_last, .. }) => {
            let mark = RestoreMark::beside(before, log.incarnation, log.end);
            let end = mark.end.min(log.end);
            let follows = log.oldest <= upto.next() && upto <= found_last.min(end) && log.incarnation == last.log;
            let way = |follows| CatchUp::of(until, upto, end, follows, mark.branched);
            (mark, end, if is_there(way(true)) { way(true) } else { way(follows) })
        }
        _ => (before.unwrap_or(RestoreMark::first(0, upto)), upto, CatchUp::AsOfTheBackup),
    };
    let at = here.filter(|_| way != CatchUp::ToTheEnd).map_or(upto, |log| log.end);
    let whole = way == CatchUp::ToTheEnd;
    let aside = if is_there(way) {
        None
    } else {
        let placed = placed(last, way, here);
        place(data, &disk, settings, (target, chain), at, placed, mark).map_err(failed)?
    };
    let format =
        Format { incarnation: Incarnation(data.format.incarnation.0 + u64::from(!whole)), ..data.format.clone() };
    let mut report = Report::new(args.list_max);
    if found == Log::Gone {
        journal_reset::reset_journal(data, settings, StoreIndex::MayBeRebuilt)
            .map_err(|error| not_brought_to_its_end(journal_reset::refused(data, error)))?;
    }
    if found == Log::Gone && !is_manager {
        for folder in ["objects", "segments"] {
            disk.create_dir_all(&format!("{STORE_DIR}/{folder}")).map_err(|error| failed(error.into()))?;
        }
        for file in rebuild::catch_up(data, settings).map_err(failed)?.unreadable {
            report.add(fsck::finding::Finding::general(fsck::finding::Problem::UnexplainedFile { file }));
        }
    }
    let counts = if is_manager {
        let lost_since = (!whole).then_some(last.taken);
        let (counts, words) =
            manager::finish(data, settings, lost_since, &mut report).map_err(not_brought_to_its_end)?;
        words.iter().for_each(|words| drop(writeln!(io::stderr(), "{words}")));
        journal_reset::finish(&*disk).map_err(failed)?;
        counts
    } else {
        let foundation = Foundation::open(data, settings, Purpose::Repair, now()).map_err(failed)?;
        if !whole {
            let _ = writeln!(io::stderr(), "{}", start_new_incarnation(&foundation)?);
            foundation.accept_older().map_err(failed)?;
            rebuild::restore_empty(&foundation, false).map_err(failed)?;
        }
        journal_reset::finish(&*disk).map_err(failed)?;
        let quick = FsckOptions { quick: true, list: args.list_max, json: args.json, ..FsckOptions::default() };
        let counts = fsck::look(&foundation, &quick, &mut report)?;
        foundation.close().map_err(failed)?;
        counts
    };
    if format != data.format {
        data.replace_format(format)?;
    }
    disk.remove(RESTORING).and_then(|()| disk.sync_dir("")).map_err(|error| refused_restore(data, error.into()))?;

    let done = Restored { last, until, way, end, mark, aside, key };
    let mut stdout = io::stdout().lock();
    let printed = if args.json {
        let mut value = report.to_json(&counts, true);
        if let Some(object) = value.as_object_mut() {
            object.insert("backup".into(), last.to_json());
            object.insert("nothing_lost".into(), done.nothing_lost().into());
            object.insert("record".into(), done.as_of().0.into());
            object.insert("moved_aside".into(), done.aside.clone().into());
            object.insert("role".into(), if is_manager { "manager" } else { "single" }.into());
        }
        writeln!(stdout, "{value}")
    } else {
        done.in_words().iter().try_for_each(|line| writeln!(stdout, "{line}")).and_then(|()| match is_manager {
            true => manager::print(&mut stdout, &report, &counts),
            false => report.print(&mut stdout, &counts, true),
        })
    };
    printed.and_then(|()| stdout.flush()).map_err(Error::Print)?;
    Ok(if report.remaining() == 0 { Exit::Done } else { Exit::Wrong })
}

/// Opens the journal, which cuts an unsynced tail as any start does.
fn journal_here(disk: &Arc<dyn Disk>, settings: &Settings, oldest: Seq) -> Result<JournalHere, OpenError> {
    let (journal, _) = Journal::open(Arc::clone(disk), JOURNAL_DIR, settings.journal())?;
    let here = JournalHere { incarnation: journal.incarnation(), oldest, end: journal.appended() };
    journal.close()?;
    Ok(here)
}

/// The result of a restore.
struct Restored<'a> {
    last: &'a Manifest,
    until: Option<RestorePoint>,
    way: CatchUp,
    /// The end of the journal, as far as it is known to be the namespace's history.
    end: Seq,
    mark: RestoreMark,
    /// The folder with the former namespace.
    aside: Option<String>,
    /// Of a manager: what became of its cluster's key.
    key: Option<PutBack>,
}

impl Restored<'_> {
    /// The record up to which the namespace has everything.
    fn as_of(&self) -> Seq {
        match self.way {
            CatchUp::ToTheRecord(record) => record,
            CatchUp::ToTheEnd => self.end,
            CatchUp::AsOfTheBackup => Seq(self.last.upto),
        }
    }

    /// Whether the namespace is certain to be complete.
    fn nothing_lost(&self) -> bool {
        // The user may have to name the end of the history, if another attempt has written after it.
        self.way != CatchUp::AsOfTheBackup && self.mark.certain && self.as_of() >= self.mark.end
    }

    /// The result in words, for people.
    fn in_words(&self) -> Vec<String> {
        let (number, record, then) = (self.last.number, self.as_of(), self.mark.end);
        let mut words = vec![match self.way {
            CatchUp::AsOfTheBackup => format!(
                "restored as of backup {number}, {}, record {record}; later changes are lost",
                self.last.taken_text()
            ),
            CatchUp::ToTheEnd if self.nothing_lost() => {
                format!("restored from backup {number}, and brought up to the end of the journal: nothing is lost")
            }
            CatchUp::ToTheRecord(_) if self.nothing_lost() => format!(
                "restored from backup {number}, and brought up to record {record}, the end of the journal when an \
                 interrupted restore began: nothing is lost"
            ),
            CatchUp::ToTheEnd | CatchUp::ToTheRecord(_) if record == self.end && record < then => format!(
                "restored from backup {number}, and brought up to record {record}, the end of the journal; it went \
                 on to record {then} when an interrupted restore began, and later changes are lost"
            ),
            CatchUp::ToTheEnd | CatchUp::ToTheRecord(_) if record == self.end => format!(
                "restored from backup {number}, and brought up to record {record}, the end of the journal as it was \
                 found. An interrupted restore has left no word of where it had ended before: whether anything is \
                 lost, or was written by that restore, is not known"
            ),
            CatchUp::ToTheEnd | CatchUp::ToTheRecord(_) => format!(
                "restored from backup {number}, and brought up to record {record} of the journal; later changes are lost"
            ),
        }];
        match (self.until, self.way) {
            (Some(RestorePoint::Record(wanted)), CatchUp::AsOfTheBackup) if wanted > record => {
                words.push(format!("the journal does not have what was changed from there to record {wanted}"));
            }
            (Some(RestorePoint::Record(wanted)), CatchUp::ToTheEnd | CatchUp::ToTheRecord(_)) if wanted > self.end => {
                words.push(format!("there is no record {wanted}: the journal ends with {}", self.end));
            }
            _ => {}
        }
        words.extend(self.aside.iter().map(|aside| format!("the namespace that was there is in {aside}")));
        let of_manager: &[&str] = match self.key {
            None | Some(PutBack::IsThere) => &[],
            Some(PutBack::Restored) => &["the key of the cluster was lost, and is that of the backup"],
            Some(PutBack::Differs) => {
                &["the key of the cluster in cluster/authority is not that of the backup; it stays"]
            }
        };
        words.extend(of_manager.iter().map(|words| (*words).to_owned()));
        if self.key.is_some() && self.way != CatchUp::ToTheEnd {
            words.extend(LOST_BY_A_MANAGER.map(str::to_owned));
        }
        words
    }
}

fn look(args: &RestoreOptions, target: &Target) -> Result<Exit, Error> {
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
    printed.and_then(|()| stdout.flush()).map_err(Error::Print)?;
    Ok(if wrong == 0 { Exit::Done } else { Exit::Wrong })
}

fn refused_restore(data: &DataDir, error: OpenError) -> Error {
    not_brought_to_its_end(refused(data, error).into())
}

fn not_brought_to_its_end(error: Error) -> Error {
    Error::Restore(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_follows_up_to_the_requested_record() {
        let record = |record| Some(RestorePoint::Record(Seq(record)));
        let way = |until, follows| CatchUp::of(until, Seq(10), Seq(20), follows, false);
        assert_eq!([way(None, true), way(None, false)], [CatchUp::ToTheEnd, CatchUp::AsOfTheBackup]);
        assert_eq!(way(record(15), true), CatchUp::ToTheRecord(Seq(15)));
        assert_eq!(
            [way(record(20), true), way(record(99), true)],
            [CatchUp::ToTheEnd, CatchUp::ToTheEnd],
            "there is no more"
        );
        assert_eq!(way(record(15), false), CatchUp::AsOfTheBackup);
        // An interrupted restore of an older state has written after the end.
        let branched = |until| CatchUp::of(until, Seq(10), Seq(20), true, true);
        assert_eq!([None, record(20), record(99)].map(branched), [CatchUp::ToTheRecord(Seq(20)); 3]);
        assert_eq!(branched(record(15)), CatchUp::ToTheRecord(Seq(15)));
        assert_eq!(way(record(10), true), CatchUp::AsOfTheBackup);
        assert_eq!(way(Some(RestorePoint::Time(types::Timestamp(0))), true), CatchUp::AsOfTheBackup);
    }

    #[test]
    fn result_claims_no_loss_only_if_that_is_certain() {
        let (number, kind, after, upto, log) = (1, Kind::Full, 0, 77, 5);
        let taken = types::Timestamp(1_795_254_300_000_000_000);
        let last = Manifest { number, kind, after, upto, log, taken, bytes: 1, entries: 1, sum: 1 };
        let told = |way, end, mark| {
            let done = Restored { last: &last, until: None, way, end: Seq(end), mark, aside: None, key: None };
            assert_eq!(done.in_words()[0].contains("nothing is lost"), done.nothing_lost(), "{:?}", done.in_words());
            (done.as_of().0, done.nothing_lost())
        };
        let known = RestoreMark::first(5, Seq(99));
        let branched = RestoreMark { branched: true, ..known };
        let to = |record| CatchUp::ToTheRecord(Seq(record));
        assert_eq!(told(CatchUp::ToTheEnd, 99, known), (99, true));
        assert_eq!(told(to(99), 99, branched), (99, true), "behind it is what an attempt has written");
        assert_eq!(told(to(98), 99, branched), (98, false));
        assert_eq!(told(CatchUp::AsOfTheBackup, 99, known), (77, false));
        // An older copy of the journal was put back meanwhile.
        assert_eq!([told(CatchUp::ToTheEnd, 90, known), told(to(90), 90, branched)], [(90, false); 2]);
        // The mark could not be decoded, or the journal is another one.
        assert_eq!(told(to(99), 99, RestoreMark { certain: false, ..branched }), (99, false));
    }

    #[test]
    fn until_is_a_time_or_a_record() {
        assert_eq!(RestorePoint::parse("77"), Ok(RestorePoint::Record(Seq(77))));
        assert!(matches!(RestorePoint::parse("2026-11-21 09:45"), Ok(RestorePoint::Time(_))));
        assert!(RestorePoint::parse("yesterday").is_err());
        let (number, kind, after, upto, log) = (1, Kind::Full, 0, 77, 5);
        let taken = types::Timestamp(1_795_254_300_000_000_000);
        let manifest = Manifest { number, kind, after, upto, log, taken, bytes: 1, entries: 1, sum: 1 };
        for (text, takes) in [("76", false), ("77", true), ("2026-11-21 09:44:59", false), ("2026-11-21 09:45", true)] {
            assert_eq!(RestorePoint::parse(text).unwrap().takes(&manifest), takes, "{text}");
        }
    }
}
