//! `U`: the record of an unfinished object, or of one that could not become visible.

use kv::Txn;
use types::{ClientIdentity, ErrorCode, GroupId, Ino, ObjectId, PrincipalId, Timestamp, UploadId};

use crate::codec::{BadValue, Decoder, Encoder, field_u32, field_u64};
use crate::quota::charge::{Charge, Reservation, change_reservation, release};
use crate::tree::acl::ExtendedAcl;
use crate::tree::acl_codec;
use crate::tree::node::{InodeValue, decode_sums, encode_sums, get_inode_value};
use crate::{Access, Inode, Kind, NsError, Read, Sums, WriterKey, keys};

/// State of an upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadState {
    /// It has a writer.
    BeingWritten,
    /// Its writer went away.
    Interrupted,
    /// It was complete, and its commit was refused for this reason.
    Refused(ErrorCode),
}

/// `U`: an unfinished object, or one kept because it could not become visible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadRecord {
    /// Its number; the same as its object's.
    pub upload: UploadId,
    /// The object.
    pub object: ObjectId,
    /// State.
    pub state: UploadState,
    /// The directory in which it will appear.
    pub parent: Ino,
    /// Its future name.
    pub name: Vec<u8>,
    /// The inode that it replaces; `None` if the name was free.
    pub replaces: Option<Ino>,
    /// The object and generation of that inode when the upload began. At the end of a grace period the upload may replace only this object. `None` if
    /// the name was free.
    pub replaces_content: Option<(ObjectId, u32)>,
    /// The first half of its writer's key.
    pub writer: WriterKey,
    /// The client that writes or wrote it.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
    /// Whether its writer could create a file in the directory when it was opened. If the file that it replaces is gone, the upload may take the name
    /// only then. In a cluster the manager commits, which may do everything.
    pub may_create: bool,
    /// The owner of the new file.
    pub owner: PrincipalId,
    /// The group of the new file.
    pub group: PrincipalId,
    /// The mode of the new file.
    pub mode: u16,
    /// The further ACL entries of the new file.
    pub extended: Option<ExtendedAcl>,
    /// When it began.
    pub created: Timestamp,
    /// When it expires; `None` while it has a writer.
    pub deadline: Option<Timestamp>,
    /// The epoch of its last writer, once it has none.
    pub epoch: u32,
    /// Kept bytes, once it has no writer.
    pub kept_len: u64,
    /// Checksums, if it was complete.
    pub sums: Option<Sums>,
    /// Its attributes, if the name was free; `None`: it never had any.
    pub attributes: Option<HiddenAttributes>,
    /// The group of stores that holds the object.
    pub placed: GroupId,
    /// What it has reserved from quotas, once it has no writer.
    pub reservation: Option<Reservation>,
}

/// Attributes of a file that is not visible yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HiddenAttributes {
    /// The inode number that holds them: the future number of the file.
    pub at: Ino,
    /// The number of attributes.
    pub count: u32,
}

const TAG_DEADLINE: u8 = 0x01;

const TAG_REPLACES_CONTENT: u8 = 0x02;

/// A reader that does not know it would leave the attributes behind.
const TAG_ATTRIBUTES: u8 = 0x80;

/// A reader that does not know it would look in the wrong group.
const TAG_PLACED: u8 = 0x81;

/// A reader that does not know it would make the file without its ACL.
const TAG_ACL: u8 = 0x82;

/// A reader that does not know it would let the writer create the file.
const TAG_NOT_CREATE: u8 = 0x83;

/// A reader that does not know it would leave the reservation behind.
const TAG_RESERVATION: u8 = 0x84;

/// Codes of a refused upload. They are part of the format.
const REFUSALS: [(u8, ErrorCode); 6] = [
    (1, ErrorCode::NotFound),
    (2, ErrorCode::Exists),
    (3, ErrorCode::IsDirectory),
    (4, ErrorCode::Busy),
    (5, ErrorCode::Denied),
    (6, ErrorCode::Quota),
];

impl UploadRecord {
    fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(160 + self.name.len() + self.path.len());
        let (state, refusal) = match self.state {
            UploadState::BeingWritten => (1, 0),
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
        if let Some(acl) = &self.extended {
            acl_codec::put_extended(&mut out, TAG_ACL, acl);
        }
        if !self.may_create {
            out.tag(TAG_NOT_CREATE, &[]);
        }
        if let Some(reservation) = &self.reservation {
            out.tag(TAG_RESERVATION, &reservation.encode());
        }
        out.0
    }

    pub(crate) fn decode(upload: UploadId, value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "an upload")?;
        let (state, refusal) = (from.u8()?, from.u8()?);
        let state = match state {
            1 => UploadState::BeingWritten,
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
        let (mut extended, mut may_create, mut reservation) = (None, true, None);
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
            TAG_ACL => {
                extended = Some(acl_codec::extended(field)?);
                Ok(true)
            }
            TAG_RESERVATION => {
                reservation = Some(Reservation::decode(field)?);
                Ok(true)
            }
            TAG_NOT_CREATE if field.is_empty() => {
                may_create = false;
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
            may_create,
            owner,
            group,
            mode,
            extended,
            created,
            deadline,
            kept_len,
            sums,
            attributes,
            placed,
            reservation,
        })
    }

    /// The access of the new file.
    pub(crate) fn access(&self) -> Access {
        Access { extended: self.extended.clone(), ..Access::new(self.owner, self.group, self.mode) }
    }

    pub(crate) fn get(read: &dyn Read, upload: UploadId) -> Result<Option<Self>, NsError> {
        let key = keys::upload(upload);
        read.get(&key)?.map(|value| Self::decode(upload, &value).map_err(|bad| bad.at(&key))).transpose()
    }

    pub(crate) fn put(&self, txn: &mut dyn Txn) {
        txn.put(&keys::upload(self.upload), &self.encode());
    }

    /// Reserves the bytes that are kept, and the file, in place of what its writer has reserved. Call it when the bytes are known. They count also if
    /// nothing limited the writer.
    pub(crate) fn take_reservation(&mut self, txn: &mut dyn Txn, of: Option<&Reservation>) -> Result<(), NsError> {
        let before = match of {
            Some(of) => *of,
            // Without its directory, it counts for nobody.
            None => match self.charge(txn)? {
                Some(charge) => Reservation { charge, bytes: None, files: 0 },
                None => return Ok(()),
            },
        };
        let files = u64::from(self.replaces.is_none());
        let kept = Reservation { bytes: Some(self.kept_len), files, ..before };
        self.reservation = Some(kept);
        change_reservation(txn, &before, Some(&kept))
    }

    /// Whom its file will count for. `None`: its directory is gone.
    pub(crate) fn charge(&self, read: &dyn Read) -> Result<Option<Charge>, NsError> {
        let tree = match get_inode_value(read, self.parent)? {
            Some(InodeValue::Record(Inode { kind: Kind::Directory(dir), .. })) => dir.tree,
            _ => return Ok(None),
        };
        Ok(Some(Charge { tree, owner: self.owner, group: self.group }))
    }

    /// Deletes the record and its attributes for good, and ends what it has reserved.
    pub(crate) fn delete(&self, txn: &mut dyn Txn) -> Result<(), NsError> {
        txn.delete(&keys::upload(self.upload));
        if let Some(reservation) = &self.reservation {
            release(txn, reservation)?;
        }
        self.attributes.map_or(Ok(()), |attributes| crate::scan::delete_all(txn, &keys::xattr(attributes.at, b"")))
    }
}
