//! Backups and checkpoints made from the entries of another engine, and the entries of a backup for another engine.

use std::io::Write;
use std::sync::Arc;

use disk::Disk;
use journal::{Seq, StreamId};

use super::CheckpointSet;
use super::backup::{BackupHead, StreamSink, readers_of};
use super::file::{Head, Kind, Writer};
use super::merge::Merge;
use crate::KvError;
use crate::engine::EntrySource;
use crate::index::IndexConfig;

/// Writes all `entries` as a full backup of `stream`, like [`super::Backup::write_to`]. `head` says as of which record of which journal it is.
///
/// # Errors
/// Those of `entries` and `out`.
pub fn write_backup(
    out: &mut dyn Write,
    stream: StreamId,
    head: BackupHead,
    entries: &mut dyn EntrySource,
) -> Result<(), KvError> {
    let BackupHead { upto, incarnation, .. } = head;
    let head = Head { kind: Kind::Base, stream: stream.0, after: 0, upto: upto.0, incarnation };
    let mut writer = Writer::to(Box::new(StreamSink(out)), head);
    while let Some((key, value)) = entries.next()? {
        writer.push(key, value)?;
    }
    writer.finish().map(drop)
}

/// Makes the checkpoint of `stream` in the directory `dir` of `disk`, which must have none, of all `entries`. It will end at the record `upto` of the
/// journal with this `incarnation`, and is durable on return. Returns the number of keys.
///
/// # Errors
/// Those of `entries` and the disk; [`KvError::Damaged`]: a checkpoint exists already, or the new one does not read back as it was written.
pub fn place_entries(
    entries: &mut dyn EntrySource,
    stream: StreamId,
    disk: Arc<dyn Disk>,
    dir: &str,
    (upto, incarnation): (Seq, u64),
) -> Result<u64, KvError> {
    let mut set = CheckpointSet::open(disk, dir, stream, incarnation, &IndexConfig::default())?;
    if set.upto() > Seq::ZERO {
        return Err(KvError::Damaged(format!("there is a checkpoint in {dir} already")));
    }
    set.make_only(entries, upto)
}

/// The entries of the last of the backups `from`: a full one, then each later one in order.
///
/// # Errors
/// [`KvError::Damaged`]: a backup does not match its checksums, belongs to another stream, or does not follow the previous one.
pub fn backup_entries(
    from: (&dyn Disk, &[String]),
    stream: StreamId,
) -> Result<(BackupHead, impl EntrySource + use<>), KvError> {
    let (readers, last) = readers_of(from, stream)?;
    Ok((last.of_backup(), Merge::new(readers, false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chunks, OwnedEntry, read_backup};

    fn all(source: &mut dyn EntrySource) -> Vec<OwnedEntry> {
        let mut found = Vec::new();
        while let Some((key, value)) = source.next().unwrap() {
            found.push((key.to_vec(), value.unwrap().to_vec()));
        }
        found
    }

    #[test]
    fn entries_become_a_backup_and_a_checkpoint_and_come_back() {
        let temp = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(disk::RealDisk::open(temp.path()).unwrap());
        let entries: Vec<OwnedEntry> =
            (0..5000u32).map(|n| (n.to_be_bytes().to_vec(), vec![n.to_le_bytes()[0]; n as usize % 99])).collect();
        let source = || {
            let mut entries = entries.clone();
            Chunks::new(move |_| Ok(std::mem::take(&mut entries)))
        };
        let stream = StreamId::NAMESPACE;
        let head = BackupHead { after: None, upto: Seq(7), incarnation: 5 };
        let mut bytes = Vec::new();
        write_backup(&mut bytes, stream, head, &mut source()).unwrap();
        std::fs::write(temp.path().join("one"), &bytes).unwrap();
        let (found, totals) = read_backup(&*disk, "one").unwrap();
        assert_eq!((found, totals.entries), (head, 5000));
        let (found, mut back) = backup_entries((&*disk, &["one".into()]), stream).unwrap();
        assert_eq!(found, head);
        assert!(all(&mut back) == entries);
        assert!(backup_entries((&*disk, &["one".into()]), StreamId::STORE_INDEX).is_err());

        let at = (Seq(7), 5);
        assert_eq!(place_entries(&mut source(), stream, Arc::clone(&disk), "a/b", at).unwrap(), 5000);
        let again = place_entries(&mut source(), stream, Arc::clone(&disk), "a/b", at).unwrap_err();
        assert!(matches!(again, KvError::Damaged(_)), "{again}");
        let file = format!("a/b/base-{:016x}.ckpt", 7);
        assert!(std::fs::read(temp.path().join(&file)).unwrap() == bytes, "a backup is a checkpoint file");
    }
}
