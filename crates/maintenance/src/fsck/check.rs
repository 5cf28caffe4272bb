//! The check of an opened data directory: the namespace against itself, names against objects, objects against their checksums.

use std::collections::HashSet;

use journal::JournalError;
use kv::Read;
use namespace::{NsError, WriterRecord};
use store::{ReplicaState, ReplicaStatus, Store, StoreError};
use types::{ErrorCode, GroupId, ObjectId, ReplicaId};

use super::compare::{MergedScan, Named, Pair, disagreements, state_stored};
use super::finding::{Finding, Problem};
use super::paged::Paged;

/// Items read at a time.
const PAGE: usize = 1024;
/// The most objects without a name that are kept in memory, before they are compared with writers, uploads and deletions.
const NAMELESS_MAX: usize = 100_000;

/// Why the check could not go on.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The namespace cannot be read.
    #[error(transparent)]
    Namespace(#[from] NsError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Counts of the checked items.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Keys of the namespace.
    pub keys: u64,
    /// Directories.
    pub directories: u64,
    /// Names of files and symbolic links.
    pub names: u64,
    /// Objects in the store.
    pub replicas: u64,
    /// Of the objects: complete.
    pub complete: u64,
    /// Of the objects: interrupted.
    pub interrupted: u64,
    /// Files with an open write when the node stopped. Their writers may come back.
    pub being_written: u64,
    /// Kept uploads.
    pub uploads: u64,
    /// Objects in the deletion queue.
    pub deletions: u64,
    /// Bytes that the objects hold.
    pub bytes: u64,
    /// Bytes read and compared with their checksums.
    pub bytes_read: u64,
}

/// Reports the progress of the check.
pub trait Progress {
    /// Called now and then.
    fn step(&mut self, counts: &Counts);
}

/// Options of the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckOptions {
    /// Read no objects.
    pub quick: bool,
    /// The journal has lost records at some time ([`crate::foundation::Foundation::was_repaired`]), so the store may have forgotten objects.
    pub was_repaired: bool,
}

/// Checks everything. `read` is one consistent view of the namespace. Nothing else may change the store meanwhile.
pub fn check(
    read: &dyn Read,
    store: &Store,
    how: CheckOptions,
    progress: &mut dyn Progress,
    report: &mut dyn FnMut(Finding),
) -> Result<Counts, CheckError> {
    let CheckOptions { quick, was_repaired } = how;
    let mut counts = Counts::default();
    let keys = namespace::check(read, &mut |found| {
        let path = found.totals_of.and_then(|dir| namespace::path_of(read, dir).ok());
        let problem =
            Problem::Keys { key: found.key, what: found.what, totals_of: found.totals_of, is_usage: found.is_usage };
        report(Finding { path, ..Finding::general(problem) });
    })?;
    counts.keys = keys.keys;
    counts.directories = keys.directories;
    counts.names = keys.names;
    counts.uploads = keys.uploads;
    counts.being_written = keys.writers;
    counts.deletions = keys.deletions;
    progress.step(&counts);

    let named = Paged::new(|after: Option<&Named>| -> Result<Vec<Named>, CheckError> {
        let objects = namespace::objects(read, GroupId::DEFAULT, after.map(|last| last.object), PAGE)?;
        Ok(objects.iter().map(|object| Named { object: object.object, ino: object.ino, len: object.len }).collect())
    });
    let mut nameless: Vec<(ReplicaId, ReplicaStatus)> = Vec::new();
    for met in MergedScan::of(named, replicas(store)) {
        match met? {
            Pair::NamedOnly(named) => {
                // An object in its first write may be listed before it has reached the store.
                if !is_being_written(read, named.object)? && !never_held_anything(read, named) {
                    let problem = Problem::ObjectMissing { len: named.len };
                    report(with_path(read, named, Finding::about(ReplicaId::first(named.object), problem)));
                }
            }
            Pair::StoredOnly(replica, status) => {
                count(&mut counts, &status);
                read_through(store, replica, &status, quick, &mut counts, progress, &mut |problem| {
                    report(Finding::about(replica, problem));
                })?;
                nameless.push((replica, status));
                if nameless.len() == NAMELESS_MAX {
                    sift(read, store, &mut nameless, report)?;
                }
            }
            Pair::Both(named, replica, status) => {
                count(&mut counts, &status);
                let mut about = |problem| report(with_path(read, named, Finding::about(replica, problem)));
                if let Ok(inode) = namespace::stat_ino(read, named.ino)
                    && let Some(content) = inode.content().filter(|content| content.object == named.object)
                {
                    disagreements(content, &status).into_iter().for_each(&mut about);
                }
                read_through(store, replica, &status, quick, &mut counts, progress, &mut about)?;
            }
        }
    }
    sift(read, store, &mut nameless, report)?;
    writers_have_contents(read, store, was_repaired, report)?;
    uploads_have_contents(read, store, report)?;
    progress.step(&counts);
    Ok(counts)
}

/// All replicas of the store, in order.
fn replicas(store: &Store) -> impl Iterator<Item = Result<(ReplicaId, ReplicaStatus), CheckError>> + '_ {
    Paged::new(|after: Option<&(ReplicaId, ReplicaStatus)>| {
        Ok(store.replicas(after.map(|(replica, _)| *replica), PAGE)?)
    })
}

fn writers(read: &dyn Read) -> impl Iterator<Item = Result<WriterRecord, CheckError>> + '_ {
    Paged::new(|after: Option<&WriterRecord>| {
        Ok(namespace::writers(read, after.map(|last| (last.key, last.object)), PAGE)?)
    })
}

fn is_being_written(read: &dyn Read, object: ObjectId) -> Result<bool, CheckError> {
    for writer in writers(read) {
        if writer?.object == object {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a file was interrupted before its first byte. If the store has no space for an open, the name stays without an object.
fn never_held_anything(read: &dyn Read, named: Named) -> bool {
    named.len == 0
        && namespace::stat_ino(read, named.ino).is_ok_and(|inode| {
            inode.content().is_some_and(|content| {
                content.object == named.object && matches!(content.state, namespace::FileState::Interrupted(_))
            })
        })
}

fn count(counts: &mut Counts, status: &ReplicaStatus) {
    counts.replicas += 1;
    counts.bytes += status.len;
    match status.state {
        ReplicaState::Complete { .. } | ReplicaState::Dirty => counts.complete += 1,
        ReplicaState::Interrupted => counts.interrupted += 1,
        ReplicaState::BeingWritten { .. } => {}
    }
}

/// Reads an object to its end, and compares every page and the whole with the recorded checksums.
fn read_through(
    store: &Store,
    replica: ReplicaId,
    status: &ReplicaStatus,
    quick: bool,
    counts: &mut Counts,
    progress: &mut dyn Progress,
    about: &mut dyn FnMut(Problem),
) -> Result<(), CheckError> {
    if quick || matches!(status.state, ReplicaState::BeingWritten { .. }) {
        return Ok(());
    }
    let before = counts.bytes_read;
    let verified = store.verify(replica, &mut |bytes| {
        counts.bytes_read = before + bytes;
        progress.step(counts);
        true
    });
    match verified {
        Ok(verified) => {
            counts.bytes_read = before + verified.len;
            let read = namespace::Sums { adler32: verified.adler32, crc32c: verified.crc32c };
            if verified.len != status.len {
                about(Problem::Unreadable { why: format!("{} of {} bytes are there", verified.len, status.len) });
            } else if let ReplicaState::Complete { adler32, crc32c } = status.state {
                let recorded = namespace::Sums { adler32, crc32c };
                if recorded != read {
                    about(Problem::WholeDiffers { recorded, read });
                }
            }
        }
        // The record says that the bytes are in the journal, but the journal does not have them: it was lost, and a new one was begun.
        Err(StoreError::Journal(JournalError::NotThere { .. })) => about(Problem::ObjectMissing { len: status.len }),
        // An error of this object alone is a finding. An error of the journal or an index ends the check.
        Err(error) => match error.code() {
            ErrorCode::Checksum | ErrorCode::Damaged => about(Problem::Damaged { what: error.to_string() }),
            ErrorCode::Io | ErrorCode::NotFound => about(Problem::Unreadable { why: error.to_string() }),
            _ => return Err(error.into()),
        },
    }
    Ok(())
}

/// Reports the objects without a name that nothing else refers to either.
fn sift(
    read: &dyn Read,
    store: &Store,
    nameless: &mut Vec<(ReplicaId, ReplicaStatus)>,
    report: &mut dyn FnMut(Finding),
) -> Result<(), CheckError> {
    if nameless.is_empty() {
        return Ok(());
    }
    let mut open: HashSet<ObjectId> = nameless.iter().map(|(replica, _)| replica.object).collect();
    for writer in writers(read) {
        open.remove(&writer?.object);
    }
    let uploads = Paged::new(|after: Option<&namespace::UploadRecord>| -> Result<_, CheckError> {
        Ok(namespace::uploads(read, after.map(|last| last.upload), PAGE)?)
    });
    for upload in uploads {
        open.remove(&upload?.object);
    }
    let deletions = Paged::new(|after: Option<&namespace::DueDeletion>| -> Result<_, CheckError> {
        Ok(namespace::due_deletions(read, after.copied(), PAGE)?)
    });
    for deletion in deletions {
        open.remove(&deletion?.object);
    }
    for (replica, status) in nameless.drain(..) {
        if open.contains(&replica.object) {
            let made_at = store.provenance(replica)?.path_hint;
            let problem = Problem::Unreferenced { len: status.len, state: state_stored(&status.state), made_at };
            report(Finding::about(replica, problem));
        }
    }
    Ok(())
}

fn writers_have_contents(
    read: &dyn Read,
    store: &Store,
    was_repaired: bool,
    report: &mut dyn FnMut(Finding),
) -> Result<(), CheckError> {
    for writer in writers(read) {
        let writer = writer?;
        // The open is recorded before the start of its object, which comes with the first byte or a second later. A stop between the two loses
        // nothing. If the journal has lost records, the start of the object may be among them.
        let begun = was_repaired || store.has_begun(writer.object);
        if begun && store.status(writer.replica())?.is_none() {
            let finding = Finding::about(writer.replica(), Problem::WriterWithoutObject);
            report(Finding { path: Some(writer.path), ..finding });
        }
    }
    Ok(())
}

fn uploads_have_contents(read: &dyn Read, store: &Store, report: &mut dyn FnMut(Finding)) -> Result<(), CheckError> {
    let mut after = None;
    loop {
        let page = namespace::uploads(read, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.upload);
        for upload in page {
            let replica = ReplicaId::first(upload.object);
            // An upload with an open write was checked with its writer.
            let written = upload.state == namespace::UploadState::BeingWritten;
            if !written && store.status(replica)?.is_none() {
                let finding = Finding::about(replica, Problem::UploadWithoutObject);
                report(Finding { path: Some(upload.path), ..finding });
            }
        }
    }
}

fn with_path(read: &dyn Read, named: Named, finding: Finding) -> Finding {
    Finding { path: namespace::path_of(read, named.ino).ok(), ..finding }
}
