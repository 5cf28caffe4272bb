//! Files that are dealt out in chunks over several units (`K`).
//!
//! Each unit is a content like any other: it has an inode (without a name, held by the file), a group, a writer, a place among what is copied,
//! repaired and deleted. The file itself has a object of no bytes, in a group of no stores ([`GroupId::STRIPED`]), whose record names the units.
//! What makes it a file is that it becomes complete only when all units are, in a transaction that looks at them, and that they go when it goes.

use kv::{Read, Txn};
use types::striping::{StripedOpenWrite, WriteSecret};
use types::{ClientIdentity, Crc32c, GroupId, Ino, ObjectId, Placement, PrincipalId, Stripe, WriterToken};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::context::operations;
use crate::tree::node::{Located, Place, locate};
use crate::writers::commit::{commit, current_writer};
use crate::writers::interrupt::interrupt;
use crate::writers::open_write::{new_content, new_inode, writer as begin_writer};
use crate::writers::records::WriterKind;
use crate::{
    Access, Commit, CommitReply, Committed, Completion, Content, Context, FileState, Inode, Interrupt, Kind, NsError,
    OpenWrite, Sums, WriterRecord, keys, object_record,
};

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

/// Ends the writing of a striped file, when those of all its units have ended. Asked for twice, it is answered twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitStriped {
    /// The writing of the file itself.
    pub writing: StripedOpenWrite,
    /// The modification time; the context's `now` if not given.
    pub mtime: Option<types::Timestamp>,
    /// Of how many bytes whoever has written it knows the checksums, and which these are: those of the file, if it is as long.
    pub sums: Option<(u64, Sums)>,
    /// The CRC32C of each unit, as whoever has written it has sent it: a unit that its server has otherwise is none of this file.
    pub unit_sums: Option<Vec<Crc32c>>,
}

/// Ends the writing of a striped file whose client has not come back: as whole if it surely is, otherwise as interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndStriped {
    /// The writer of the file itself.
    pub writer: WriterToken,
}

impl StripeRecord {
    fn encode(&self) -> Vec<u8> {
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

/// The units of a content that begins, and their writers. Nothing of them is visible.
pub(crate) fn make_units(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    parent: &WriterRecord,
    access: Access,
) -> Result<(), NsError> {
    let Some(NewStripe { stripe, units, secret }) = &request.stripe else { return Ok(()) };
    if parent.placement.group != GroupId::STRIPED || units.len() != usize::from(stripe.width()) {
        let what = request.path.to_string();
        return Err(NsError::Invalid { what, why: "a striped file has as many stripe units as its stripe is wide" });
    }
    let mut record = StripeRecord { stripe: *stripe, units: Vec::with_capacity(units.len()), secret: *secret };
    for (number, placement) in (0..).zip(units) {
        let (ino, object) = (ctx.ids.next_ino()?, ctx.ids.next_object()?);
        let client = unit_writer(parent.client.principal, parent.object, number);
        let key = keys::writer_key(&client, &parent.path);
        let content = new_content(object, placement.group, key);
        // Held by the file, so that it stays without a name. Its writer opens it again before its first byte, whatever the file's mode is.
        let access = Access { mode: access.mode | 0o200, ..access };
        let inode = Inode { nlink: 0, holders: 1, ..new_inode(ctx, ino, access, Kind::File(content)) };
        Located { inode, place: Place::Own }.store(txn, ctx);
        let expected_len = request.expected_len.map(|len| stripe.unit_len(number, len));
        let begun = begin_writer(ctx, request, key, WriterKind::New, ino, object);
        WriterRecord { client, expected_len, placement: placement.clone(), ..begun }.put(txn);
        record.units.push(ino);
    }
    txn.put(&keys::stripe(parent.object), &record.encode());
    Ok(())
}

/// A striped content goes, and its units with it. One that is being written goes when its writer has ended.
pub(crate) fn drop_units(txn: &mut dyn Txn, ctx: &Context, object: ObjectId) -> Result<(), NsError> {
    let Some(record) = stripe_of(txn, object)? else { return Ok(()) };
    txn.delete(&keys::stripe(object));
    for ino in record.units {
        if let Some(located) = locate(txn, ino)? {
            crate::tree::remove::drop_inode(txn, ctx, &located.inode)?;
        }
    }
    Ok(())
}

/// What the units of a content say about it.
struct Units {
    stripe: Stripe,
    lens: Vec<u64>,
    /// All are complete, and nobody has gone away from one while it was changed.
    are_complete: bool,
    /// Somebody writes one.
    are_written: bool,
}

impl Units {
    fn of(read: &dyn Read, object: ObjectId) -> Result<Self, NsError> {
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
    fn whole(&self) -> Option<u64> {
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

/// See [`CommitStriped`]. [`NsError::Stale`] if a unit is not complete, or the writer was fenced or has ended otherwise. What is not as it was sent
/// ([`NsError::NotAsSent`], [`NsError::NotAsLong`]) is interrupted at once: whoever ends the writing later would not know it any more.
pub fn commit_striped(txn: &mut dyn Txn, ctx: &Context, request: &CommitStriped) -> Result<CommitReply, NsError> {
    permit_writing(txn, &request.writing)?;
    let token = request.writing.writer;
    if WriterRecord::get(txn, token.key, token.object)?.is_none() {
        // The answer may have been lost.
        let done = object_record(txn, GroupId::STRIPED, token.object)?.filter(|done| done.epoch == token.epoch);
        if let Some(done) = done {
            let content = crate::stat_ino(txn, done.ino)?.content().copied();
            if content.is_some_and(|content| content.object == token.object && content.state == FileState::Complete) {
                return Ok(CommitReply::Complete { ino: done.ino, replaced: None, upload: None });
            }
        }
    }
    let writer = current_striped(txn, &token)?;
    if let Some(len) = Units::of(txn, token.object)?.whole()
        && let Err(other) = compare(&*txn, &writer, len, request)
    {
        interrupt(txn, ctx, &Interrupt { writer: token, kept_len: 0 })?;
        return Err(other);
    }
    // The length is what the units have, whatever is said.
    let (len, sums) = request.sums.map_or((0, None), |(len, sums)| (len, Some(sums)));
    end(txn, ctx, token, Committed { len, sums, mtime: request.mtime }, Completion::ByClient)
}

/// Whether the units, which make a file of `len` bytes, are what was announced and sent.
fn compare(read: &dyn Read, writer: &WriterRecord, len: u64, request: &CommitStriped) -> Result<(), NsError> {
    let object = writer.object;
    let said = request.sums.map(|(len, _)| len);
    // Of what is fetched from another server, or made from another file, nobody has announced how long it is.
    let announced = writer.expected_len.filter(|len| *len != u64::MAX);
    if let Some(sent) = [announced, said].into_iter().flatten().find(|sent| *sent != len) {
        return Err(NsError::NotAsLong { object, found: len, sent });
    }
    let (_, units) = units_of(read, object)?;
    let contents = units.iter().filter_map(Inode::content);
    for ((unit, content), sent) in (0u64..).zip(contents).zip(request.unit_sums.iter().flatten()) {
        if let Some(sums) = content.sums.filter(|sums| sums.crc32c != *sent) {
            return Err(NsError::NotAsSent { object, unit, found: sums.crc32c, sent: *sent });
        }
    }
    Ok(())
}

fn current_striped(read: &dyn Read, writer: &WriterToken) -> Result<WriterRecord, NsError> {
    let record = current_writer(read, writer)?;
    if record.placement.group != GroupId::STRIPED {
        let what = format!("object {:016x}", writer.object.0);
        return Err(NsError::Invalid { what, why: "it is not striped: its stores end its open write" });
    }
    Ok(record)
}

fn end(
    txn: &mut dyn Txn,
    ctx: &Context,
    writer: WriterToken,
    content: Committed,
    completion: Completion,
) -> Result<CommitReply, NsError> {
    current_striped(txn, &writer)?;
    commit(txn, ctx, &Commit { writer, content, completion })
}

/// See [`EndStriped`]. Answers whether it is whole. [`NsError::Stale`] if a unit is written still, or the writer was fenced or has ended.
pub fn end_striped(txn: &mut dyn Txn, ctx: &Context, request: &EndStriped) -> Result<bool, NsError> {
    let writer = current_writer(txn, &request.writer)?;
    let units = Units::of(txn, writer.object)?;
    if units.are_written {
        let what = format!("object {:016x}", writer.object.0);
        return Err(NsError::Stale { what, why: "a stripe unit of it is still being written" });
    }
    let is_whole = units.whole().is_some_and(|len| writer.expected_len.is_none_or(|expected| expected == len));
    if is_whole {
        let content = Committed { len: 0, sums: None, mtime: None };
        end(txn, ctx, request.writer, content, Completion::AtGraceEnd)?;
    } else {
        interrupt(txn, ctx, &Interrupt { writer: request.writer, kept_len: 0 })?;
    }
    Ok(is_whole)
}

operations! {
    CommitStriped, commit_striped -> CommitReply;
    EndStriped, end_striped -> bool;
}
