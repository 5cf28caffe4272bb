//! `U`: what is kept of a content in the making, or of one that could not become visible.

use kv::Txn;
use types::{ClientIdentity, ErrorCode, GroupId, Ino, ObjectId, PrincipalId, Timestamp, UploadId};

use crate::codec::{BadValue, Decoder, Encoder, field_u32, field_u64};
use crate::tree::node::{decode_sums, encode_sums};
use crate::{NsError, Read, Sums, WriterKey, keys};

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

const TAG_DEADLINE: u8 = 0x01;

const TAG_REPLACES_CONTENT: u8 = 0x02;

/// Who does not know it would leave the attributes behind.
const TAG_ATTRIBUTES: u8 = 0x80;

/// The same of the group.
const TAG_PLACED: u8 = 0x81;

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
        self.attributes.map_or(Ok(()), |attributes| crate::scan::delete_all(txn, &keys::xattr(attributes.at, b"")))
    }
}
