//! The start of every open write: the records that it creates, and the error if another writer has the file open.

use kv::Txn;
use types::{GroupId, Ino, NsPath, ObjectId};

use crate::tree::node::{Located, RecordLocation, new_inode};
use crate::{
    Access, Content, Context, FileState, Inode, Kind, NewStripe, NsError, OpenKind, OpenWrite, OpenedWrite, Read,
    StripeRecord, WriterKey, WriterKind, WriterRecord, keys, unit_writer,
};

/// Starts a writer.
pub(crate) fn begin_writer(
    ctx: &Context,
    request: &OpenWrite,
    key: WriterKey,
    kind: WriterKind,
    ino: Ino,
    object: ObjectId,
) -> WriterRecord {
    WriterRecord {
        key,
        object,
        epoch: 1,
        kind,
        ino,
        parent: Ino(0),
        session: ctx.session,
        boot: request.boot,
        client: request.client.clone(),
        path: request.path.as_bytes().to_vec(),
        expected_len: request.expected_len,
        opened: ctx.now,
        sums_before: None,
        placement: request.placement.clone(),
        is_ending: false,
        reservation: None,
    }
}

pub(crate) fn new_content(object: ObjectId, group: GroupId, key: WriterKey) -> Content {
    Content { object, group, len: 0, state: FileState::Open(key), sums: None, generation: 0, shared: false }
}

pub(crate) fn opened(writer: &WriterRecord, kind: OpenKind, len: u64) -> OpenedWrite {
    OpenedWrite {
        writer: writer.token(),
        ino: writer.ino,
        object: writer.object,
        replica: writer.replica(),
        group: writer.placement.group,
        kind,
        len,
        dropped: Vec::new(),
        in_sync: writer.placement.in_sync.clone(),
        returns: false,
        may_reach: writer.may_reach(len),
    }
}

/// The error that names the other writer.
pub(crate) fn busy(read: &dyn Read, path: &NsPath, key: WriterKey, object: ObjectId) -> NsError {
    match WriterRecord::get(read, key, object) {
        Ok(Some(writer)) => {
            let token = writer.token();
            NsError::Busy { path: path.to_string(), by: Box::new(writer.client), writer: token }
        }
        Ok(None) => {
            let key = keys::writer(key, object).escape_ascii().to_string();
            NsError::Damaged { key, why: "a file says that this writer writes it, but there is none" }
        }
        Err(error) => error,
    }
}

/// Creates the units of a new object, and their writers. The units are not visible.
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
        // The file holds the unit, so it needs no name. Whether a writer may open it again depends on the file.
        let inode = Inode { nlink: 0, holders: 1, ..new_inode(ctx, ino, access.clone(), Kind::File(content)) };
        Located { inode, place: RecordLocation::Own }.store(txn, ctx);
        let expected_len = request.expected_len.map(|len| stripe.unit_len(number, len));
        let begun = begin_writer(ctx, request, key, WriterKind::New, ino, object);
        WriterRecord { client, expected_len, placement: placement.clone(), ..begun }.put(txn);
        record.units.push(ino);
    }
    txn.put(&keys::stripe(parent.object), &record.encode());
    Ok(())
}
