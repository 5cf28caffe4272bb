//! Backups of an index: the contents of its checkpoints as of one record of the journal, in the format of a checkpoint
//! file.
//!
//! A backup is made from the journal and files derived from it, never from the engine. The checkpoint is first brought
//! up to the record. Its files are then merged into one: all of them into a base, or those since an earlier backup into
//! a delta.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use disk::Disk;
use journal::{Journal, Seq, StreamId};

use super::file::{Head, Kind, Reader, Sink, Writer, check_cancel};
use super::merge::Merge;
use super::{CheckpointSet, Member};
use crate::KvError;
use crate::engine::EntrySource;
use crate::index::{IndexConfig, JournaledIndex, Shared, from_journal};

/// The range that a backup covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupHead {
    /// `None`: a full backup. Otherwise it has the changes after this record.
    pub after: Option<Seq>,
    /// The record as of which the backup was taken.
    pub upto: Seq,
    /// The journal's incarnation.
    pub incarnation: u64,
}

/// The size of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupTotals {
    /// Number of keys, including deleted ones.
    pub entries: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// CRC32C of all bytes except the footer, which has its own.
    pub crc32c: u32,
}

/// A backup that is ready to write.
pub struct Backup {
    head: Head,
    content: Merge,
    cancel: Arc<AtomicBool>,
    /// Keeps the files that are read.
    _pin: Arc<()>,
}

impl JournaledIndex {
    /// Prepares a backup as of now. It contains everything appended before this call, which is made durable first.
    /// `since` names the end of an earlier backup of the same index ([`BackupHead::upto`] and
    /// [`BackupHead::incarnation`]). The backup then has only the later changes, if they can still be told apart.
    /// Appends and readers continue meanwhile.
    ///
    /// # Errors
    /// Those of the journal and the checkpoint.
    pub fn backup(&self, since: Option<(Seq, u64)>) -> Result<Backup, KvError> {
        self.shared.backup(since)
    }
}

impl Shared {
    fn backup(&self, since: Option<(Seq, u64)>) -> Result<Backup, KvError> {
        let upto = self.journal.appended();
        self.journal.sync_to(upto).map_err(from_journal)?;
        let mut set = self.checkpoints.lock();
        self.checkpoint_up_to(&mut set, upto)?;
        let incarnation = self.journal.incarnation();
        let since = since.filter(|(seq, of)| *of == incarnation && *seq <= set.upto()).map(|(seq, _)| seq);
        set.backup(since)
    }
}

impl CheckpointSet {
    fn backup(&self, since: Option<Seq>) -> Result<Backup, KvError> {
        let newer = |seq: Seq| -> Vec<Member> {
            self.chain.iter().filter(|member| member.head.upto > seq.0).cloned().collect()
        };
        // A newer base no longer shows what was removed since.
        let part = since
            .map(|seq| (seq, newer(seq)))
            .filter(|(_, members)| members.iter().all(|member| member.head.kind == Kind::Delta));
        let (kind, after, members) = match part {
            Some((seq, members)) => (Kind::Delta, seq, members),
            None => (Kind::Base, Seq::ZERO, self.chain.clone()),
        };
        let content = self.merge(&members, kind == Kind::Delta)?;
        let head =
            Head { kind, stream: self.stream.0, after: after.0, upto: self.upto().0, incarnation: self.incarnation };
        Ok(Backup { head, content, cancel: Arc::clone(&self.cancel), _pin: Arc::clone(&self.pins) })
    }
}

impl Head {
    pub(super) fn of_backup(self) -> BackupHead {
        let after = (self.kind == Kind::Delta).then_some(Seq(self.after));
        BackupHead { after, upto: Seq(self.upto), incarnation: self.incarnation }
    }
}

/// A stream that receives the bytes of a backup.
pub(super) struct StreamSink<'a>(pub(super) &'a mut dyn Write);

impl Sink for StreamSink<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), KvError> {
        self.0.write_all(bytes).map_err(|error| KvError::Io(format!("the backup cannot be written: {error}")))
    }

    fn sync(&mut self) -> Result<(), KvError> {
        self.0.flush().map_err(|error| KvError::Io(format!("the backup cannot be written: {error}")))
    }
}

impl Backup {
    /// The range that the backup covers.
    #[must_use]
    pub fn head(&self) -> BackupHead {
        self.head.of_backup()
    }

    /// Writes the backup: a checkpoint file (docs/reference/formats.md). Use [`read_backup`] to verify that the bytes
    /// have arrived.
    ///
    /// # Errors
    /// Errors of `out`; [`KvError::Damaged`]: a checkpoint does not match its checksums; [`KvError::Stopped`].
    pub fn write_to(mut self, out: &mut dyn Write) -> Result<(), KvError> {
        let mut writer = Writer::to(Box::new(StreamSink(out)), self.head);
        while let Some((key, value)) = self.content.next()? {
            check_cancel(&self.cancel)?;
            writer.push(key, value)?;
        }
        writer.finish().map(drop)
    }
}

/// Reads the backup in the file `path` of `disk` completely and compares all checksums.
///
/// # Errors
/// [`KvError::Damaged`]; [`KvError::Unsupported`]: a newer weir wrote it.
pub fn read_backup(disk: &dyn Disk, path: &str) -> Result<(BackupHead, BackupTotals), KvError> {
    let (head, totals) = Reader::open(disk, path)?.verify(&AtomicBool::new(false))?;
    let bytes = disk.len_of(path).map_err(super::file::from_disk)?.unwrap_or(0);
    Ok((head.of_backup(), BackupTotals { entries: totals.entries, bytes, crc32c: totals.sum }))
}

/// The journal of the backed-up index. It has the records that followed the backup.
pub struct BackupJournal<'a> {
    /// The journal.
    pub log: &'a Journal,
    /// The last record to restore.
    pub until: Seq,
}

/// Makes the checkpoint of `stream` in the directory `dir` of `disk`, which must have none. It combines the backups
/// `from` (a full one, then each later one in order) with the records in `followed`. It will end at the journal's
/// record `upto`, and is durable on return. Returns the number of keys.
///
/// # Errors
/// [`KvError::Damaged`]: a backup does not match its checksums, belongs to another stream, or does not follow the
/// previous one; the journal is another one or lacks records; or a checkpoint exists already.
pub fn restore_backups(
    from: (&dyn Disk, &[String]),
    followed: Option<BackupJournal<'_>>,
    stream: StreamId,
    disk: Arc<dyn Disk>,
    dir: &str,
    upto: Seq,
) -> Result<u64, KvError> {
    let (readers, last) = readers_of(from, stream)?;
    let (incarnation, stands_at) = (last.incarnation, Seq(last.upto));
    let config = IndexConfig::default();
    let mut set = CheckpointSet::open(disk, dir, stream, incarnation, &config)?;
    if set.upto() > Seq::ZERO {
        return Err(KvError::Damaged(format!("there is a checkpoint in {dir} already")));
    }
    let mut content = Merge::new(readers, false);
    let Some(BackupJournal { log, until }) = followed.filter(|followed| followed.until > stands_at) else {
        return set.make_only(&mut content, upto);
    };
    let has_all = log.oldest() <= stands_at.next() && until <= log.durable() && until <= upto;
    if log.incarnation() != incarnation || !has_all {
        return Err(KvError::Damaged(format!(
            "the journal does not have all records from {} to {until}",
            stands_at.next()
        )));
    }
    set.make_only(&mut content, stands_at)?;
    while set.upto() < until {
        set.add_delta(log, until, config.delta_bytes_max)?;
    }
    let mut content = set.merge(&set.chain, false)?;
    set.make_only(&mut content, upto)
}

/// The readers of a full backup and of each later one, newest first, and the head of the newest.
pub(super) fn readers_of(
    (disk, paths): (&dyn Disk, &[String]),
    stream: StreamId,
) -> Result<(Vec<Reader>, Head), KvError> {
    let mut readers = Vec::new();
    let mut at = None;
    for path in paths {
        let reader = Reader::open(disk, path)?;
        let follows = match at {
            None => reader.head.kind == Kind::Base,
            Some(at) => reader.head.kind == Kind::Delta && reader.head.after == at,
        };
        if !follows || reader.head.stream != stream.0 {
            return Err(KvError::Damaged(format!("the backup {path} does not follow the one before it")));
        }
        at = Some(reader.head.upto);
        readers.push(reader);
    }
    let Some(last) = readers.last() else { return Err(KvError::Damaged("there is no backup to be restored".into())) };
    let head = last.head;
    readers.reverse();
    Ok((readers, head))
}

impl CheckpointSet {
    /// Makes the only file of the checkpoint. Returns the number of keys.
    pub(super) fn make_only(&mut self, content: &mut dyn EntrySource, upto: Seq) -> Result<u64, KvError> {
        let made = self.make(Kind::Base, Seq::ZERO, upto, &mut |writer| {
            while let Some((key, value)) = content.next()? {
                writer.push(key, value)?;
            }
            Ok(())
        })?;
        let entries = made.totals.entries;
        self.replace(0, made)?;
        Ok(entries)
    }
}
