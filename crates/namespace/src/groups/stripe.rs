//! Files whose chunks are spread over several units (`K`).
//!
//! Each unit is an ordinary object. It has a group, a writer, and an inode without a name, which the file holds. It is copied, repaired and deleted
//! like any other. The file itself has an empty object in a group without stores ([`GroupId::STRIPED`]); the record of that object names the units.
//! The file becomes complete only in a transaction that finds all its units complete. The units are deleted together with the file.

use types::striping::{StripedOpenWrite, WriteSecret};
use types::{ClientIdentity, GroupId, Ino, ObjectId, Placement, PrincipalId, Stripe};

use crate::ahead::{key_ahead, tell};
use crate::codec::{BadValue, Decoder, Encoder};
use crate::tree::node::locate;
use crate::{Committed, Content, FileState, Inode, NsError, Read, WriterRecord, keys};

/// The stripe of a new object, and the placement of its units: as many as the stripe is wide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewStripe {
    /// Width and chunk.
    pub stripe: Stripe,
    /// The placement of each unit.
    pub units: Vec<Placement>,
    /// A random secret that the writer must present.
    pub secret: WriteSecret,
}

/// `K`: the stripe of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeRecord {
    /// Width and chunk.
    pub stripe: Stripe,
    /// The inodes of its units, in their order.
    pub units: Vec<Ino>,
    /// The secret that the writer must present, while there is one.
    pub secret: WriteSecret,
}

impl StripeRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new(26 + self.units.len() * 8);
        out.u64(self.stripe.chunk());
        out.u8(self.stripe.width());
        out.u128(self.secret.0);
        self.units.iter().for_each(|unit| out.u64(unit.0));
        out.0
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "the stripe of a file")?;
        let (chunk, width) = (from.u64()?, from.u8()?);
        let stripe = Stripe::new(u64::from(width), chunk).map_err(|_| BadValue::Damaged("no stripe is like this"))?;
        let secret = WriteSecret(from.u128()?);
        let units = (0..width).map(|_| from.u64().map(Ino)).collect::<Result<_, _>>()?;
        from.end()?;
        Ok(Self { stripe, units, secret })
    }
}

/// The stripe of an object. `None`: the object is not striped.
pub fn stripe_of(read: &dyn Read, object: ObjectId) -> Result<Option<StripeRecord>, NsError> {
    let key = keys::stripe(object);
    read.get(&key)?.map(|value| StripeRecord::decode(&value).map_err(|bad| bad.at(&key))).transpose()
}

/// The units of a striped object in their order, and its stripe. The caller must have found the object in the same view `read`: in a later one the
/// object may have been deleted, which looks like damage here. See [`units_if_there`].
pub fn units_of(read: &dyn Read, object: ObjectId) -> Result<(Stripe, Vec<Inode>), NsError> {
    units_if_there(read, object)?.ok_or_else(|| damaged(object, "a file is striped, and its stripe is not recorded"))
}

/// The same, for a caller that has found the object in an earlier view. `None`: it has been deleted since.
pub fn units_if_there(read: &dyn Read, object: ObjectId) -> Result<Option<(Stripe, Vec<Inode>)>, NsError> {
    let Some(record) = stripe_of(read, object)? else { return Ok(None) };
    tell(read, &|| record.units.iter().map(|ino| key_ahead(&keys::inode(*ino))).collect())?;
    let mut units = Vec::with_capacity(record.units.len());
    for ino in &record.units {
        let located = locate(read, *ino)?.filter(|located| located.inode.content().is_some());
        units.push(located.ok_or_else(|| damaged(object, "a stripe unit of it is missing"))?.inode);
    }
    Ok(Some((record.stripe, units)))
}

fn damaged(object: ObjectId, why: &'static str) -> NsError {
    NsError::Damaged { key: keys::stripe(object).escape_ascii().to_string(), why }
}

/// The principal in the writer key of a unit, when `principal` writes the file. No client can log in under this name: it is longer than a login
/// allows.
#[must_use]
pub fn unit_writer(principal: PrincipalId, object: ObjectId, unit: u8) -> ClientIdentity {
    ClientIdentity { principal, user: format!("stripe {:016x}", object.0), pid: u32::from(unit), host: String::new() }
}

/// What the units of an object say about it.
pub(crate) struct Units {
    stripe: Stripe,
    lens: Vec<u64>,
    /// All are complete, and no in-place change of one was interrupted.
    are_complete: bool,
    /// A unit has an open write.
    pub(crate) are_written: bool,
}

/// Whether all of a unit is there. An interrupted in-place change leaves the state complete, even with missing bytes. Only a proper close records checksums.
pub(crate) fn is_whole(unit: &Content) -> bool {
    unit.state == FileState::Complete && unit.sums.is_some()
}

impl Units {
    pub(crate) fn of(read: &dyn Read, object: ObjectId) -> Result<Self, NsError> {
        let (stripe, units) = units_of(read, object)?;
        let contents: Vec<Content> = units.iter().filter_map(Inode::content).copied().collect();
        let is_written = |content: &Content| matches!(content.state, FileState::Open(_) | FileState::Updating(_));
        Ok(Self {
            stripe,
            lens: contents.iter().map(|content| content.len).collect(),
            are_complete: contents.iter().all(is_whole),
            are_written: contents.iter().any(is_written),
        })
    }

    /// The length of the file if it is complete.
    pub(crate) fn whole(&self) -> Option<u64> {
        let len = self.stripe.end_of(&self.lens);
        (self.are_complete && self.stripe.whole_prefix(&self.lens) == len).then_some(len)
    }
}

/// The length of a striped object comes from its units, whatever the request says.
pub(crate) fn committed(read: &dyn Read, writer: &WriterRecord, asked: Committed) -> Result<Committed, NsError> {
    if writer.placement.group != GroupId::STRIPED {
        return Ok(asked);
    }
    let len = Units::of(read, writer.object)?.whole().ok_or_else(|| NsError::Stale {
        what: format!("object {:016x}", writer.object.0),
        why: "a stripe unit of this file is not complete",
    })?;
    // The units' checksums say nothing about the file's byte order. Checksums for another length do not apply to this file.
    Ok(Committed { len, sums: asked.sums.filter(|_| asked.len == len), ..asked })
}

/// The kept length of a striped object: everything before the first missing byte.
pub(crate) fn kept(read: &dyn Read, writer: &WriterRecord, asked: u64) -> Result<u64, NsError> {
    if writer.placement.group != GroupId::STRIPED {
        return Ok(asked);
    }
    let units = Units::of(read, writer.object)?;
    Ok(units.stripe.whole_prefix(&units.lens))
}

/// How far the units of an object are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitsWritten {
    /// A unit still has an open write.
    Still,
    /// All are complete. Their writer may be about to complete the file.
    All,
    /// No unit has an open write and one is not complete, so nobody can complete the file.
    NotAll,
}

/// How far the units of this object are written.
pub fn units_written(read: &dyn Read, object: ObjectId) -> Result<UnitsWritten, NsError> {
    let Units { are_complete, are_written, .. } = Units::of(read, object)?;
    Ok(match (are_written, are_complete) {
        (true, _) => UnitsWritten::Still,
        (false, true) => UnitsWritten::All,
        (false, false) => UnitsWritten::NotAll,
    })
}

/// Requires that the caller knows the secret that the writer of the file received.
pub fn permit_writing(read: &dyn Read, writing: &StripedOpenWrite) -> Result<(), NsError> {
    let object = writing.writer.object;
    match stripe_of(read, object)? {
        Some(record) if record.secret != writing.secret => {
            let rule = "only the client that has the capability to write it may do this".to_owned();
            Err(NsError::Denied { path: crate::writers::record::named_open_write(object), rule })
        }
        // An object without a stripe record has no secret to check.
        Some(_) | None => Ok(()),
    }
}
