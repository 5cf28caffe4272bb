//! How the open write of a striped file ends, after those of all its units.

use kv::Txn;
use types::striping::StripedOpenWrite;
use types::{Crc32c, GroupId, ObjectId};

use crate::context::operations;
use crate::groups::objects::object_of;
use crate::groups::stripe::Units;
use crate::tree::node::{Located, locate};
use crate::writers::commit::commit;
use crate::writers::interrupt::interrupt;
use crate::writers::record::{current_writer, is_being_written, named_open_write};
use crate::{
    Commit, CommitReply, Committed, Completion, Content, Context, EndedWriter, FileState, Inode, Interrupt, Kind,
    NsError, OpTag, Operation, Read, Sums, WriterEnd, WriterRecord, WriterToken, keys, object_record, permit_client,
    permit_writing, units_of,
};

/// Completes a striped file after the open writes of all its units have ended. A repeated request gets the same answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitStriped {
    /// The open write of the file itself.
    pub writing: StripedOpenWrite,
    /// The modification time; if absent, the context's `now`.
    pub mtime: Option<types::Timestamp>,
    /// A length, and the writer's checksums for that length. They apply to the file if it has this length.
    pub sums: Option<(u64, Sums)>,
    /// The CRC32C of each unit as its writer sent it. A unit with another checksum on its server does not belong to this file.
    pub unit_sums: Option<Vec<Crc32c>>,
}

/// Ends the open write of a striped file whose client has not come back: as complete if that is certain, otherwise as interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndStriped {
    /// The writer of the file itself.
    pub writer: WriterToken,
}

/// See [`CommitStriped`]. [`NsError::Stale`] if a unit is not complete, or if the writer was fenced or has ended otherwise. If the bytes differ from
/// the sent ones ([`NsError::NotAsSent`], [`NsError::NotAsLong`]), the file is interrupted at once: a later request would not know of it.
pub fn commit_striped(txn: &mut dyn Txn, ctx: &Context, request: &CommitStriped) -> Result<CommitReply, NsError> {
    permit_writing(txn, &request.writing)?;
    let token = request.writing.writer;
    if WriterRecord::get(txn, token.key, token.object)?.is_none() {
        let done = object_record(txn, GroupId::STRIPED, token.object)?.filter(|done| done.epoch == token.epoch);
        if let Some(done) = done
            && let Some(located) = locate(txn, done.ino)?
        {
            let is_it = |content: &Content| content.object == token.object && content.state == FileState::Complete;
            if let Some(content) = located.inode.content().copied().filter(is_it) {
                return close_again(txn, ctx, request, (located, content));
            }
        }
    }
    let writer = current_striped(txn, &token)?;
    permit_client(&ctx.actor, &writer.client, &|| named_open_write(token.object))?;
    if let Some(len) = Units::of(txn, token.object)?.whole()
        && let Err(other) = compare(&*txn, (token.object, writer.expected_len), len, request)
    {
        // Before the file ends: if it was removed meanwhile, its units go with it.
        spoil_unit(txn, ctx, &other)?;
        interrupt(txn, ctx, &Interrupt { writer: token, kept_len: 0 })?;
        return Err(other);
    }
    // The length comes from the units, whatever the request says.
    let (len, sums) = request.sums.map_or((0, None), |(len, sums)| (len, Some(sums)));
    end(txn, ctx, token, Committed { len, sums, mtime: request.mtime }, Completion::ByClient)
}

/// Closes a file that is complete already. Either the first answer to this close was lost, or the manager has completed the file as if its client had
/// gone. Then nobody has compared it with what the client sent, nor recorded what it says.
fn close_again(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &CommitStriped,
    (mut located, content): (Located, Content),
) -> Result<CommitReply, NsError> {
    let token = request.writing.writer;
    let ended = EndedWriter::get(txn, token.key)?.filter(|ended| ended.object == token.object);
    if let Some(ended) = &ended {
        permit_client(&ctx.actor, &ended.client, &|| named_open_write(token.object))?;
    }
    let by_manager = ended.filter(|ended| ended.how == WriterEnd::Completed);
    let compared = compare(&*txn, (token.object, None), content.len, request);
    let reply = CommitReply::Complete { ino: located.inode.ino, replaced: None, upload: None };
    let Some(ended) = by_manager else { return compared.map(|()| reply) };
    let sums = request.sums.filter(|(len, _)| *len == content.len).map(|(_, sums)| sums);
    let content = match &compared {
        Ok(()) => Content { sums: content.sums.or(sums), ..content },
        Err(_) => {
            let generation = content.generation.wrapping_add(1);
            Content { state: FileState::Interrupted(token.key), sums: None, generation, ..content }
        }
    };
    located.inode.kind = Kind::File(content);
    located.inode.mtime = request.mtime.unwrap_or(located.inode.mtime);
    located.inode.ctime = ctx.now;
    located.store(txn, ctx);
    object_of(located.inode.ino, &content, token.epoch).put(txn);
    match &compared {
        // From now on it counts as closed by its client.
        Ok(()) => txn.delete(&keys::ended(token.key)),
        Err(other) => {
            EndedWriter { how: WriterEnd::Interrupted, ..ended }.put(txn);
            spoil_unit(txn, ctx, other)?;
        }
    }
    compared.map(|()| reply)
}

/// A unit that has other bytes than its writer sent is not whole, although it was closed. Without this, a client that goes on with the file could close
/// it as it is.
fn spoil_unit(txn: &mut dyn Txn, ctx: &Context, other: &NsError) -> Result<(), NsError> {
    let NsError::NotAsSent { object, unit, .. } = other else { return Ok(()) };
    let (_, units) = units_of(txn, *object)?;
    let ino = usize::try_from(*unit).ok().and_then(|unit| units.get(unit)).map(|unit| unit.ino);
    let Some(ino) = ino else { return Ok(()) };
    if let Some(mut located) = locate(txn, ino)?
        && let Kind::File(content) = &mut located.inode.kind
    {
        content.sums = None;
        located.store(txn, ctx);
    }
    Ok(())
}

/// Compares the units, which make a file of `len` bytes, with the announced length and the sent checksums.
fn compare(
    read: &dyn Read,
    (object, announced): (ObjectId, Option<u64>),
    len: u64,
    request: &CommitStriped,
) -> Result<(), NsError> {
    let said = request.sums.map(|(len, _)| len);
    // A file fetched from another server, or made from another file, has no announced length.
    let announced = announced.filter(|len| *len != u64::MAX);
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

/// See [`EndStriped`]. Returns whether the file is complete. [`NsError::Stale`] if a unit still has an open write, or if the writer was fenced or has
/// ended.
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

impl Operation for CommitStriped {
    const TAG: OpTag = OpTag::CommitStriped;
    type Reply = CommitReply;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<CommitReply, NsError> {
        commit_striped(txn, ctx, self)
    }
    /// The end of an open write deletes its record.
    fn is_undone(&self, read: &dyn Read) -> Result<bool, NsError> {
        is_being_written(read, &self.writing.writer)
    }
}

operations! {
    EndStriped, end_striped -> bool;
}
