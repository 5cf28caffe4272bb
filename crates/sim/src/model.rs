//! What clients were told, and therefore which bytes must exist.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use namespace::Access;
use types::{Adler32, Crc32c};

use crate::message::Bytes;
use crate::settings::Settings;

/// A violated rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Violation {
    /// The settings of the run.
    pub settings: Settings,
    /// The time in seconds of true time.
    pub at_s: String,
    /// The number of the event.
    pub event: u64,
    /// The violated rule.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, at_s, event, what } = self;
        write!(f, "seed {} at {at_s} s, event {event}: {what}; replay: {}", settings.seed, settings.command())
    }
}

/// The state of a file, as its client knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileStage {
    /// A client writes it.
    Making,
    /// Its close was acknowledged.
    Closed,
    /// Its client has asked to remove it.
    Removed,
    /// Its client vanished during the write.
    Vanished,
    /// Its client was told that bytes may be lost, or that it cannot continue.
    Abandoned,
}

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) stage: FileStage,
    /// The acknowledged bytes.
    acked: Vec<u8>,
    /// All writes that were ever sent, in order, and whether each was acknowledged.
    sent: Vec<(Bytes, bool)>,
    /// The bytes that no crash can undo, and the first later write that may overwrite them.
    synced: (Vec<u8>, usize),
    /// The file was closed once, so gaps in it are zeros.
    was_closed: bool,
    /// All replicas with its last change are damaged, which nobody had found when the change began. Then nobody can finish the change or repair the file.
    pub(crate) is_hopeless: bool,
    /// A change of it was asked for, and no store was named for it yet.
    pub(crate) is_asked_for: bool,
    /// The number of events that can lose unsynced bytes, when the write of this file began.
    pub(crate) losses_before: u64,
    /// The owner, group, mode and ACL after the last acknowledged change of them. `None`: nobody has changed them, or the outcome is unknown.
    pub(crate) access: Option<Access>,
}

/// The bytes that a reader may see, as of the start of the read.
#[derive(Clone, Debug)]
pub(crate) struct Glimpse {
    file: usize,
    acked: Vec<u8>,
    synced: (Vec<u8>, usize),
    from: usize,
    was: FileStage,
    /// The file was closed once.
    was_closed: bool,
}

impl Glimpse {
    /// The least number of bytes that the reader must see. For a file that was never closed, these are the synced bytes before the first gap.
    fn least(&self, of: &File) -> usize {
        match self.was {
            FileStage::Making | FileStage::Vanished if !self.was_closed => contiguous(&of.sent[..self.synced.1]),
            _ => self.acked.len(),
        }
    }
}

impl File {
    /// Checks that each byte of `there` comes from a write or is a gap, and that all synced bytes are there.
    fn is_of_it(&self, there: &[u8], (synced, from): &(Vec<u8>, usize)) -> Result<(), String> {
        let is_one_of = |sent: &[(Bytes, bool)], at: usize, byte: u8| {
            sent.iter().any(|(bytes, _)| {
                let location =
                    (at as u64).checked_sub(bytes.offset).and_then(|location| usize::try_from(location).ok());
                location.and_then(|location| bytes.bytes.get(location)) == Some(&byte)
            })
        };
        // A gap before written bytes reads as zeros.
        let is_wrong = |at: usize, byte: u8| byte != 0 && !is_one_of(&self.sent, at, byte);
        if let Some(at) = there.iter().enumerate().position(|(at, byte)| is_wrong(at, *byte)) {
            return Err(format!("{}: byte {at} of what is there was written by nobody", self.path));
        }
        let before = if self.was_closed { synced.len() } else { contiguous(&self.sent[..*from]) };
        for (at, byte) in synced[..before.min(synced.len())].iter().enumerate() {
            let is_later = |there: &u8| is_one_of(&self.sent[*from..], at, *there);
            if there.get(at) != Some(byte) && !there.get(at).is_some_and(is_later) {
                return Err(format!(
                    "{}: byte {at} was {byte} and synced, and {:?} is there",
                    self.path,
                    there.get(at)
                ));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) files: Vec<File>,
    pub(crate) by_path: BTreeMap<String, usize>,
    /// Power failures and disk errors so far.
    pub(crate) losses: u64,
    pub(crate) violation: Option<String>,
}

impl Model {
    pub(crate) fn begin(&mut self, path: String) -> usize {
        let file = self.files.len();
        self.by_path.insert(path.clone(), file);
        let losses_before = self.losses;
        self.files.push(File {
            path,
            stage: FileStage::Making,
            acked: Vec::new(),
            sent: Vec::new(),
            synced: (Vec::new(), 0),
            was_closed: false,
            is_hopeless: false,
            is_asked_for: false,
            losses_before,
            access: None,
        });
        file
    }

    pub(crate) fn begin_update(&mut self, file: usize) {
        (self.files[file].stage, self.files[file].losses_before) = (FileStage::Making, self.losses);
        self.files[file].is_asked_for = true;
    }

    /// Whether no write of it was ever acknowledged.
    pub(crate) fn is_untouched(&self, file: usize) -> bool {
        self.files[file].acked.is_empty()
    }

    /// Records a write and returns its number.
    pub(crate) fn send(&mut self, file: usize, bytes: &Bytes) -> usize {
        let sent = &mut self.files[file].sent;
        sent.push((bytes.clone(), false));
        sent.len() - 1
    }

    /// The offset and length of a write.
    pub(crate) fn location(&self, file: usize, number: usize) -> (u64, usize) {
        let (bytes, _) = &self.files[file].sent[number];
        (bytes.offset, bytes.bytes.len())
    }

    /// Whether these bytes come from this write or a later one.
    pub(crate) fn is_written(&self, file: usize, number: usize, there: &[u8]) -> bool {
        let sent = &self.files[file].sent[number..];
        let Some(((bytes, _), later)) = sent.split_first() else { return false };
        let is_later = |(at, byte): (usize, &u8)| {
            later.iter().any(|(later, _)| {
                let location = (bytes.offset + at as u64).checked_sub(later.offset);
                location.and_then(|location| later.bytes.get(usize::try_from(location).ok()?)) == Some(byte)
            })
        };
        let others = there.iter().enumerate().filter(|(at, byte)| bytes.bytes.get(*at) != Some(byte));
        there.len() == bytes.bytes.len() && others.into_iter().all(is_later)
    }

    pub(crate) fn ack(&mut self, file: usize, number: usize) {
        let file = &mut self.files[file];
        let (bytes, is_acked) = &mut file.sent[number];
        *is_acked = true;
        put(&mut file.acked, bytes);
    }

    /// A sync or a close was acknowledged. All writes sent before it are acknowledged.
    pub(crate) fn sync(&mut self, file: usize) {
        let file = &mut self.files[file];
        file.synced = (file.acked.clone(), file.sent.len());
    }

    pub(crate) fn close(&mut self, file: usize) {
        self.sync(file);
        let closed = &mut self.files[file];
        (closed.stage, closed.was_closed) = (FileStage::Closed, true);
        if closed.sent.iter().any(|(_, is_acked)| !is_acked) {
            self.complain("a close was acknowledged before a write");
        }
    }

    pub(crate) fn give_up(&mut self, file: usize, why: &str) {
        let losses = self.losses;
        let given = &mut self.files[file];
        given.stage = FileStage::Abandoned;
        if losses == given.losses_before {
            let what = format!("{} was abandoned ({why}), and no machine had restarted since its opening", given.path);
            self.complain(&what);
        }
    }

    /// The client of a file that nobody can change any more ends its work.
    pub(crate) fn end_hopeless(&mut self, file: usize) {
        self.files[file].stage = FileStage::Abandoned;
    }

    pub(crate) fn complain(&mut self, what: &str) {
        self.violation.get_or_insert_with(|| what.to_owned());
    }

    pub(crate) fn glimpse(&self, file: usize) -> Glimpse {
        let of = &self.files[file];
        let from = of.sent.iter().position(|(_, is_acked)| !is_acked).unwrap_or(of.sent.len());
        let (acked, synced) = (of.acked.clone(), of.synced.clone());
        Glimpse { file, acked, synced, from, was: of.stage, was_closed: of.was_closed }
    }

    /// Compares the bytes read with those that a reader may see. Returns `false` if there was nothing to compare.
    pub(crate) fn compare(&mut self, glimpse: &Glimpse, read: &[u8]) -> bool {
        let file = &self.files[glimpse.file];
        let is_abandoned = file.stage == FileStage::Abandoned || glimpse.was == FileStage::Abandoned;
        // A power failure destroys unsynced bytes of an open file. All stores of a file may be removed as lost.
        if is_abandoned || glimpse.was == FileStage::Making && self.losses != file.losses_before {
            let synced = if is_abandoned { &(Vec::new(), 0) } else { &glimpse.synced };
            if let Err(what) = file.is_of_it(read, synced) {
                self.complain(&format!("({:?}, after a loss) {what}", glimpse.was));
            }
            return true;
        }
        let since = &file.sent[glimpse.from..];
        let end = since.iter().map(|(bytes, _)| end_of(bytes)).max().unwrap_or(0).max(glimpse.acked.len());
        let mut what = None;
        let least = glimpse.least(file);
        if read.len() < least || read.len() > end {
            what = Some(format!("{} bytes, of {least} that are to be seen at least and {end} sent", read.len()));
        }
        for (at, byte) in read.iter().enumerate() {
            let is_it = |bytes: &Bytes| {
                let location =
                    (at as u64).checked_sub(bytes.offset).and_then(|location| usize::try_from(location).ok());
                location.and_then(|location| bytes.bytes.get(location)) == Some(byte)
            };
            let before = glimpse.acked.get(at).copied().unwrap_or(0);
            if before != *byte && !since.iter().any(|(bytes, _)| is_it(bytes)) {
                what.get_or_insert_with(|| format!("byte {at} is {byte}, was {before}, and nobody wrote that since"));
                break;
            }
        }
        if let Some(what) = what {
            let what = format!("{} ({:?}) reads wrongly: {what}", file.path, glimpse.was);
            self.complain(&what);
        }
        true
    }

    pub(crate) fn remove(&mut self, file: usize) {
        self.files[file].stage = FileStage::Removed;
    }

    /// A quota has refused an open. `is_first`: no earlier request can have begun the open write, so a file that was there stays as it was.
    pub(crate) fn refuse(&mut self, file: usize, is_first: bool) {
        let refused = &mut self.files[file];
        refused.stage = if is_first && refused.was_closed { FileStage::Closed } else { FileStage::Vanished };
        refused.is_asked_for = false;
    }

    pub(crate) fn vanish(&mut self, file: usize) {
        self.files[file].stage = FileStage::Vanished;
    }

    /// Checks the bytes kept of a file whose client vanished. All of them come from a write, and include all synced bytes. Unless a machine
    /// has restarted, they also include all acknowledged bytes before the first gap.
    pub(crate) fn kept(&self, file: usize, kept: &[u8]) -> Result<(), String> {
        let of = &self.files[file];
        of.is_of_it(kept, &of.synced)?;
        let end = contiguous(&of.sent) as u64;
        if of.losses_before == self.losses && (kept.len() as u64) < end {
            return Err(format!("{}: {} bytes are kept, and {end} were acknowledged", of.path, kept.len()));
        }
        // No byte that a client writes is 0.
        let end = usize::try_from(end).unwrap_or(0).min(kept.len());
        if of.losses_before == self.losses
            && let Some(at) = kept[..end].iter().position(|byte| *byte == 0)
        {
            return Err(format!("{}: byte {at} is gone, and {end} without a gap were acknowledged", of.path));
        }
        Ok(())
    }

    /// The length and checksums of a closed file.
    pub(crate) fn whole(&self, file: usize) -> cluster::replication::ObjectDigest {
        let acked = &self.files[file].acked;
        cluster::replication::ObjectDigest {
            len: acked.len() as u64,
            crc32c: Crc32c::of(acked),
            adler32: Adler32::of(acked),
        }
    }

    pub(crate) fn content(&self, file: usize) -> &[u8] {
        &self.files[file].acked
    }
}

/// The length of the acknowledged writes up to the first gap.
fn contiguous(sent: &[(Bytes, bool)]) -> usize {
    let mut acked: Vec<(usize, usize)> = sent
        .iter()
        .filter(|(_, acked)| *acked)
        .map(|(bytes, _)| (usize::try_from(bytes.offset).unwrap_or(0), end_of(bytes)))
        .collect();
    acked.sort_unstable();
    acked.iter().fold(0, |end, (from, to)| if *from <= end { end.max(*to) } else { end })
}

fn end_of(bytes: &Bytes) -> usize {
    usize::try_from(bytes.offset).unwrap_or(0) + bytes.bytes.len()
}

fn put(into: &mut Vec<u8>, bytes: &Bytes) {
    let start = usize::try_from(bytes.offset).unwrap_or(0);
    if into.len() < end_of(bytes) {
        into.resize(end_of(bytes), 0);
    }
    into[start..start + bytes.bytes.len()].copy_from_slice(&bytes.bytes);
}

/// The bytes of write `seed` at `offset`. They identify both.
pub(crate) fn bytes(seed: u64, offset: u64, len: usize) -> Bytes {
    let byte = |at: u64| {
        let mixed = (offset + at) ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        u8::try_from(mixed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56).unwrap_or(0) | 1
    };
    let bytes: Arc<[u8]> = (0..len as u64).map(byte).collect();
    Bytes { offset, bytes }
}
