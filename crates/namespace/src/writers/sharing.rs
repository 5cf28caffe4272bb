//! The clients that change one complete file in place together: whether each of them may come back without knowing that the others have ended the open
//! write.
//!
//! The record of the open write (`W`) is that of the client that began. On a single node each client that shares it gets a tombstone (`Y`) when it
//! joins, and loses it when it closes the file. So a client that comes back late never writes into a later file of the same name. In a cluster the
//! client itself brings the object that it has written, in its capability, and needs no tombstone.

use kv::Txn;
use types::{BootId, ClientIdentity, NsPath, ObjectId};

use crate::writers::record::EndedWriter;
use crate::{Context, NsError, WriterEnd, keys};

/// A client that shares an open write has closed the file, or has lost its connection. A close may have a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoteSharer {
    /// The client.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: NsPath,
    /// The object.
    pub object: ObjectId,
    /// It may come back.
    pub is_away: bool,
    /// The boot in which it has written.
    pub boot: BootId,
}

/// See [`NoteSharer`].
pub fn note_sharer(txn: &mut dyn Txn, ctx: &Context, request: &NoteSharer) -> Result<(), NsError> {
    if request.is_away {
        note_away(txn, ctx, (&request.client, request.path.as_bytes()), (request.object, request.boot));
        return Ok(());
    }
    note_back(txn, &request.client, &request.path, request.object)
}

/// The client may come back, and the open write may have ended by then.
pub(super) fn note_away(
    txn: &mut dyn Txn,
    ctx: &Context,
    (client, path): (&ClientIdentity, &[u8]),
    (object, boot): (ObjectId, BootId),
) {
    let ended = EndedWriter {
        key: keys::writer_key(client, path),
        object,
        how: WriterEnd::Completed,
        until: ctx.now.plus(ctx.limits.tombstone_keep),
        client: client.clone(),
        path: path.to_vec(),
        boot: Some(boot),
    };
    ended.put(txn);
}

/// The client knows what has become of its open write of `object`.
pub(super) fn note_back(
    txn: &mut dyn Txn,
    client: &ClientIdentity,
    path: &NsPath,
    object: ObjectId,
) -> Result<(), NsError> {
    let key = keys::writer_key(client, path.as_bytes());
    let ended = EndedWriter::get(txn, key)?.filter(|ended| ended.is_of(client, path));
    if ended.is_some_and(|ended| ended.object == object && ended.how == WriterEnd::Completed) {
        txn.delete(&keys::ended(key));
    }
    Ok(())
}

crate::context::operations! {
    NoteSharer, note_sharer -> ();
}
