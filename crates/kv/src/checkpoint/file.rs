//! One checkpoint file: sorted entries in checksummed blocks between a header and a footer
//! (`docs/reference/formats.md`, checkpoint files).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::{Access, Disk, DiskError, DiskFile, OpenOptions};
use types::{Crc32c, ErrorCode};

use crate::KvError;
use crate::batch::{KEY_MAX, VALUE_MAX, push_entry, take_entry};

const HEADER_MAGIC: [u8; 8] = *b"weirckpt";
const FOOTER_MAGIC: [u8; 8] = *b"weirckpe";
const FORMAT_VERSION: u32 = 1;
/// Feature bits that this version knows: none yet. It does not read files with others.
const FEATURES_KNOWN: u64 = 0;
const HEADER_LEN: usize = 64;
const FOOTER_LEN: usize = 64;
const BLOCK_HEADER_LEN: usize = 12;
/// A block with this many bytes of entries is closed.
const BLOCK_BYTES: usize = 64 << 10;
/// A block closes when it exceeds [`BLOCK_BYTES`], so it holds at most one more entry.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + KEY_MAX + VALUE_MAX + 16;
/// Bytes written or read at once.
const CHUNK: usize = 1 << 20;
/// Bytes between syncs: syncing hundreds of megabytes at the end would delay the journal's commits.
const SYNC_BYTES: u64 = 4 << 20;

/// The kind of a checkpoint file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// All keys as of `upto`; no deletions.
    Base,
    /// The changes of the records after `after` up to `upto`, including deletions.
    Delta,
}

/// The identity of a file's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) stream: u8,
    pub(crate) after: u64,
    pub(crate) upto: u64,
    pub(crate) incarnation: u64,
}

/// Totals, written after the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) entries: u64,
    pub(crate) deletions: u64,
    pub(crate) blocks: u64,
    /// Bytes before the footer.
    pub(crate) bytes: u64,
    /// CRC32C of all bytes before the footer.
    pub(crate) sum: u32,
}

impl Head {
    fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(&HEADER_MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.push(match self.kind {
            Kind::Base => 1,
            Kind::Delta => 2,
        });
        out.push(self.stream);
        out.extend_from_slice(&[0; 2]);
        for number in [0, self.after, self.upto, self.incarnation, 0] {
            out.extend_from_slice(&u64::to_le_bytes(number));
        }
        out.resize(HEADER_LEN - 4, 0);
        out.extend_from_slice(&Crc32c::of(&out).0.to_le_bytes());
        out
    }

    /// The outer error is damage. The inner one means an intact file from a newer weir.
    fn decode(bytes: &[u8]) -> Result<Result<Self, String>, String> {
        let mut fields = Fields(bytes);
        if fields.bytes::<8>()? != HEADER_MAGIC {
            return Err("it does not begin as a checkpoint does".into());
        }
        let version = fields.u32()?;
        let [kind, stream, ..] = fields.bytes::<4>()?;
        let features = fields.u64()?;
        let (after, upto, incarnation) = (fields.u64()?, fields.u64()?, fields.u64()?);
        check_sum(bytes, HEADER_LEN)?;
        if version != FORMAT_VERSION || features & !FEATURES_KNOWN != 0 {
            return Ok(Err(format!(
                "it has format version {version} with features {features:#x}, which is not known here"
            )));
        }
        let kind = match kind {
            1 => Kind::Base,
            2 => Kind::Delta,
            other => return Ok(Err(format!("it is of kind {other}, which is not known here"))),
        };
        Ok(Ok(Self { kind, stream, after, upto, incarnation }))
    }
}

impl Totals {
    fn encode(self, upto: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        out.extend_from_slice(&FOOTER_MAGIC);
        for number in [self.entries, self.deletions, self.blocks, self.bytes, upto] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.sum.to_le_bytes());
        out.resize(FOOTER_LEN - 4, 0);
        out.extend_from_slice(&Crc32c::of(&out).0.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<(Self, u64), String> {
        let mut fields = Fields(bytes);
        if fields.bytes::<8>()? != FOOTER_MAGIC {
            return Err("it does not end as a checkpoint does".into());
        }
        let (entries, deletions, blocks) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (bytes_before, upto, sum) = (fields.u64()?, fields.u64()?, fields.u32()?);
        check_sum(bytes, FOOTER_LEN)?;
        Ok((Self { entries, deletions, blocks, bytes: bytes_before, sum }, upto))
    }
}

fn check_sum(bytes: &[u8], len: usize) -> Result<(), String> {
    let (body, sum) = bytes.split_at_checked(len - 4).ok_or("it is too short")?;
    if Crc32c::of(body).0.to_le_bytes() == *sum { Ok(()) } else { Err("a checksum does not match".into()) }
}

/// Takes little-endian fields from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or("it is too short")?;
        self.0 = rest;
        Ok(*head)
    }
    fn u32(&mut self) -> Result<u32, String> {
        self.bytes().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Result<u64, String> {
        self.bytes().map(u64::from_le_bytes)
    }
}

/// Fails if work on unfinished files must stop.
pub(crate) fn check_cancel(cancel: &AtomicBool) -> Result<(), KvError> {
    if cancel.load(Ordering::Relaxed) {
        // Nothing is lost: the files that they would have replaced stay.
        return Err(KvError::Stopped { reason: "the server is stopping".into() });
    }
    Ok(())
}

pub(crate) fn from_disk(error: DiskError) -> KvError {
    if error.code() == ErrorCode::NoSpace { KvError::NoSpace } else { KvError::Io(error.to_string()) }
}

/// Receives the bytes of a checkpoint file in order.
pub(crate) trait Sink {
    /// Writes the next bytes.
    fn put(&mut self, bytes: &[u8]) -> Result<(), KvError>;
    /// Syncs the bytes so far, if there is a disk.
    fn sync(&mut self) -> Result<(), KvError>;
}

/// A file on this disk.
struct FileSink {
    file: Arc<dyn DiskFile>,
    at: u64,
}

impl Sink for FileSink {
    fn put(&mut self, bytes: &[u8]) -> Result<(), KvError> {
        self.file.write_at(bytes, self.at).map_err(from_disk)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), KvError> {
        self.file.sync_data().map_err(from_disk)
    }
}

impl Drop for FileSink {
    /// Drops the cache, so that the verification reads from the disk.
    fn drop(&mut self) {
        self.file.drop_cache(0, self.at);
    }
}

/// Writes one file from beginning to end.
pub(crate) struct Writer<'a> {
    out: Box<dyn Sink + 'a>,
    head: Head,
    totals: Totals,
    /// Entries of the current block.
    block: Vec<u8>,
    block_entries: u32,
    /// Bytes not yet written.
    chunk: Vec<u8>,
    last_key: Vec<u8>,
    unsynced: u64,
}

impl<'a> Writer<'a> {
    /// Creates the file, which must not exist.
    pub(crate) fn create(disk: &dyn Disk, path: &str, head: Head) -> Result<Self, KvError> {
        let file = disk.open(path, OpenOptions { access: Access::CreateNew, direct: false }).map_err(from_disk)?;
        Ok(Self::to(Box::new(FileSink { file, at: 0 }), head))
    }

    /// Writes the same bytes to any sink.
    pub(crate) fn to(out: Box<dyn Sink + 'a>, head: Head) -> Self {
        let totals = Totals::default();
        let mut writer = Self {
            out,
            head,
            totals,
            block: Vec::new(),
            block_entries: 0,
            chunk: Vec::new(),
            last_key: Vec::new(),
            unsynced: 0,
        };
        writer.chunk.extend_from_slice(&head.encode());
        writer
    }

    /// Adds an entry. Keys must rise; a base takes no deletions.
    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), KvError> {
        if key <= self.last_key.as_slice() {
            return Err(KvError::Damaged("the entries for a checkpoint are not in order".into()));
        }
        if value.is_none() {
            self.totals.deletions += 1;
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        push_entry(key, value, &mut self.block);
        self.block_entries += 1;
        self.totals.entries += 1;
        if self.block.len() >= BLOCK_BYTES { self.close_block() } else { Ok(()) }
    }

    #[allow(clippy::cast_possible_truncation)] // bounded by BLOCK_BYTES_MAX
    fn close_block(&mut self) -> Result<(), KvError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut lengths = [0; 8];
        lengths[..4].copy_from_slice(&(self.block.len() as u32).to_le_bytes());
        lengths[4..].copy_from_slice(&self.block_entries.to_le_bytes());
        let sum = Crc32c::of(&lengths).combine(Crc32c::of(&self.block), self.block.len() as u64);
        self.chunk.extend_from_slice(&lengths);
        self.chunk.extend_from_slice(&sum.0.to_le_bytes());
        self.chunk.append(&mut self.block);
        self.block_entries = 0;
        self.totals.blocks += 1;
        if self.chunk.len() >= CHUNK { self.write_chunk() } else { Ok(()) }
    }

    fn write_chunk(&mut self) -> Result<(), KvError> {
        self.out.put(&self.chunk)?;
        let len = self.chunk.len() as u64;
        self.totals.sum = Crc32c(self.totals.sum).combine(Crc32c::of(&self.chunk), len).0;
        self.totals.bytes += len;
        self.chunk.clear();
        self.unsynced += len;
        if self.unsynced >= SYNC_BYTES {
            self.out.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Writes the remaining bytes and syncs.
    pub(crate) fn finish(mut self) -> Result<Totals, KvError> {
        self.close_block()?;
        self.write_chunk()?;
        let footer = self.totals.encode(self.head.upto);
        self.out.put(&footer)?;
        self.out.sync()?;
        Ok(self.totals)
    }
}

/// Reads one file from beginning to end and checks everything.
pub(crate) struct Reader {
    file: Arc<dyn DiskFile>,
    path: String,
    pub(crate) head: Head,
    pub(crate) totals: Totals,
    /// The totals so far; equal to `totals` at the end.
    seen: Totals,
    /// Bytes of the file from `seen.bytes` on that are already in memory: `chunk[used..]`.
    chunk: Vec<u8>,
    used: usize,
    block: Vec<u8>,
    block_used: usize,
    key: (usize, usize),
    value: Option<(usize, usize)>,
    last_key: Vec<u8>,
}

impl Reader {
    /// Opens the file and checks header, footer and length.
    ///
    /// # Errors
    /// `Damaged`; `Unsupported`: a newer weir wrote it; errors of the disk.
    pub(crate) fn open(disk: &dyn Disk, path: &str) -> Result<Self, KvError> {
        let file = disk.open(path, OpenOptions { access: Access::Read, direct: false }).map_err(from_disk)?;
        let damaged = |what: String| KvError::Damaged(format!("checkpoint {path}: {what}"));
        let len = file.len().map_err(from_disk)?;
        let least = (HEADER_LEN + FOOTER_LEN) as u64;
        if len < least {
            return Err(damaged(format!("its length is {len} bytes, {least} is the least")));
        }
        let mut header = [0; HEADER_LEN];
        let mut footer = [0; FOOTER_LEN];
        let footer_at = len - FOOTER_LEN as u64;
        let read = file.read_at(&mut header, 0).map_err(from_disk)? == HEADER_LEN
            && file.read_at(&mut footer, footer_at).map_err(from_disk)? == FOOTER_LEN;
        if !read {
            return Err(damaged("it was cut while it was read".into()));
        }
        let head = Head::decode(&header).map_err(damaged)?;
        let head = head.map_err(|what| KvError::Unsupported(format!("checkpoint {path}: {what}")))?;
        let (totals, upto) = Totals::decode(&footer).map_err(damaged)?;
        if totals.bytes != footer_at || upto != head.upto {
            return Err(damaged("header, footer and length do not belong together".into()));
        }
        let seen = Totals { bytes: HEADER_LEN as u64, sum: Crc32c::of(&header).0, ..Totals::default() };
        Ok(Self {
            file,
            path: path.to_owned(),
            head,
            totals,
            seen,
            chunk: Vec::new(),
            used: 0,
            block: Vec::new(),
            block_used: 0,
            key: (0, 0),
            value: None,
            last_key: Vec::new(),
        })
    }

    fn damaged(&self, what: &str) -> KvError {
        KvError::Damaged(format!("checkpoint {} near byte {}: {what}", self.path, self.seen.bytes))
    }

    /// Moves to the next entry. Returns false at the end, after checking all totals.
    pub(crate) fn advance(&mut self) -> Result<bool, KvError> {
        while self.block_used >= self.block.len() {
            if self.seen.bytes >= self.totals.bytes {
                return if self.seen == self.totals {
                    Ok(false)
                } else {
                    Err(self.damaged("its totals do not match its entries"))
                };
            }
            self.read_block()?;
        }
        let mut rest = self.block.get(self.block_used..).unwrap_or_default();
        let before = rest.len();
        let (key, value) = match take_entry(&mut rest) {
            Ok(entry) => entry,
            Err(what) => return Err(self.damaged(what)),
        };
        if key <= self.last_key.as_slice() {
            return Err(self.damaged("its keys are not in order"));
        }
        if value.is_none() && self.head.kind == Kind::Base {
            return Err(self.damaged("a base holds a deletion"));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        let end = self.block_used + before - rest.len();
        let value_start = end - value.map_or(0, <[u8]>::len);
        self.key = (value_start - key.len(), value_start);
        self.value = value.map(|_| (value_start, end));
        self.seen.entries += 1;
        self.seen.deletions += u64::from(self.value.is_none());
        self.block_used = end;
        Ok(true)
    }

    /// The entry to which [`Reader::advance`] moved.
    pub(crate) fn entry(&self) -> (&[u8], Option<&[u8]>) {
        let part = |(from, to)| self.block.get(from..to).unwrap_or_default();
        (part(self.key), self.value.map(part))
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.entry().0
    }

    fn read_block(&mut self) -> Result<(), KvError> {
        let mut header = [0; BLOCK_HEADER_LEN];
        self.take(BLOCK_HEADER_LEN, |bytes| header.copy_from_slice(bytes))?;
        let [l0, l1, l2, l3, e0, e1, e2, e3, s0, s1, s2, s3] = header;
        let len = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        if len == 0 || len > BLOCK_BYTES_MAX {
            return Err(self.damaged("a block's length is out of bounds"));
        }
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        self.take(len, |bytes| block.extend_from_slice(bytes))?;
        let sum = Crc32c::of(&[l0, l1, l2, l3, e0, e1, e2, e3]).combine(Crc32c::of(&block), len as u64);
        if sum.0 != u32::from_le_bytes([s0, s1, s2, s3]) {
            return Err(self.damaged("a block's checksum does not match"));
        }
        self.seen.blocks += 1;
        self.block = block;
        self.block_used = 0;
        Ok(())
    }

    /// Passes the next `len` bytes to `with`, reading more of the file as needed.
    fn take(&mut self, len: usize, with: impl FnOnce(&[u8])) -> Result<(), KvError> {
        if self.chunk.len() - self.used < len {
            self.chunk.drain(..self.used);
            self.used = 0;
            let have = self.chunk.len();
            let at = self.seen.bytes + have as u64;
            let left = usize::try_from(self.totals.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
            let want = left.min(CHUNK.max(len - have));
            self.chunk.resize(have + want, 0);
            let read = match self.chunk.get_mut(have..) {
                Some(space) => self.file.read_at(space, at).map_err(from_disk)?,
                None => 0,
            };
            self.chunk.truncate(have + read);
        }
        let Some(bytes) = self.chunk.get(self.used..self.used + len) else {
            return Err(self.damaged("it ends in the middle of a block"));
        };
        with(bytes);
        self.seen.sum = Crc32c(self.seen.sum).combine(Crc32c::of(bytes), len as u64).0;
        self.seen.bytes += len as u64;
        self.used += len;
        Ok(())
    }

    /// Reads to the end, or until `cancel` is set.
    pub(crate) fn verify(mut self, cancel: &AtomicBool) -> Result<(Head, Totals), KvError> {
        while self.advance()? {
            check_cancel(cancel)?;
        }
        Ok((self.head, self.totals))
    }
}
