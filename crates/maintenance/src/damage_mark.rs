//! The mark of a damaged file: an extended attribute with the finding and the object's number. `fsck --repair` and the scrub set it. The server
//! refuses the checksum of a marked file.

use namespace::{Actor, Namespace, NsError, RemoveXattr, SetXattr, XattrMode};
use types::{ErrorCode, NsPath, ObjectId};

use crate::now;

/// The name of the attribute.
pub const NAME: &[u8] = namespace::DAMAGED_MARK;

/// Marks the file at `path`. The file keeps its name and its readable bytes.
pub fn mark(namespace: &Namespace, path: &[u8], what: &str, object: Option<ObjectId>) -> Result<(), NsError> {
    let what = object.map_or_else(|| what.to_owned(), |object| namespace::damage_mark(what, object));
    let Ok(path) = NsPath::parse(path) else {
        // The path is longer than a request allows.
        return Err(NsError::NotFound(path.escape_ascii().to_string(), "path that can be asked for"));
    };
    let context = namespace.context(now(), &Actor::admin(), None);
    let request = SetXattr { of: path.into(), name: NAME.to_vec(), value: what.into_bytes(), mode: XattrMode::Set };
    match namespace.change_wait(kv::Durability::Synced, context, request) {
        // The file was renamed or removed just now. The next pass finds it in its new place.
        Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
        done => done,
    }
}

/// Removes the mark: the object is intact again.
pub fn unmark(namespace: &Namespace, path: &[u8]) -> Result<(), NsError> {
    let Ok(path) = NsPath::parse(path) else { return Ok(()) };
    let context = namespace.context(now(), &Actor::admin(), None);
    match namespace.change_wait(kv::Durability::Synced, context, RemoveXattr { of: path.into(), name: NAME.to_vec() }) {
        Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
        done => done,
    }
}
