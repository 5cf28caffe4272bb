//! The records beside the inode: writers, uploads, ended writers, objects.

use kv::{Read, Txn};
use types::{
    Adler32, BootGeneration, BootId, ClientIdentity, Crc32c, ErrorCode, GroupId, InSyncReplica, Ino, NsPath, ObjectId,
    Placement, PrincipalId, ReplicaId, SessionId, StoreId, Timestamp, UploadId,
};

use crate::codec::{BadValue, Decoder, Encoder, field_u32, field_u64};
use crate::tree::node::{decode_sums, encode_sums};
use crate::{NsError, Sums, WriterKey, WriterToken, keys};

/// What somebody who writes is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriterKind {
    /// Writes a new file, visible as it grows.
    New,
    /// Changes a complete file in place.
    Update,
    /// Writes a content that is not visible yet.
    Upload(UploadId),
}

/// `W`: open for writing. Goes with the commit or the interrupted mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriterRecord {
    /// The first half of the key.
    pub key: WriterKey,
    /// The content being written.
    pub object: ObjectId,
    /// Raised by each re-open; a handle with a lower one is fenced.
    pub epoch: u32,
    /// What it does.
    pub kind: WriterKind,
    /// The inode; of an upload the one that it will replace or make.
    pub ino: Ino,
    /// The directory that held the file when it was opened, where it is looked for first; its name there is the last
    /// of `path`. 0: unknown.
    pub parent: Ino,
    /// The run of the server that it is attached to.
    pub session: SessionId,
    /// The boot whose kernel holds its unsynced bytes.
    pub boot: BootId,
    /// Who writes.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
    /// The length that the client announced, in bytes.
    pub expected_len: Option<u64>,
    /// When it was opened first.
    pub opened: Timestamp,
    /// Of an update: the checksums that the file had, for the case that nothing is changed.
    pub sums_before: Option<Sums>,
    /// The group that holds the content, or is to, and the stores that take part in the writing.
    pub placement: Placement,
}

impl WriterRecord {
    /// What [`crate::Commit`] and [`crate::Interrupt`] take.
    #[must_use]
    pub fn token(&self) -> WriterToken {
        WriterToken { key: self.key, object: self.object, epoch: self.epoch }
    }

    /// Whether it is this client's, which opened this path.
    #[must_use]
    pub fn is_of(&self, client: &ClientIdentity, path: &NsPath) -> bool {
        self.client == *client && self.path == path.as_bytes()
    }

    /// The replica on a single store.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        ReplicaId::first(self.object)
    }

    /// Who orders its changes, in a cluster; of a striped file nobody does.
    #[must_use]
    pub fn primary(&self) -> Option<InSyncReplica> {
        self.placement.in_sync.first().copied()
    }
}

/// State of an upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadState {
    /// Somebody writes it.
    InMaking,
    /// Its writer went away.
    Interrupted,
    /// It was complete, and its commit was refused for this reason.
    Refused(ErrorCode),
}

/// `U`: a content in the making, or kept after it could not become visible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadRecord {
    /// Its number; the same as its object's.
    pub upload: UploadId,
    /// The content.
    pub object: ObjectId,
    /// State.
    pub state: UploadState,
    /// The directory that it shall appear in.
    pub parent: Ino,
    /// The name that it shall get.
    pub name: Vec<u8>,
    /// The inode that it replaces; `None` if the name was free.
    pub replaces: Option<Ino>,
    /// That inode's content when the upload began: its object and generation. At the end of a grace period the upload
    /// takes the place of exactly this and of nothing else. `None` if the name was free.
    pub replaces_content: Option<(ObjectId, u32)>,
    /// The first half of its writer's key.
    pub writer: WriterKey,
    /// Who writes or wrote it.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
    /// The owner of the new file.
    pub owner: PrincipalId,
    /// The group of the new file.
    pub group: PrincipalId,
    /// The mode of the new file.
    pub mode: u16,
    /// When it began.
    pub created: Timestamp,
    /// When it may be forgotten; `None` while it is in the making.
    pub deadline: Option<Timestamp>,
    /// The epoch of its last writer, once it is not in the making any more.
    pub epoch: u32,
    /// Bytes kept, once it is not in the making any more.
    pub kept_len: u64,
    /// Checksums, if it was complete.
    pub sums: Option<Sums>,
    /// Its attributes, where the name was free; `None`: it never had any.
    pub attributes: Option<HiddenAttributes>,
    /// The group of stores that holds the content.
    pub placed: GroupId,
}

/// Attributes of a file that nobody sees yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HiddenAttributes {
    /// Under which number they stand: the one that the file will get.
    pub at: Ino,
    /// How many there are.
    pub count: u32,
}

/// How a writer ended that its client may not know has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndedHow {
    /// Marked interrupted.
    Interrupted,
    /// Completed by the server when the grace period ended.
    Completed,
    /// Thrown away.
    Dropped,
    /// Its commit was refused; it is kept as an upload.
    Refused,
}

/// `Y`: an ended writer, remembered so that its client, recovering late, does not write into what is visible now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedWriter {
    /// The key.
    pub key: WriterKey,
    /// The content that it wrote.
    pub object: ObjectId,
    /// How it ended.
    pub how: EndedHow,
    /// Until when this is remembered.
    pub until: Timestamp,
    /// Who it was.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
}

/// `B`: a committed (or interrupted and visible) object; by these a group's objects are enumerated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectRecord {
    /// The group of stores.
    pub group: GroupId,
    /// The object.
    pub object: ObjectId,
    /// The inode whose content it is.
    pub ino: Ino,
    /// Length in bytes.
    pub len: u64,
    /// The inode's generation when this was written.
    pub generation: u32,
    /// The writer's epoch.
    pub epoch: u32,
}

const TAG_EXPECTED_LEN: u8 = 0x01;
const TAG_SUMS_BEFORE: u8 = 0x02;
/// Who does not know it would not know whom to ask for the bytes.
const TAG_PLACEMENT: u8 = 0x80;
const TAG_DEADLINE: u8 = 0x01;
const TAG_REPLACES_CONTENT: u8 = 0x02;
/// Who does not know it would leave the attributes behind.
const TAG_ATTRIBUTES: u8 = 0x80;
/// The same of the group.
const TAG_PLACED: u8 = 0x81;

impl WriterRecord {
    fn encode(&self) -> Vec<u8> {
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
        from.tags(|tag, field| match tag {
            TAG_EXPECTED_LEN => field_u64(field).map(|len| expected_len = Some(len)).map(|()| true),
            TAG_SUMS_BEFORE => field_sums(field).map(|sums| sums_before = Some(sums)).map(|()| true),
            TAG_PLACEMENT => decode_placement(field).map(|placed| placement = placed).map(|()| true),
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
        })
    }

    /// From a key and value of a scan.
    pub(crate) fn read(key: &[u8], value: &[u8]) -> Result<Self, NsError> {
        let (writer, object) = Self::at(key)?;
        Self::decode(writer, object, value).map_err(|error| error.at(key))
    }

    /// Whose key it is.
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

    pub(crate) fn delete(&self, txn: &mut dyn Txn) {
        txn.delete(&keys::writer(self.key, self.object));
    }

    /// Remembers that this writer ended in a way that its client may not know of.
    pub(crate) fn entomb(&self, txn: &mut dyn Txn, how: EndedHow, until: Timestamp) {
        let ended = EndedWriter {
            key: self.key,
            object: self.object,
            how,
            until,
            client: self.client.clone(),
            path: self.path.clone(),
        };
        txn.put(&keys::ended(self.key), &ended.encode());
    }
}

/// Group u64, then store u64 and era u32 of each participant.
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

impl EndedWriter {
    /// Whether it was this client's, which had opened this path.
    pub(crate) fn is_of(&self, client: &ClientIdentity, path: &NsPath) -> bool {
        self.client == *client && self.path == path.as_bytes()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(64 + self.path.len());
        out.u8(match self.how {
            EndedHow::Interrupted => 1,
            EndedHow::Completed => 2,
            EndedHow::Dropped => 3,
            EndedHow::Refused => 4,
        });
        out.u64(self.object.0);
        out.i64(self.until.0);
        out.client(&self.client);
        out.bytes(&self.path);
        out.0
    }

    pub(crate) fn decode(key: WriterKey, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "an ended writer")?;
        let how = match from.u8()? {
            1 => EndedHow::Interrupted,
            2 => EndedHow::Completed,
            3 => EndedHow::Dropped,
            4 => EndedHow::Refused,
            _ => return Err(BadValue::Damaged("it has an unknown way of ending")),
        };
        let object = ObjectId(from.u64()?);
        let until = Timestamp(from.i64()?);
        let client = from.client()?;
        let path = from.path()?.to_vec();
        from.end()?;
        Ok(Self { key, object, how, until, client, path })
    }

    pub(crate) fn get(read: &dyn Read, key: WriterKey) -> Result<Option<Self>, NsError> {
        let full = keys::ended(key);
        read.get(&full)?.map(|value| Self::decode(key, &value).map_err(|bad| bad.at(&full))).transpose()
    }
}

/// Codes of a refused upload. Part of the format.
const REFUSALS: [(u8, ErrorCode); 5] = [
    (1, ErrorCode::NotFound),
    (2, ErrorCode::Exists),
    (3, ErrorCode::IsDirectory),
    (4, ErrorCode::Busy),
    (5, ErrorCode::Denied),
];

impl UploadRecord {
    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(160 + self.name.len() + self.path.len());
        let (state, refusal) = match self.state {
            UploadState::InMaking => (1, 0),
            UploadState::Interrupted => (2, 0),
            UploadState::Refused(code) => {
                (3, REFUSALS.iter().find(|(_, known)| *known == code).map_or(0, |(number, _)| *number))
            }
        };
        out.u8(state);
        out.u8(refusal);
        out.u64(self.object.0);
        out.u64(self.parent.0);
        out.bytes(&self.name);
        out.u64(self.replaces.map_or(0, |ino| ino.0));
        out.u64(self.writer.0);
        out.u32(self.epoch);
        out.client(&self.client);
        out.bytes(&self.path);
        out.u16(self.mode);
        out.u32(self.owner.0);
        out.u32(self.group.0);
        out.i64(self.created.0);
        out.u64(self.kept_len);
        encode_sums(&mut out, self.sums.as_ref());
        if let Some(deadline) = self.deadline {
            out.tag(TAG_DEADLINE, &deadline.0.to_be_bytes());
        }
        if let Some((object, generation)) = self.replaces_content {
            let mut field = [0; 12];
            field[..8].copy_from_slice(&object.0.to_be_bytes());
            field[8..].copy_from_slice(&generation.to_be_bytes());
            out.tag(TAG_REPLACES_CONTENT, &field);
        }
        if let Some(HiddenAttributes { at, count }) = self.attributes {
            let mut field = [0; 12];
            field[..8].copy_from_slice(&at.0.to_be_bytes());
            field[8..].copy_from_slice(&count.to_be_bytes());
            out.tag(TAG_ATTRIBUTES, &field);
        }
        if self.placed != GroupId::DEFAULT {
            out.tag_u64(TAG_PLACED, self.placed.0);
        }
        out.0
    }

    pub(crate) fn decode(upload: UploadId, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "an upload")?;
        let (state, refusal) = (from.u8()?, from.u8()?);
        let state = match state {
            1 => UploadState::InMaking,
            2 => UploadState::Interrupted,
            3 => {
                let known = REFUSALS.iter().find(|(number, _)| *number == refusal);
                UploadState::Refused(known.map_or(ErrorCode::Invalid, |(_, code)| *code))
            }
            _ => return Err(BadValue::Damaged("it has an unknown upload state")),
        };
        let object = ObjectId(from.u64()?);
        let parent = Ino(from.u64()?);
        let name = from.name()?.to_vec();
        let replaces = Some(Ino(from.u64()?)).filter(|ino| ino.0 != 0);
        let writer = WriterKey(from.u64()?);
        let epoch = from.u32()?;
        let client = from.client()?;
        let path = from.path()?.to_vec();
        let mode = from.u16()?;
        let (owner, group) = (PrincipalId(from.u32()?), PrincipalId(from.u32()?));
        let created = Timestamp(from.i64()?);
        let kept_len = from.u64()?;
        let sums = decode_sums(&mut from)?;
        let mut deadline = None;
        let mut replaces_content = None;
        let mut attributes = None;
        let mut placed = GroupId::DEFAULT;
        from.tags(|tag, field| match tag {
            TAG_DEADLINE => {
                deadline = Some(Timestamp(field_u64(field)?.cast_signed()));
                Ok(true)
            }
            TAG_REPLACES_CONTENT => {
                let (object, generation) = field.split_at(field.len().min(8));
                replaces_content = Some((ObjectId(field_u64(object)?), field_u32(generation)?));
                Ok(true)
            }
            TAG_ATTRIBUTES => {
                let (at, count) = field.split_at(field.len().min(8));
                attributes = Some(HiddenAttributes { at: Ino(field_u64(at)?), count: field_u32(count)? });
                Ok(true)
            }
            TAG_PLACED => {
                placed = GroupId(field_u64(field)?);
                Ok(true)
            }
            _ => Ok(false),
        })?;
        Ok(Self {
            upload,
            object,
            state,
            parent,
            name,
            replaces,
            replaces_content,
            writer,
            epoch,
            client,
            path,
            owner,
            group,
            mode,
            created,
            deadline,
            kept_len,
            sums,
            attributes,
            placed,
        })
    }

    pub(crate) fn get(read: &dyn Read, upload: UploadId) -> Result<Option<Self>, NsError> {
        let key = keys::upload(upload);
        read.get(&key)?.map(|value| Self::decode(upload, &value).map_err(|bad| bad.at(&key))).transpose()
    }

    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        txn.put(&keys::upload(self.upload), &self.encode());
    }

    /// Takes it away for good, with its attributes.
    pub(crate) fn delete(&self, txn: &mut dyn Txn) -> Result<(), NsError> {
        txn.delete(&keys::upload(self.upload));
        self.attributes.map_or(Ok(()), |attributes| crate::tree::xattr::delete_all(txn, attributes.at))
    }
}

impl ObjectRecord {
    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        let mut out = Encoder::new(25);
        out.u64(self.ino.0);
        out.u64(self.len);
        out.u32(self.generation);
        out.u32(self.epoch);
        txn.put(&keys::object(self.group, self.object), &out.0);
    }

    pub(crate) fn decode(group: GroupId, object: ObjectId, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "an object")?;
        let (ino, len) = (Ino(from.u64()?), from.u64()?);
        let (generation, epoch) = (from.u32()?, from.u32()?);
        from.end()?;
        Ok(Self { group, object, ino, len, generation, epoch })
    }
}
