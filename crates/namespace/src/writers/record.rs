//! `W` and `Y`: the records of a client that writes, and of one whose open write has ended.

use kv::Txn;
use types::{
    Adler32, BootGeneration, BootId, ClientIdentity, Crc32c, GroupId, InSyncReplica, Ino, NsPath, ObjectId, Placement,
    ReplicaId, SessionId, StoreId, Timestamp, UploadId,
};

use crate::codec::{BadValue, Decoder, Encoder, field_u64};
use crate::planted::{self, Bug};
use crate::quota::charge::{Reservation, release};
use crate::{NsError, Read, Sums, WriterKey, WriterToken, keys};

/// The kind of an open write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriterKind {
    /// Writes a new file, visible as it grows.
    New,
    /// Changes a complete file in place.
    Update,
    /// Writes an object that is not visible yet.
    Upload(UploadId),
}

/// `W`: an open write. The commit or the interrupted mark deletes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriterRecord {
    /// The first half of the key.
    pub key: WriterKey,
    /// The object being written.
    pub object: ObjectId,
    /// Each re-open raises it. A handle with a lower epoch is fenced.
    pub epoch: u32,
    /// The kind of the open write.
    pub kind: WriterKind,
    /// The inode. For an upload, the one that it will replace or create.
    pub ino: Ino,
    /// The directory that held the file at the open, where a lookup starts. The file's name there is the last one of `path`. 0: unknown.
    pub parent: Ino,
    /// The run of the server to which it is attached.
    pub session: SessionId,
    /// The boot whose kernel holds its unsynced bytes.
    pub boot: BootId,
    /// The client that writes.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
    /// The length that the client announced, in bytes.
    pub expected_len: Option<u64>,
    /// When it was first opened.
    pub opened: Timestamp,
    /// For an update: the earlier checksums of the file, in case nothing is changed.
    pub sums_before: Option<Sums>,
    /// The group of the object, and the in-sync replicas.
    pub placement: Placement,
    /// In a cluster: the client has gone, and the replicas are being ended without it. They keep only the bytes up to the first gap, so the client
    /// cannot return any more.
    pub is_ending: bool,
    /// What it has reserved from quotas.
    pub reservation: Option<Reservation>,
}

impl WriterRecord {
    /// The token for [`crate::Commit`] and [`crate::Interrupt`].
    #[must_use]
    pub fn token(&self) -> WriterToken {
        WriterToken { key: self.key, object: self.object, epoch: self.epoch }
    }

    /// Whether this client opened it under this path.
    #[must_use]
    pub fn is_of(&self, client: &ClientIdentity, path: &NsPath) -> bool {
        self.client == *client && path.is_of_file(&self.path)
    }

    /// The length that it may reach before it must reserve more ([`crate::Reserve`]). `base` is the file's committed length. `None`: any length.
    #[must_use]
    pub fn may_reach(&self, base: u64) -> Option<u64> {
        let bytes = self.reservation?.bytes?;
        // Of an upload, all bytes are reserved.
        Some(if matches!(self.kind, WriterKind::Upload(_)) { bytes } else { base.saturating_add(bytes) })
    }

    /// The replica on a single store.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        ReplicaId::first(self.object)
    }

    /// The primary, in a cluster. A striped file has none.
    #[must_use]
    pub fn primary(&self) -> Option<InSyncReplica> {
        self.placement.in_sync.first().copied()
    }
}

/// An open write as an error names it.
#[must_use]
pub fn named_open_write(object: ObjectId) -> String {
    format!("the open write of object {:016x}", object.0)
}

/// How a writer ended, if its client may not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriterEnd {
    /// Marked interrupted.
    Interrupted,
    /// Completed by the server when the grace period ended.
    Completed,
    /// Dropped, or continued by another client.
    Dropped,
    /// Its commit was refused, and it is kept as an upload.
    Refused,
}

/// `Y`: an ended writer. The record keeps a client that recovers late from writing into the object that is visible now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedWriter {
    /// The key.
    pub key: WriterKey,
    /// Its object.
    pub object: ObjectId,
    /// How it ended.
    pub how: WriterEnd,
    /// When the record expires.
    pub until: Timestamp,
    /// The client.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
    /// The boot in which it wrote: in a later one, the machine may have forgotten what it acknowledged.
    pub boot: Option<BootId>,
}

/// Of an ended writer.
const TAG_BOOT: u8 = 0x01;

const TAG_EXPECTED_LEN: u8 = 0x01;

const TAG_SUMS_BEFORE: u8 = 0x02;

/// A reader that does not know it could not tell which stores have the bytes.
const TAG_PLACEMENT: u8 = 0x80;

/// A reader that does not know it could let the client go on.
const TAG_ENDING: u8 = 0x81;

/// A reader that does not know it would leave the reservation behind.
const TAG_RESERVATION: u8 = 0x82;

/// Where numbers begin in the record of a writer, in bytes.
pub(crate) mod at {
    /// The inode.
    pub(crate) const INO: u32 = 6;
    /// The directory that held the file at the open.
    pub(crate) const PARENT: u32 = 14;
    /// The upload.
    pub(crate) const UPLOAD: u32 = 22;
}

impl WriterRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(128 + self.path.len());
        let (kind, upload) = match self.kind {
            WriterKind::New => (1, 0),
            WriterKind::Update => (2, 0),
            WriterKind::Upload(upload) => (3, upload.0),
        };
        out.u8(kind);
        out.u32(self.epoch);
        out.u64(self.ino.0);
        out.u64(self.parent.0);
        out.u64(upload);
        out.u64(self.session.0);
        out.0.extend_from_slice(&self.boot.0.to_be_bytes());
        out.i64(self.opened.0);
        out.client(&self.client);
        out.bytes(&self.path);
        if let Some(len) = self.expected_len {
            out.tag_u64(TAG_EXPECTED_LEN, len);
        }
        if let Some(sums) = self.sums_before {
            out.tag_u64(TAG_SUMS_BEFORE, u64::from(sums.adler32.0) << 32 | u64::from(sums.crc32c.0));
        }
        if self.placement != Placement::single_node() {
            out.tag(TAG_PLACEMENT, &encode_placement(&self.placement));
        }
        if self.is_ending {
            out.tag(TAG_ENDING, &[]);
        }
        if let Some(reservation) = &self.reservation {
            out.tag(TAG_RESERVATION, &reservation.encode());
        }
        out.0
    }

    fn decode(key: WriterKey, object: ObjectId, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "a writer")?;
        let kind = from.u8()?;
        let epoch = from.u32()?;
        let (ino, parent) = (Ino(from.u64()?), Ino(from.u64()?));
        let upload = UploadId(from.u64()?);
        let kind = match kind {
            1 => WriterKind::New,
            2 => WriterKind::Update,
            3 => WriterKind::Upload(upload),
            _ => return Err(BadValue::Damaged("it has an unknown kind of writer")),
        };
        let session = SessionId(from.u64()?);
        let boot = from.boot()?;
        let opened = Timestamp(from.i64()?);
        let client = from.client()?;
        let path = from.path()?.to_vec();
        let (mut expected_len, mut sums_before, mut placement) = (None, None, Placement::single_node());
        let (mut is_ending, mut reservation) = (false, None);
        from.tags(|tag, field| match tag {
            TAG_EXPECTED_LEN => field_u64(field).map(|len| expected_len = Some(len)).map(|()| true),
            TAG_SUMS_BEFORE => field_sums(field).map(|sums| sums_before = Some(sums)).map(|()| true),
            TAG_PLACEMENT => decode_placement(field).map(|placed| placement = placed).map(|()| true),
            TAG_RESERVATION => Reservation::decode(field).map(|found| reservation = Some(found)).map(|()| true),
            TAG_ENDING if field.is_empty() => {
                is_ending = true;
                Ok(true)
            }
            _ => Ok(false),
        })?;
        Ok(Self {
            key,
            object,
            epoch,
            kind,
            ino,
            parent,
            session,
            boot,
            client,
            path,
            expected_len,
            opened,
            sums_before,
            placement,
            is_ending,
            reservation,
        })
    }

    /// Decodes the key and value of a scan.
    pub(crate) fn read(key: &[u8], value: &[u8]) -> Result<Self, NsError> {
        let (writer, object) = Self::at(key)?;
        Self::decode(writer, object, value).map_err(|error| error.at(key))
    }

    /// Decodes the key.
    pub(crate) fn at(key: &[u8]) -> Result<(WriterKey, ObjectId), NsError> {
        let bad = || BadValue::Damaged("the key of a writer has a wrong length").at(key);
        let first = keys::number_at(key, 1).ok_or_else(bad)?;
        let second = keys::number_at(key, 9).ok_or_else(bad)?;
        Ok((WriterKey(first), ObjectId(second)))
    }

    pub(crate) fn get(read: &dyn Read, key: WriterKey, object: ObjectId) -> Result<Option<Self>, NsError> {
        let full = keys::writer(key, object);
        read.get(&full)?.map(|value| Self::decode(key, object, &value).map_err(|bad| bad.at(&full))).transpose()
    }

    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        txn.put(&keys::writer(self.key, self.object), &self.encode());
    }

    /// Deletes the record, and ends what it has reserved.
    pub(crate) fn delete(&self, txn: &mut dyn Txn) -> Result<(), NsError> {
        txn.delete(&keys::writer(self.key, self.object));
        self.reservation.map_or(Ok(()), |reservation| release(txn, &reservation))
    }

    /// Remembers that this writer ended in a way that its client may not know.
    pub(crate) fn entomb(&self, txn: &mut dyn Txn, how: WriterEnd, until: Timestamp) {
        let ended = EndedWriter {
            key: self.key,
            object: self.object,
            how,
            until,
            client: self.client.clone(),
            path: self.path.clone(),
            boot: Some(self.boot),
        };
        ended.put(txn);
    }
}

/// Group u64, then store u64 and boot generation u32 of each in-sync replica.
fn encode_placement(placement: &Placement) -> Vec<u8> {
    let mut out = Encoder(Vec::with_capacity(8 + placement.in_sync.len() * 12));
    out.u64(placement.group.0);
    for in_sync_replica in &placement.in_sync {
        out.u64(in_sync_replica.store.0);
        out.u32(in_sync_replica.boot_generation.0);
    }
    out.0
}

fn decode_placement(field: &[u8]) -> Result<Placement, BadValue> {
    let mut from = Decoder::part(field, "a placement");
    let mut placement = Placement { group: GroupId(from.u64()?), in_sync: Vec::new() };
    let count = field.len().saturating_sub(8) / 12;
    if count > Placement::IN_SYNC_MAX {
        return Err(BadValue::Damaged("more in-sync replicas than an open write can have"));
    }
    for _ in 0..count {
        placement
            .in_sync
            .push(InSyncReplica { store: StoreId(from.u64()?), boot_generation: BootGeneration(from.u32()?) });
    }
    if from.rest().is_empty() { Ok(placement) } else { Err(BadValue::Damaged("a tagged field has a wrong length")) }
}

/// adler32 u32, CRC32C u32.
fn field_sums(field: &[u8]) -> Result<Sums, BadValue> {
    let mut from = Decoder::part(field, "checksums");
    let sums = Sums { adler32: Adler32(from.u32()?), crc32c: Crc32c(from.u32()?) };
    if from.rest().is_empty() { Ok(sums) } else { Err(BadValue::Damaged("a tagged field has a wrong length")) }
}

fn field_boot(field: &[u8]) -> Result<BootId, BadValue> {
    let mut from = Decoder::part(field, "a boot");
    let boot = from.boot()?;
    if from.rest().is_empty() { Ok(boot) } else { Err(BadValue::Damaged("a tagged field has a wrong length")) }
}

impl EndedWriter {
    /// Whether this client had opened it under this path.
    pub(crate) fn is_of(&self, client: &ClientIdentity, path: &NsPath) -> bool {
        self.client == *client && path.is_of_file(&self.path)
    }

    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        txn.put(&keys::ended(self.key), &self.encode());
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(64 + self.path.len());
        out.u8(match self.how {
            WriterEnd::Interrupted => 1,
            WriterEnd::Completed => 2,
            WriterEnd::Dropped => 3,
            WriterEnd::Refused => 4,
        });
        out.u64(self.object.0);
        out.i64(self.until.0);
        out.client(&self.client);
        out.bytes(&self.path);
        if let Some(boot) = self.boot {
            out.tag(TAG_BOOT, &boot.0.to_be_bytes());
        }
        out.0
    }

    pub(crate) fn decode(key: WriterKey, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "an ended writer")?;
        let how = match from.u8()? {
            1 => WriterEnd::Interrupted,
            2 => WriterEnd::Completed,
            3 => WriterEnd::Dropped,
            4 => WriterEnd::Refused,
            _ => return Err(BadValue::Damaged("it has an unknown way of ending")),
        };
        let object = ObjectId(from.u64()?);
        let until = Timestamp(from.i64()?);
        let client = from.client()?;
        let path = from.path()?.to_vec();
        let mut boot = None;
        from.tags(|tag, field| match tag {
            TAG_BOOT => field_boot(field).map(|in_boot| boot = Some(in_boot)).map(|()| true),
            _ => Ok(false),
        })?;
        Ok(Self { key, object, how, until, client, path, boot })
    }

    pub(crate) fn get(read: &dyn Read, key: WriterKey) -> Result<Option<Self>, NsError> {
        let full = keys::ended(key);
        read.get(&full)?.map(|value| Self::decode(key, &value).map_err(|bad| bad.at(&full))).transpose()
    }
}

/// The store's report about the finished object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Length in bytes.
    pub len: u64,
    /// Whole-file checksums; `None` drops the earlier ones of the file.
    pub sums: Option<Sums>,
    /// The modification time; if absent, the context's `now`.
    pub mtime: Option<Timestamp>,
}

/// Whether this open write has not ended, whatever its epoch is by now.
pub(crate) fn is_being_written(read: &dyn Read, token: &WriterToken) -> Result<bool, NsError> {
    Ok(read.get(&keys::writer(token.key, token.object))?.is_some())
}

/// The writer of a handle, unless it was fenced or has ended.
pub(crate) fn current_writer(read: &dyn Read, token: &WriterToken) -> Result<WriterRecord, NsError> {
    let what = || format!("object {:016x}", token.object.0);
    match WriterRecord::get(read, token.key, token.object)? {
        None => Err(NsError::Stale { what: what(), why: "its writer has ended" }),
        Some(writer) if writer.epoch != token.epoch && !planted::is(Bug::CommitIgnoresEpoch) => {
            Err(NsError::Stale { what: what(), why: "the same client has opened it again since" })
        }
        Some(writer) => Ok(writer),
    }
}
