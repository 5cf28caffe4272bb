//! Checkpoints: the contents of an index as sorted, checksummed files. They are made from the journal, never from the
//! engine that they must be able to replace.
//!
//! A *base* holds everything up to a record. Each *delta* after it holds the changes of the next records. A file counts
//! only after it was synced, read back, compared and renamed to its final name, and the directory was synced. Only then
//! are the files that it replaces removed.

mod backup;
mod entries;
mod file;
mod merge;
mod run;

pub use backup::{Backup, BackupHead, BackupJournal, BackupTotals, read_backup, restore_backups};
pub use entries::{backup_entries, place_entries, write_backup};

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use disk::{Disk, Removal};
use journal::{Journal, Seq, StreamId};

use crate::engine::EntrySource;
use crate::index::{IndexConfig, from_journal};
use crate::{KvError, Read, ScanOrder, batch};
use file::{Head, Kind, Reader, Totals, Writer, check_cancel, from_disk};
use merge::Merge;

/// Bytes of an entry in memory besides key and value, while a delta is made.
const ENTRY_OVERHEAD: usize = 96;

/// A file of the chain.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Member {
    name: String,
    head: Head,
    totals: Totals,
}

/// The files that together hold the contents up to a record.
pub(crate) struct CheckpointSet {
    disk: Arc<dyn Disk>,
    dir: String,
    stream: StreamId,
    incarnation: u64,
    /// How to remove files that are no longer needed.
    removal: Removal,
    /// Set when the server stops: unfinished files are abandoned.
    pub(crate) cancel: Arc<AtomicBool>,
    /// A base or nothing, then deltas without gaps.
    chain: Vec<Member>,
    /// Files outside the chain that it does not cover: their predecessors are missing.
    pub(crate) stranded: Vec<String>,
    /// Invalid files, renamed.
    pub(crate) damaged: Vec<String>,
    /// A file of the chain turned out to be invalid or unreadable after it was accepted. Nothing is restored from the
    /// chain, and the journal is not trimmed by it.
    pub(crate) rotten: Option<String>,
    /// A reader of the chain's files that does not hold this set holds a pin. Replaced files are not removed meanwhile.
    pins: Arc<()>,
    /// Replaced files that were pinned. They are removed when no reader is left.
    gone: Vec<String>,
    #[cfg(test)]
    pub(crate) planted: Option<crate::tests::PlantedBug>,
    #[cfg(test)]
    pub(crate) before_verify: crate::tests::BeforeVerify,
}

impl CheckpointSet {
    /// Opens the directory `dir`, makes it if needed, and removes leftovers of interrupted work.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &str,
        stream: StreamId,
        incarnation: u64,
        config: &IndexConfig,
    ) -> Result<Self, KvError> {
        disk.create_dir_all(dir).map_err(from_disk)?;
        let mut folder = dir;
        while !folder.is_empty() {
            // The name of each directory above must be durable too.
            folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
            disk.sync_dir(folder).map_err(from_disk)?;
        }
        let mut set = Self {
            disk,
            dir: dir.to_owned(),
            stream,
            incarnation,
            removal: config.removal,
            cancel: Arc::default(),
            chain: Vec::new(),
            stranded: Vec::new(),
            damaged: Vec::new(),
            rotten: None,
            pins: Arc::default(),
            gone: Vec::new(),
            #[cfg(test)]
            planted: config.planted,
            #[cfg(test)]
            before_verify: config.before_verify.clone(),
        };
        let mut names: Vec<String> = Vec::new();
        for entry in set.disk.list(dir).map_err(from_disk)? {
            if !entry.is_dir {
                names.push(entry.name);
            }
        }
        // Examine all files before touching any: files of a newer weir stay unchanged.
        let mut found = Vec::new();
        for name in names.iter().filter(|name| name.ends_with(".ckpt")) {
            match Reader::open(&*set.disk, &set.path(name)) {
                Err(KvError::Damaged(_)) => found.push((name.clone(), None)),
                opened => found.push((name.clone(), Some(opened?))),
            }
        }
        for name in names.iter().filter(|name| name.ends_with(".tmp")) {
            set.disk.remove(&set.path(name)).map_err(from_disk)?;
        }
        let mut members = Vec::new();
        for (name, reader) in found {
            match reader {
                Some(reader) if reader.head.stream == stream.0 => {
                    members.push(Member { name, head: reader.head, totals: reader.totals });
                }
                Some(_) => set.stranded.push(name),
                None => set.set_aside(&name)?,
            }
        }
        set.chain = longest_chain(&members);
        let upto = set.upto();
        for member in members {
            if set.chain.contains(&member) {
                continue;
            }
            if member.head.upto <= upto.0 {
                set.disk.remove(&set.path(&member.name)).map_err(from_disk)?;
            } else {
                set.stranded.push(member.name);
            }
        }
        // Names found here may not be durable yet. From now on they decide how the journal is trimmed.
        set.disk.sync_dir(dir).map_err(from_disk)?;
        Ok(set)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    fn set_aside(&mut self, name: &str) -> Result<(), KvError> {
        let aside = format!("{name}.damaged");
        self.disk.rename(&self.path(name), &self.path(&aside)).map_err(from_disk)?;
        self.damaged.push(aside);
        Ok(())
    }

    /// The files hold everything up to this record; 0 if they hold nothing.
    pub(crate) fn upto(&self) -> Seq {
        Seq(self.chain.last().map_or(0, |member| member.head.upto))
    }

    /// The journal from which the last file was made.
    pub(crate) fn incarnation(&self) -> u64 {
        self.chain.last().map_or(self.incarnation, |member| member.head.incarnation)
    }

    /// The contents, sorted, without deletions.
    pub(crate) fn content(&self) -> Result<impl EntrySource + use<>, KvError> {
        self.merge(&self.chain, false)
    }

    fn merge(&self, members: &[Member], deletions: bool) -> Result<Merge, KvError> {
        let readers = members.iter().rev().map(|member| Reader::open(&*self.disk, &self.path(&member.name)));
        Ok(Merge::new(readers.collect::<Result<_, _>>()?, deletions))
    }

    /// Reads all files completely. Returns the number of entries.
    pub(crate) fn verify_all(&self) -> Result<u64, KvError> {
        self.chain.iter().map(|member| self.verify(member)).sum()
    }

    fn verify(&self, member: &Member) -> Result<u64, KvError> {
        let (head, totals) = Reader::open(&*self.disk, &self.path(&member.name))?.verify(&self.cancel)?;
        if (head, totals) != (member.head, member.totals) {
            return Err(KvError::Damaged(format!("checkpoint {}: it was changed", member.name)));
        }
        Ok(totals.entries)
    }

    /// Handles an `error` from reading the chain or writing a file from it: if the chain itself is to blame, marks it
    /// as rotten.
    pub(crate) fn note_rot(&mut self, error: &KvError) {
        if matches!(error, KvError::Damaged(_) | KvError::Io(_))
            && let Err(KvError::Damaged(what) | KvError::Io(what)) = self.verify_all()
        {
            self.rotten = Some(what);
        }
    }

    /// Takes all files out of use because they are invalid. They are kept under other names.
    pub(crate) fn set_all_aside(&mut self) -> Result<(), KvError> {
        for member in std::mem::take(&mut self.chain) {
            self.set_aside(&member.name)?;
        }
        self.disk.sync_dir(&self.dir).map_err(from_disk)
    }

    /// Writes, syncs, reads back, compares, renames, syncs the directory.
    fn make(
        &self,
        kind: Kind,
        after: Seq,
        upto: Seq,
        fill: &mut dyn FnMut(&mut Writer<'_>) -> Result<(), KvError>,
    ) -> Result<Member, KvError> {
        let name = match kind {
            Kind::Base => format!("base-{:016x}.ckpt", upto.0),
            Kind::Delta => format!("delta-{:016x}-{:016x}.ckpt", after.0, upto.0),
        };
        let head = Head { kind, stream: self.stream.0, after: after.0, upto: upto.0, incarnation: self.incarnation };
        let temporary = self.path(&format!("{name}.tmp"));
        if self.disk.len_of(&temporary).map_err(from_disk)?.is_some() {
            self.disk.remove(&temporary).map_err(from_disk)?;
        }
        let made = self.make_temporary(&temporary, head, fill);
        if made.is_err() {
            // Best effort: the next opening removes it as well.
            let _ = self.disk.remove(&temporary);
        }
        let totals = made?;
        self.disk.rename(&temporary, &self.path(&name)).map_err(from_disk)?;
        self.disk.sync_dir(&self.dir).map_err(from_disk)?;
        Ok(Member { name, head, totals })
    }

    fn make_temporary(
        &self,
        temporary: &str,
        head: Head,
        fill: &mut dyn FnMut(&mut Writer<'_>) -> Result<(), KvError>,
    ) -> Result<Totals, KvError> {
        let mut writer = Writer::create(&*self.disk, temporary, head)?;
        fill(&mut writer)?;
        let totals = writer.finish()?;
        #[cfg(test)]
        if let Some(before_verify) = &self.before_verify.0 {
            before_verify(temporary);
        }
        #[cfg(test)]
        if self.planted == Some(crate::tests::PlantedBug::SkipCheckpointVerify) {
            return Ok(totals);
        }
        let found = Reader::open(&*self.disk, temporary)?.verify(&self.cancel)?;
        if found != (head, totals) {
            return Err(KvError::Damaged(format!("checkpoint {temporary} does not read back as it was written")));
        }
        Ok(totals)
    }

    /// Makes one delta of the records after [`CheckpointSet::upto`] up to `target`, or fewer if there are many.
    fn add_delta(&mut self, journal: &Journal, target: Seq, bytes_max: usize) -> Result<(), KvError> {
        let after = self.upto();
        let mut upto = target;
        let mut changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let mut weight = 0;
        let mut failed = None;
        let mut last = after;
        let replayed = journal.replay(self.stream, after, &mut |seq, _, payload| {
            if seq > target {
                return ControlFlow::Break(());
            }
            if weight >= bytes_max.max(1) {
                upto = last;
                return ControlFlow::Break(());
            }
            match check_cancel(&self.cancel).and_then(|()| collect(payload, &mut changes)) {
                Ok(more) => weight += more,
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            last = seq;
            ControlFlow::Continue(())
        });
        if let Some(error) = failed {
            return Err(error);
        }
        replayed.map_err(from_journal)?;
        let member = self.make(Kind::Delta, after, upto, &mut |writer| {
            changes.iter().try_for_each(|(key, value)| writer.push(key, value.as_deref()))
        })?;
        self.chain.push(member);
        Ok(())
    }

    /// Adds an empty delta, for a stream that has no records up to `target`.
    fn add_empty_delta(&mut self, target: Seq) -> Result<(), KvError> {
        let member = self.make(Kind::Delta, self.upto(), target, &mut |_| Ok(()))?;
        self.chain.push(member);
        Ok(())
    }

    /// Merges if the deltas outgrow the base (all files into a new base) or are too many (among themselves). Returns
    /// whether it did.
    fn merge_if_due(&mut self, deltas_max: usize) -> Result<bool, KvError> {
        let has_base = self.chain.first().is_some_and(|member| member.head.kind == Kind::Base);
        let (base, deltas) = self.chain.split_at(usize::from(has_base));
        let base_bytes: u64 = base.iter().map(|member| member.totals.bytes).sum();
        let delta_bytes: u64 = deltas.iter().map(|member| member.totals.bytes).sum();
        let (Some(first), Some(last)) = (deltas.first(), deltas.last()) else { return Ok(false) };
        let (after, upto) = (Seq(first.head.after), Seq(last.head.upto));
        if delta_bytes > base_bytes {
            let made = self.make_merged(Kind::Base, Seq::ZERO, upto, &self.chain)?;
            self.replace(0, made)?;
        } else if deltas.len() > deltas_max {
            let made = self.make_merged(Kind::Delta, after, upto, deltas)?;
            self.replace(usize::from(has_base), made)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn make_merged(&self, kind: Kind, after: Seq, upto: Seq, members: &[Member]) -> Result<Member, KvError> {
        let deletions = kind == Kind::Delta;
        #[cfg(test)]
        let deletions = deletions && self.planted != Some(crate::tests::PlantedBug::LoseTombstoneInMerge);
        let mut merge = self.merge(members, deletions)?;
        self.make(kind, after, upto, &mut |writer| {
            while let Some((key, value)) = merge.next()? {
                check_cancel(&self.cancel)?;
                writer.push(key, value)?;
            }
            Ok(())
        })
    }

    /// Replaces the members from `from` on by `made`, which has their contents, and removes their files.
    fn replace(&mut self, from: usize, made: Member) -> Result<(), KvError> {
        let mut old = self.chain.split_off(from);
        old.retain(|member| member.name != made.name);
        self.chain.push(made);
        let gone = |member: &Member| self.path(&format!("{}.gone.tmp", member.name));
        for member in &old {
            self.disk.rename(&self.path(&member.name), &gone(member)).map_err(from_disk)?;
        }
        self.disk.sync_dir(&self.dir).map_err(from_disk)?;
        let old: Vec<String> = old.iter().map(gone).collect();
        self.gone.extend(old);
        self.remove_gone()
    }

    /// Removes replaced files. They are truncated first, so this waits until no reader uses them.
    fn remove_gone(&mut self) -> Result<(), KvError> {
        if Arc::strong_count(&self.pins) > 1 {
            return Ok(());
        }
        while let Some(path) = self.gone.pop() {
            self.removal.remove(&*self.disk, &path).map_err(from_disk)?;
        }
        Ok(())
    }

    /// Makes a base from a state that is complete as of `upto`, when checkpoints were lost and the engine was not.
    /// Keeps invalid files of the chain under other names.
    pub(crate) fn renew_from(&mut self, state: &dyn Read, upto: Seq) -> Result<(), KvError> {
        let made = self.make(Kind::Base, Seq::ZERO, upto, &mut |writer| {
            let mut result = Ok(());
            state.scan(&[], &[batch::RESERVED], ScanOrder::Ascending, &mut |key, value| {
                result = writer.push(key, Some(value));
                if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            result
        })?;
        if self.rotten.is_some() {
            let is_bad = |member: &Member| {
                member.name != made.name && matches!(self.verify(member), Err(KvError::Damaged(_) | KvError::Io(_)))
            };
            let (bad, rest) = self.chain.iter().cloned().partition(is_bad);
            self.chain = rest;
            let bad: Vec<Member> = bad;
            bad.iter().try_for_each(|member| self.set_aside(&member.name))?;
        }
        self.replace(0, made)?;
        self.rotten = None;
        Ok(())
    }
}

/// Applies a record to `changes`. Returns an upper bound of the bytes added.
fn collect(payload: &[u8], changes: &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<usize, KvError> {
    let mut weight = 0;
    for entry in batch::decode(payload)? {
        let (key, value) = entry?;
        weight += key.len() + value.map_or(0, <[u8]>::len) + ENTRY_OVERHEAD;
        match changes.get_mut(key) {
            Some(slot) => *slot = value.map(<[u8]>::to_vec),
            None => {
                changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
            }
        }
    }
    Ok(weight)
}

/// The base (or none) and deltas that reach furthest without a gap. Prefers the fewest files.
fn longest_chain(members: &[Member]) -> Vec<Member> {
    let bases = members.iter().filter(|member| member.head.kind == Kind::Base);
    let starts = bases.map(|base| vec![base.clone()]).chain([Vec::new()]);
    starts
        .map(|mut chain: Vec<Member>| {
            loop {
                let at = chain.last().map_or(0, |member| member.head.upto);
                let next = members
                    .iter()
                    .filter(|member| {
                        member.head.kind == Kind::Delta && member.head.after == at && member.head.upto > at
                    })
                    .max_by_key(|member| member.head.upto);
                match next {
                    Some(member) => chain.push(member.clone()),
                    None => return chain,
                }
            }
        })
        .max_by_key(|chain| (chain.last().map_or(0, |member| member.head.upto), std::cmp::Reverse(chain.len())))
        .unwrap_or_default()
}
