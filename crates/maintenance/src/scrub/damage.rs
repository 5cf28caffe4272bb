//! The scrub's reaction to its findings on a single node: it reports each one once, and marks the file or removes the mark.

use std::sync::Arc;

use namespace::{Namespace, NsError, XattrOf};
use store::Store;
use types::{ErrorCode, GroupId, Ino, ObjectId, ReplicaId};

use super::Findings;
use crate::damage_mark;

/// The findings of a single node.
pub struct MarkedFiles {
    /// Its names.
    pub namespace: Arc<Namespace>,
    /// Its objects.
    pub store: Arc<Store>,
}

impl Findings for MarkedFiles {
    fn damaged(&self, replica: ReplicaId, what: &str) -> Result<bool, String> {
        tell(&self.namespace, &self.store, replica, what).map_err(|error| error.to_string())
    }

    fn whole(&self, replica: ReplicaId) -> Result<(), String> {
        whole_again(&self.namespace, replica).map_err(|error| error.to_string())
    }
}

/// The file of an object.
struct Named {
    ino: Ino,
    path: Vec<u8>,
    /// Its mark, if it has one.
    mark: Option<Vec<u8>>,
}

/// Reports a damaged object and marks its file, unless that was done before. Returns false if the object was removed just now.
fn tell(namespace: &Namespace, store: &Store, replica: ReplicaId, what: &str) -> Result<bool, NsError> {
    let Some(Named { ino, path, mark }) = namespace.read(|read| named(read, replica.object))? else {
        if store.status(replica).is_ok_and(|status| status.is_none()) {
            return Ok(false);
        }
        tracing::error!("scrub: replica {replica}, which no file refers to, is damaged: {what}");
        return Ok(true);
    };
    if mark.is_some_and(|mark| namespace::is_damage_mark_of(&mark, replica.object)) {
        return Ok(true);
    }
    tracing::error!("scrub: {} is damaged on the disk: {what}; write it again from its source", path.escape_ascii());
    // By its number: its path may be too long for a request.
    let what = format!("damaged on the disk: {what}");
    damage_mark::mark(namespace, XattrOf::Inode(ino), &what, Some(replica.object))?;
    Ok(true)
}

/// The object is intact. Removes the damage mark of its file, if any: the file was changed in place since, or the disk recovered.
fn whole_again(namespace: &Namespace, replica: ReplicaId) -> Result<(), NsError> {
    let Some(Named { ino, path, mark: Some(mark) }) = namespace.read(|read| named_if_marked(read, replica.object))?
    else {
        return Ok(());
    };
    if !namespace::is_damage_mark_of(&mark, replica.object) {
        return Ok(());
    }
    tracing::info!(
        "scrub: {} reads as it was written again; it is not marked as damaged any more",
        path.escape_ascii()
    );
    damage_mark::unmark(namespace, XattrOf::Inode(ino))
}

fn named(read: &dyn kv::Read, object: ObjectId) -> Result<Option<Named>, NsError> {
    let Some(record) = namespace::object_record(read, GroupId::DEFAULT, object)? else { return Ok(None) };
    let path = match namespace::path_of(read, record.ino) {
        Ok(path) => path,
        Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Named { ino: record.ino, path, mark: namespace::xattr_of(read, record.ino, damage_mark::NAME)? }))
}

/// Like `named`, but only for marked files. For nearly all files, one lookup shows that they are not marked.
fn named_if_marked(read: &dyn kv::Read, object: ObjectId) -> Result<Option<Named>, NsError> {
    let Some(record) = namespace::object_record(read, GroupId::DEFAULT, object)? else { return Ok(None) };
    match namespace::xattr_of(read, record.ino, damage_mark::NAME)? {
        Some(_) => named(read, object),
        None => Ok(None),
    }
}
