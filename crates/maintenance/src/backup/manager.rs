//! The end of a restore of a cluster's manager: the namespace continues above everything that the lost one may have handed out, and is checked.
//!
//! A manager has no objects with which its names could be compared here. When it runs, `weir restored` compares them with what the disk servers have.

use std::io::{self, Write};

use foundation::{DataDir, ManagerFoundation, Purpose, Settings, refused};
use namespace::{
    Actor, ContinueRestored, DistrustWriters, Durability, Namespace, NsError, Operation, RaiseIncarnation, writers_page,
};
use types::{Incarnation, Ino, ObjectId, Timestamp};

use crate::Error;
use crate::fsck::check::Counts;
use crate::fsck::finding::{Finding, Problem};
use crate::fsck::report::Report;
use crate::now;

/// Inode numbers left free above those of the backup.
const INODES_LEFT_FREE: u64 = 1 << 40;
/// Object numbers left free above those of the backup. Each start of a manager skips up to 2^40 of them.
const OBJECTS_LEFT_FREE: u64 = 1 << 44;

/// Opens the restored namespace in `data`. If changes are lost (`lost_since`: when the backup was taken), continues above the lost ones. Then checks the
/// namespace against itself. Returns the counts, and a message about the new incarnation.
pub(super) fn finish(
    data: &DataDir,
    settings: &Settings,
    lost_since: Option<Timestamp>,
    report: &mut Report,
) -> Result<(Counts, Option<String>), Error> {
    let foundation = ManagerFoundation::open_names(data, settings, Purpose::Repair, 0, now())
        .map_err(|error| Error::Refused(refused(data, error)))?;
    let done = lost_since.map(|taken| continue_above(&foundation.names.namespace, taken)).transpose();
    let done = done.and_then(|words| Ok((check(&foundation, report)?, words)));
    foundation.close().map_err(Error::Close)?;
    done
}

/// Continues above all numbers, epochs and promises of the lost namespace. `namespace` has the state of the time `taken`. Returns a message about the
/// new incarnation. Open the namespace again afterwards.
pub(crate) fn continue_above(namespace: &Namespace, taken: Timestamp) -> Result<String, Error> {
    let ino = namespace.ids().next_ino().map_err(Error::RaiseNumbers)?;
    let object = namespace.ids().next_object().map_err(Error::RaiseNumbers)?;
    let raise = RaiseIncarnation {
        // The time of day separates two lives that both continue from one backup.
        at_least: namespace.incarnation().max(Incarnation(u64::try_from(now().secs()).unwrap_or(0))),
        above_ino: Ino(ino.0.saturating_add(INODES_LEFT_FREE)),
        above_object: ObjectId(object.0.saturating_add(OBJECTS_LEFT_FREE)),
    };
    let Incarnation(life) = change(namespace, raise)?;
    change(namespace, ContinueRestored { taken, random: rand::random() })?;
    let mut after = None;
    loop {
        let page = namespace.read(|read| writers_page(read, after, DistrustWriters::WRITERS_MAX));
        let page = page.map_err(Error::RaiseNumbers)?;
        let writers = page.writers.iter().map(|writer| (writer.key, writer.object)).collect();
        change(namespace, DistrustWriters { writers })?;
        after = page.next;
        if after.is_none() {
            return Ok(format!("the namespace begins incarnation {life}, so that no number is used twice"));
        }
    }
}

fn change<O: Operation + Send + 'static>(namespace: &Namespace, op: O) -> Result<O::Reply, Error> {
    let context = namespace.context(now(), &Actor::admin(), None);
    namespace.change_wait(Durability::Synced, context, op).map_err(Error::RaiseNumbers)
}

/// Checks the namespace against itself.
fn check(foundation: &ManagerFoundation, report: &mut Report) -> Result<Counts, Error> {
    let check = |read: &dyn namespace::Read| {
        let found = namespace::check(read, &mut |found| {
            let path = found.totals_of.and_then(|dir| namespace::path_of(read, dir).ok());
            let problem = Problem::Keys {
                key: found.key,
                what: found.what,
                totals_of: found.totals_of,
                is_usage: found.is_usage,
            };
            report.add(Finding { path, ..Finding::general(problem) });
        })?;
        Ok::<_, NsError>(Counts {
            keys: found.keys,
            directories: found.directories,
            names: found.names,
            being_written: found.writers,
            uploads: found.uploads,
            deletions: found.deletions,
            ..Counts::default()
        })
    };
    foundation.names.namespace.read(check).map_err(Error::CheckNames)
}

/// Prints the result of the check for people.
pub(super) fn print(out: &mut dyn Write, report: &Report, counts: &Counts) -> io::Result<()> {
    for finding in report.listed() {
        writeln!(out, "{}", finding.problem.in_words())?;
    }
    let Counts { directories, names, being_written, .. } = counts;
    writeln!(out, "{directories} directories, {names} names, {being_written} files being written at that time")?;
    match report.remaining() {
        0 => writeln!(out, "the names agree with each other"),
        left => writeln!(out, "{left} records of the namespace disagree; please report it with this output"),
    }
}
