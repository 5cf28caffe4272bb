//! Checks the namespace against itself: every rule between keys, in bounded memory. `weir fsck` and the tests use it.

use std::collections::BTreeSet;

use kv::Read;
use types::{GroupId, Ino, NodeId, ObjectId, PrincipalId, SnapshotEpoch, StoreId, UploadId};

use crate::codec::BadValue;
use crate::ids::{UnusedNumbers, untaken};
use crate::quota::count::UsageCount;
use crate::scan::in_pages;
use crate::tree::inode::{Content, FileState, Inode, Kind, WriterKey};
use crate::tree::node::{
    Dentry, Dir, InodeValue, decode_dentry, decode_inode_value, get_dentry, get_inode_value, get_record, locate,
};
use crate::{
    EndedWriter, HiddenAttributes, NsError, ObjectRecord, TreeRecord, UploadRecord, UploadState, WriterKind,
    WriterRecord, keys, object_record, principals, quota, totals,
};

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The key, escaped.
    pub key: String,
    /// What is wrong, in plain words.
    pub what: String,
    /// The directory, if only its totals are wrong. [`crate::RecountTotals`] repairs them.
    pub totals_of: Option<Ino>,
    /// Whether only the kept usage of a tree, user or group is wrong. [`crate::RecountUsage`] repairs it.
    pub is_usage: bool,
}

/// Counts of the checked records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckCounts {
    /// Directories.
    pub directories: u64,
    /// Names of files and symbolic links.
    pub names: u64,
    /// Writers.
    pub writers: u64,
    /// Uploads.
    pub uploads: u64,
    /// Objects (`B`).
    pub objects: u64,
    /// Entries of the deletion queue.
    pub deletions: u64,
    /// Named users and groups.
    pub principals: u64,
    /// All keys.
    pub keys: u64,
}

struct Check<'a> {
    read: &'a dyn Read,
    report: &'a mut dyn FnMut(Finding),
    counts: CheckCounts,
    untaken: UnusedNumbers,
    /// The numbers of principals that are not given yet begin here.
    unnamed: PrincipalId,
    /// The snapshot epoch now.
    epoch: SnapshotEpoch,
    /// Sums over the entries of the directory that the check is reading.
    sums: Option<Sums>,
    /// Inode numbers that hold the attributes of invisible files. There is one for each kept upload with attributes.
    hidden: BTreeSet<Ino>,
    /// The usage of trees, as far as it is counted.
    usage: UsageCount,
}

struct Sums {
    dir: Ino,
    entries: u64,
    bytes: u64,
}

/// Reads everything once, looks up the other key where two keys must agree, and calls `report` for each broken rule. Only the engine causes an error;
/// damaged records are findings.
pub fn check(read: &dyn Read, report: &mut dyn FnMut(Finding)) -> Result<CheckCounts, NsError> {
    let untaken = untaken(read)?;
    // A mark that cannot be read is reported together with its key.
    let epoch = crate::format::snapshot_epoch(read).ok().flatten().unwrap_or_default();
    // Counts that cannot be read are reported at the end.
    let unnamed = principals::table::counts(read).map_or(PrincipalId(u32::MAX), |counts| counts.next);
    let counts = CheckCounts::default();
    let (hidden, usage) = (BTreeSet::new(), UsageCount::default());
    let mut check = Check { read, report, counts, untaken, unnamed, epoch, sums: None, hidden, usage };
    in_pages(read, &[], &[0xff; 8], |key, value| {
        check.counts.keys += 1;
        match check.entry(key, value) {
            Err(NsError::Kv(error)) => return Err(NsError::Kv(error)),
            Err(error) => check.found(key, error.to_string()),
            Ok(()) => {}
        }
        Ok(())
    })?;
    check.finish_sums()?;
    check.finish_principals()?;
    check.finish_usage()?;
    if get_record(read, Ino::ROOT).is_err() {
        check.found(&keys::inode(Ino::ROOT), "the root directory is missing".into());
    }
    Ok(check.counts)
}

impl Check<'_> {
    fn found(&mut self, key: &[u8], what: String) {
        (self.report)(Finding { key: key.escape_ascii().to_string(), what, totals_of: None, is_usage: false });
    }

    fn found_totals(&mut self, key: &[u8], dir: Ino, what: String) {
        (self.report)(Finding { key: key.escape_ascii().to_string(), what, totals_of: Some(dir), is_usage: false });
    }

    fn must(&mut self, holds: bool, key: &[u8], what: &str) {
        if !holds {
            self.found(key, what.into());
        }
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), NsError> {
        let short = || BadValue::Damaged("the key is too short").at(key);
        let first = || keys::number_at(key, 1).ok_or_else(short);
        let second = || keys::number_at(key, 9).ok_or_else(short);
        match key.first() {
            Some(b'A') => self.total(key, Ino(first()?)),
            Some(b'B') => self.object(key, GroupId(first()?), ObjectId(second()?), value),
            Some(b'D') => self.dentry(key, Ino(first()?), value),
            Some(b'E') => self.principal(key, value),
            Some(b'G') => {
                crate::groups::group::decode_group(GroupId(first()?), value).map(drop).map_err(|bad| bad.at(key))
            }
            Some(b'H') => {
                let held = locate(self.read, Ino(second()?))?.is_some_and(|located| located.inode.holders > 0);
                self.must(held, key, "a hold of an inode that does not know of it");
                Ok(())
            }
            Some(b'I') => self.inode(key, Ino(first()?), value),
            Some(b'J') => {
                let id = key.get(1..).and_then(|id| id.try_into().ok()).ok_or_else(short)?;
                crate::groups::tokens::decode_token(id, value).map(drop).map_err(|bad| bad.at(key))
            }
            Some(b'K') => self.stripe(key, ObjectId(first()?), value),
            Some(b'L') => self.link(key, Ino(first()?), Ino(second()?)),
            Some(b'M') => {
                crate::groups::members::decode_member(NodeId(first()?), value).map(drop).map_err(|bad| bad.at(key))
            }
            Some(b'N') => {
                crate::groups::placing::decode_node(NodeId(first()?), value).map(drop).map_err(|bad| bad.at(key))
            }
            Some(b'O') => self.missing(key, GroupId(first()?), ObjectId(second()?), value),
            Some(b'P') => self.policy(key, Ino(first()?), value),
            Some(b'Q') => quota::record::decode_at(key, value).map(drop),
            Some(b'S') => {
                crate::groups::stores::decode_store(StoreId(first()?), value).map(drop).map_err(|bad| bad.at(key))
            }
            Some(b'T') => self.tree(key, types::TreeId(first()?)),
            Some(b'U') => self.upload(key, UploadId(first()?), value),
            Some(b'W') => self.writer(key, value),
            Some(b'X') => {
                let ino = Ino(first()?);
                let there = locate(self.read, ino)?.is_some() || self.hidden.contains(&ino);
                self.must(there, key, "an attribute of an inode that is not there");
                Ok(())
            }
            Some(b'Y') => {
                let number = WriterKey(first()?);
                EndedWriter::decode(number, value).map(drop).map_err(|bad| bad.at(key))
            }
            Some(b'Z') => self.deletion(key, value),
            Some(b'C' | b'F' | b'R') => Ok(()),
            _ => {
                self.found(key, "a key of a kind that this version does not know".into());
                Ok(())
            }
        }
    }

    fn total(&mut self, key: &[u8], dir: Ino) -> Result<(), NsError> {
        let is_dir = matches!(get_inode_value(self.read, dir)?, Some(InodeValue::Record(inode)) if inode.is_dir());
        self.must(is_dir, key, "totals of a directory that is not there");
        // A directory with entries is compared after its last entry has been added up.
        if is_dir && crate::tree::rmdir::is_empty(self.read, dir)? {
            match totals(self.read, dir) {
                Ok(sum) if sum.entries == 0 && sum.bytes == 0 => {}
                Ok(_) => self.found_totals(key, dir, "an empty directory's totals are not zero".into()),
                Err(error @ NsError::Damaged { .. }) => self.found_totals(key, dir, error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn finish_sums(&mut self) -> Result<(), NsError> {
        if let Some(sums) = self.sums.take() {
            let key = keys::totals(sums.dir);
            match totals(self.read, sums.dir) {
                Ok(kept) if kept.entries == sums.entries && kept.bytes == sums.bytes => {}
                Ok(kept) => {
                    let what = format!(
                        "totals say {} entries and {} bytes; there are {} and {}",
                        kept.entries, kept.bytes, sums.entries, sums.bytes
                    );
                    self.found_totals(&key, sums.dir, what);
                }
                Err(NsError::Kv(error)) => return Err(error.into()),
                Err(error @ NsError::Damaged { .. }) => self.found_totals(&key, sums.dir, error.to_string()),
                Err(error) => self.found(&key, error.to_string()),
            }
        }
        Ok(())
    }

    fn principal(&mut self, key: &[u8], value: &[u8]) -> Result<(), NsError> {
        self.counts.principals += u64::from(principals::check::is_by_number(key));
        for what in principals::check::broken_rules(self.read, key, value, self.unnamed)? {
            self.found(key, what.into());
        }
        Ok(())
    }

    fn finish_principals(&mut self) -> Result<(), NsError> {
        let key = principals::table::counts_key();
        match principals::table::counts(self.read) {
            Ok(counts) => {
                let agrees = u64::from(counts.named) == self.counts.principals;
                self.must(agrees, &key, "the count of named users and groups is wrong");
            }
            Err(NsError::Kv(error)) => return Err(error.into()),
            Err(error) => self.found(&key, error.to_string()),
        }
        Ok(())
    }

    fn finish_usage(&mut self) -> Result<(), NsError> {
        let (usage, report) = (std::mem::take(&mut self.usage), &mut *self.report);
        let mut found = |key: &[u8], what| {
            report(Finding { key: key.escape_ascii().to_string(), what, totals_of: None, is_usage: true });
        };
        let is_counted = crate::format::is_usage_counted(self.read).unwrap_or(true);
        if is_counted { quota::recount::compare(self.read, usage, &mut found) } else { Ok(()) }
    }

    fn dentry(&mut self, key: &[u8], dir: Ino, value: &[u8]) -> Result<(), NsError> {
        if self.sums.as_ref().is_none_or(|sums| sums.dir != dir) {
            self.finish_sums()?;
            self.sums = Some(Sums { dir, entries: 0, bytes: 0 });
            let is_dir = matches!(get_inode_value(self.read, dir)?, Some(InodeValue::Record(inode)) if inode.is_dir());
            self.must(is_dir, key, "an entry in a directory that is not there");
        }
        let name = key.get(9..).unwrap_or(b"");
        self.must(types::FileName::new(name).is_ok(), key, "an entry with a name that cannot be");
        let mut len = 0;
        match decode_dentry(value).map_err(|bad| bad.at(key))? {
            Dentry::Record(inode) => {
                self.counts.names += 1;
                let back = get_inode_value(self.read, inode.ino)?;
                let points_here = back == Some(InodeValue::Back { parent: dir, name: name.to_vec() });
                self.must(points_here, key, "the inode does not point back to this entry");
                self.must(inode.nlink == 1, key, "a record in an entry must have one link");
                len = inode.content().map_or(0, |content| content.len);
                self.usage.entry(self.read, dir, &inode)?;
                self.record(key, &inode)?;
            }
            Dentry::Pointer(ino) => {
                self.counts.names += 1;
                let record = get_record(self.read, ino)?;
                self.must(!record.is_dir(), key, "an entry for a file points to a directory");
                let linked = self.read.get(&keys::link(ino, dir, name))?.is_some();
                self.must(linked, key, "the file does not know of this link");
                len = record.content().map_or(0, |content| content.len);
            }
            Dentry::Directory(pointer) => {
                let record = get_record(self.read, pointer.ino)?;
                let agrees = match &record.kind {
                    Kind::Directory(there) => {
                        there.parent == dir && there.name == name && pointer == Dir::new(&record, there)
                    }
                    _ => false,
                };
                self.must(agrees, key, "the directory's record and its entry do not agree");
            }
        }
        if let Some(sums) = &mut self.sums {
            sums.entries += 1;
            sums.bytes += len;
        }
        Ok(())
    }

    fn inode(&mut self, key: &[u8], ino: Ino, value: &[u8]) -> Result<(), NsError> {
        self.must(ino.0 < self.untaken.ino, key, "an inode number above those that were taken");
        match decode_inode_value(value).map_err(|bad| bad.at(key))? {
            InodeValue::Back { parent, name } => {
                let there = get_dentry(self.read, parent, &name)?;
                let held = matches!(there, Some(Dentry::Record(inode)) if inode.ino == ino);
                self.must(held, key, "the entry that it names does not hold it");
            }
            InodeValue::Record(inode) => {
                self.must(inode.ino == ino, key, "the record has another number");
                match &inode.kind {
                    Kind::Directory(dir) => {
                        self.counts.directories += 1;
                        if ino != Ino::ROOT {
                            let entry = get_dentry(self.read, dir.parent, &dir.name)?;
                            let named = entry.is_some_and(|entry| entry.ino() == ino);
                            self.must(named, key, "a directory without its name");
                        }
                    }
                    _ => {
                        let links = crate::tree::node::links_of(self.read, ino)?.len() as u64;
                        self.must(u64::from(inode.nlink) == links, key, "the count of links is wrong");
                        self.must(inode.nlink > 0 || inode.holders > 0, key, "neither a name nor a holder");
                    }
                }
                self.usage.inode(self.read, &inode)?;
                self.record(key, &inode)?;
            }
        }
        Ok(())
    }

    /// Checks the rules for a record, wherever it is stored.
    fn record(&mut self, key: &[u8], inode: &Inode) -> Result<(), NsError> {
        if let Kind::File(content) = &inode.kind {
            self.content(key, inode.ino, content)?;
        }
        self.must(inode.changed_epoch <= self.epoch, key, "it was changed in a snapshot epoch that has not begun");
        let attributes = crate::tree::xattr::count(self.read, inode.ino)?;
        self.must(inode.xattrs == attributes, key, "the count of attributes is wrong");
        Ok(())
    }

    fn content(&mut self, key: &[u8], ino: Ino, content: &Content) -> Result<(), NsError> {
        let is_dealt_out = crate::stripe_of(self.read, content.object)?.is_some();
        self.must(is_dealt_out == (content.group == GroupId::STRIPED), key, "its group and its stripe do not agree");
        self.must(content.object.0 < self.untaken.object, key, "an object number above those that were taken");
        if let FileState::Open(by) | FileState::Updating(by) = content.state {
            let writer = WriterRecord::get(self.read, by, content.object)?;
            let writes = writer.is_some_and(|writer| writer.ino == ino);
            self.must(writes, key, "the writer that it names is not there");
        }
        let record = object_record(self.read, content.group, content.object)?;
        match (content.state, record) {
            (FileState::Open(_), None) => {}
            (FileState::Open(_), Some(_)) => self.found(key, "a first writer's object is listed as committed".into()),
            (_, None) => self.found(key, "its object is not listed".into()),
            (_, Some(record)) => {
                let agrees = record.ino == ino && record.len == content.len && record.generation == content.generation;
                let updating = matches!(content.state, FileState::Updating(_));
                self.must(agrees || (updating && record.ino == ino), key, "its object is listed otherwise");
            }
        }
        Ok(())
    }

    fn link(&mut self, key: &[u8], ino: Ino, parent: Ino) -> Result<(), NsError> {
        let name = key.get(17..).unwrap_or(b"");
        let named = get_dentry(self.read, parent, name)? == Some(Dentry::Pointer(ino));
        self.must(named, key, "a link without its entry");
        Ok(())
    }

    fn policy(&mut self, key: &[u8], dir: Ino, value: &[u8]) -> Result<(), NsError> {
        self.must(key.len() == 9, key, "more in the key of a policy than its directory");
        let is_dir = matches!(get_inode_value(self.read, dir)?, Some(InodeValue::Record(inode)) if inode.is_dir());
        self.must(is_dir, key, "a policy of a directory that is not there");
        crate::trees::policy::decode(value).map(drop).map_err(|bad| bad.at(key))
    }

    fn tree(&mut self, key: &[u8], tree: types::TreeId) -> Result<(), NsError> {
        let root = TreeRecord::get(self.read, tree)?.map(|record| record.root).unwrap_or_default();
        let record = get_record(self.read, root)?;
        let agrees = matches!(&record.kind, Kind::Directory(dir) if dir.tree == tree);
        self.must(agrees, key, "the tree's root does not belong to it");
        Ok(())
    }

    fn object(&mut self, key: &[u8], group: GroupId, object: ObjectId, value: &[u8]) -> Result<(), NsError> {
        self.counts.objects += 1;
        let record = ObjectRecord::decode(group, object, value).map_err(|bad| bad.at(key))?;
        let located = locate(self.read, record.ino)?;
        let content = located.as_ref().and_then(|located| located.inode.content());
        let used = content.is_some_and(|content| content.object == object && content.group == group);
        self.must(used, key, "a listed object that its inode does not name");
        Ok(())
    }

    fn writer(&mut self, key: &[u8], value: &[u8]) -> Result<(), NsError> {
        self.counts.writers += 1;
        let writer = WriterRecord::read(key, value)?;
        self.usage.reserved(writer.reservation.as_ref());
        self.must(writer.object.0 < self.untaken.object, key, "an object number above those that were taken");
        if let WriterKind::Upload(upload) = writer.kind {
            let record = UploadRecord::get(self.read, upload)?;
            let agrees = record.is_some_and(|record| {
                record.state == UploadState::BeingWritten
                    && record.writer == writer.key
                    && record.object == writer.object
            });
            self.must(agrees, key, "the upload that it writes is not open");
            return Ok(());
        }
        let located = locate(self.read, writer.ino)?;
        let content = located.as_ref().and_then(|located| located.inode.content());
        if let Some(content) = content.filter(|content| content.object == writer.object) {
            let expected = match writer.kind {
                WriterKind::New => FileState::Open(writer.key),
                _ => FileState::Updating(writer.key),
            };
            self.must(content.state == expected, key, "the file that it writes does not say so");
        }
        Ok(())
    }

    fn upload(&mut self, key: &[u8], upload: UploadId, value: &[u8]) -> Result<(), NsError> {
        self.counts.uploads += 1;
        let record = UploadRecord::decode(upload, value).map_err(|bad| bad.at(key))?;
        self.usage.reserved(record.reservation.as_ref());
        let writer = WriterRecord::get(self.read, record.writer, record.object)?.is_some();
        let being_written = record.state == UploadState::BeingWritten;
        self.must(writer == being_written, key, "whether somebody writes it and its state do not agree");
        self.must(being_written != record.deadline.is_some(), key, "its state and its deadline do not agree");
        if let Some(HiddenAttributes { at, count }) = record.attributes {
            // The attributes come later: `X` sorts after `U`.
            self.hidden.insert(at);
            self.must(crate::tree::xattr::count(self.read, at)? == count, key, "the count of attributes is wrong");
            let free = locate(self.read, at)?.is_none() && record.replaces.is_none();
            self.must(free, key, "its attributes stand under the number of a file that is there");
        }
        Ok(())
    }

    fn deletion(&mut self, key: &[u8], value: &[u8]) -> Result<(), NsError> {
        self.counts.deletions += 1;
        let due = crate::groups::deletion::decode(key, value)?;
        let listed = object_record(self.read, due.group, due.object)?.is_some();
        self.must(!listed, key, "an object is queued for deletion and listed as in use");
        let upload = UploadRecord::get(self.read, UploadId(due.object.0))?.is_some();
        self.must(!upload, key, "an object is queued for deletion and kept as an upload");
        Ok(())
    }

    fn stripe(&mut self, key: &[u8], object: ObjectId, value: &[u8]) -> Result<(), NsError> {
        let record = crate::StripeRecord::decode(value).map_err(|bad| bad.at(key))?;
        let upload = UploadRecord::get(self.read, UploadId(object.0))?.map(|upload| upload.placed == GroupId::STRIPED);
        let listed = object_record(self.read, GroupId::STRIPED, object)?;
        // Before its first commit, an object is listed only with its file and its writer.
        self.must(upload != Some(false), key, "the stripe of an object that lies on a group of stores");
        let is_whole = match listed {
            Some(listed) => {
                let inode = locate(self.read, listed.ino)?.map(|located| located.inode);
                inode
                    .and_then(|inode| inode.content().copied())
                    .is_some_and(|content| content.state == FileState::Complete)
            }
            None => false,
        };
        for ino in record.units {
            let unit = locate(self.read, ino)?.map(|located| located.inode);
            let content = unit.as_ref().and_then(Inode::content).copied();
            let is_held = unit.is_some_and(|unit| unit.nlink == 0 && unit.holders == 1);
            self.must(is_held && content.is_some(), key, "a stripe unit is not there, or belongs to another file too");
            let state = content.map(|content| content.state);
            self.must(
                !is_whole || state == Some(FileState::Complete),
                key,
                "a complete file has a stripe unit that is incomplete",
            );
        }
        Ok(())
    }

    fn missing(&mut self, key: &[u8], group: GroupId, object: ObjectId, value: &[u8]) -> Result<(), NsError> {
        let stores = crate::groups::placing::decode_stores(value).map_err(|bad| bad.at(key))?;
        // The record may name a store that has left the group ([`crate::DropMissingReplicas`]).
        self.must(!stores.is_empty(), key, "a missing replica without a store");
        let listed = object_record(self.read, group, object)?.is_some();
        let upload = UploadRecord::get(self.read, UploadId(object.0))?.is_some();
        self.must(listed || upload, key, "a missing replica of an object that no store has");
        Ok(())
    }
}
