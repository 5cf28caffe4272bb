//! Files that are dealt out in chunks over several units (`K`).
//!
//! Each unit is a content like any other: it has an inode (without a name, held by the file), a group, a writer, a place among what is copied,
//! repaired and deleted. The file itself has a object of no bytes, in a group of no stores ([`GroupId::STRIPED`]), whose record names the units.
//! What makes it a file is that it becomes complete only when all units are, in a transaction that looks at them, and that they go when it goes.

use types::striping::{StripedOpenWrite, WriteSecret};
use types::{ClientIdentity, GroupId, Ino, ObjectId, Placement, PrincipalId, Stripe};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::tree::node::locate;
use crate::{Committed, Content, FileState, Inode, NsError, Read, WriterRecord, keys};

/// How a new content is to be dealt out, and where its units go: as many as the stripe is wide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewStripe {
    /// Width and chunk.
    pub stripe: Stripe,
    /// Of each unit.
    pub units: Vec<Placement>,
    /// Random. Who writes has to know it.
    pub secret: WriteSecret,
}

/// `K`: how a content is dealt out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeRecord {
    /// Width and chunk.
    pub stripe: Stripe,
    /// The inodes of its units, in their order.
    pub units: Vec<Ino>,
    /// What who writes it, as long as somebody does, has to know.
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

/// How a content is dealt out; `None`: it is not.
pub fn stripe_of(read: &dyn Read, object: ObjectId) -> Result<Option<StripeRecord>, NsError> {
    let key = keys::stripe(object);
    read.get(&key)?.map(|value| StripeRecord::decode(&value).map_err(|bad| bad.at(&key))).transpose()
}

/// The units of a striped content, in their order, and how it is dealt out.
pub fn units_of(read: &dyn Read, object: ObjectId) -> Result<(Stripe, Vec<Inode>), NsError> {
    let damaged = |why| NsError::Damaged { key: keys::stripe(object).escape_ascii().to_string(), why };
    let record =
        stripe_of(read, object)?.ok_or_else(|| damaged("a file is striped, and its stripe is not recorded"))?;
    let mut units = Vec::with_capacity(record.units.len());
    for ino in &record.units {
        let located = locate(read, *ino)?.filter(|located| located.inode.content().is_some());
        units.push(located.ok_or_else(|| damaged("a stripe unit of it is missing"))?.inode);
    }
    Ok((record.stripe, units))
}

/// Who writes a unit of the file that `principal` writes, as far as the key of the unit's writer is concerned. No client can log in under this name: it is longer than a login has room for.
#[must_use]
pub fn unit_writer(principal: PrincipalId, object: ObjectId, unit: u8) -> ClientIdentity {
    ClientIdentity { principal, user: format!("stripe {:016x}", object.0), pid: u32::from(unit), host: String::new() }
}

/// What the units of a content say about it.
pub(crate) struct Units {
    stripe: Stripe,
    lens: Vec<u64>,
    /// All are complete, and nobody has gone away from one while it was changed.
    are_complete: bool,
    /// Somebody writes one.
    pub(crate) are_written: bool,
}

impl Units {
    pub(crate) fn of(read: &dyn Read, object: ObjectId) -> Result<Self, NsError> {
        let (stripe, units) = units_of(read, object)?;
        let contents: Vec<Content> = units.iter().filter_map(Inode::content).copied().collect();
        let is_written = |content: &Content| matches!(content.state, FileState::Open(_) | FileState::Updating(_));
        // What was complete stays so when a change of it is interrupted, whatever is missing then: only an end that somebody answers for has checksums.
        let is_whole = |content: &Content| content.state == FileState::Complete && content.sums.is_some();
        Ok(Self {
            stripe,
            lens: contents.iter().map(|content| content.len).collect(),
            are_complete: contents.iter().all(is_whole),
            are_written: contents.iter().any(is_written),
        })
    }

    /// How long the file is, if it is whole.
    pub(crate) fn whole(&self) -> Option<u64> {
        let len = self.stripe.end_of(&self.lens);
        (self.are_complete && self.stripe.whole_prefix(&self.lens) == len).then_some(len)
    }
}

/// What is committed of a striped content is what its units have, whatever whoever asks says.
pub(crate) fn committed(read: &dyn Read, writer: &WriterRecord, asked: Committed) -> Result<Committed, NsError> {
    if writer.placement.group != GroupId::STRIPED {
        return Ok(asked);
    }
    let len = Units::of(read, writer.object)?.whole().ok_or_else(|| NsError::Stale {
        what: format!("object {:016x}", writer.object.0),
        why: "a stripe unit of this file is not complete",
    })?;
    // Those of the units say nothing about bytes in another order; those of a file of another length nothing about this one.
    Ok(Committed { len, sums: asked.sums.filter(|_| asked.len == len), ..asked })
}

/// What is kept of a striped content: all before the first byte that is missing.
pub(crate) fn kept(read: &dyn Read, writer: &WriterRecord, asked: u64) -> Result<u64, NsError> {
    if writer.placement.group != GroupId::STRIPED {
        return Ok(asked);
    }
    let units = Units::of(read, writer.object)?;
    Ok(units.stripe.whole_prefix(&units.lens))
}

/// How far the writing of units has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitsWritten {
    /// Somebody still writes one.
    Still,
    /// All are complete: whoever has written them may be about to say that the file is.
    All,
    /// Nobody writes one any more, and one is not complete: so nobody can make the file complete.
    NotAll,
}

/// How far the writing of the units of this content has come.
pub fn units_written(read: &dyn Read, object: ObjectId) -> Result<UnitsWritten, NsError> {
    let Units { are_complete, are_written, .. } = Units::of(read, object)?;
    Ok(match (are_written, are_complete) {
        (true, _) => UnitsWritten::Still,
        (false, true) => UnitsWritten::All,
        (false, false) => UnitsWritten::NotAll,
    })
}

/// Whoever asks for something about a writing knows what its writer was told.
pub fn permit_writing(read: &dyn Read, writing: &StripedOpenWrite) -> Result<(), NsError> {
    let object = writing.writer.object;
    match stripe_of(read, object)? {
        Some(record) if record.secret != writing.secret => {
            let rule = "only the client that has the capability to write it may do this".to_owned();
            Err(NsError::Denied { path: format!("the open write of object {:016x}", object.0), rule })
        }
        // What is not there can be asked for by anybody.
        Some(_) | None => Ok(()),
    }
}
