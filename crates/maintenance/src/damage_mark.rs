//! The mark of a damaged file: an extended attribute with the finding and the object's number. `fsck --repair` and the scrub set it. The server
//! refuses the checksum of a marked file.

use namespace::{Actor, Namespace, NsError, RemoveXattr, SetXattr, XattrMode, XattrOf};
use types::{ErrorCode, NsPath, ObjectId};

use crate::now;

/// The name of the attribute.
pub const NAME: &[u8] = namespace::DAMAGED_MARK;

/// The file at `path`.
///
/// # Errors
/// The path is longer than a request allows.
pub fn at(path: &[u8]) -> Result<XattrOf, NsError> {
    let too_long = |_| NsError::NotFound(path.escape_ascii().to_string(), "path that can be asked for");
    NsPath::parse(path).map(XattrOf::from).map_err(too_long)
}

/// Marks a file. It keeps its name and its readable bytes.
pub fn mark(namespace: &Namespace, of: XattrOf, what: &str, object: Option<ObjectId>) -> Result<(), NsError> {
    let what = object.map_or_else(|| what.to_owned(), |object| namespace::damage_mark(what, object));
    let context = namespace.context(now(), &Actor::admin(), None);
    let request = SetXattr { of, name: NAME.to_vec(), value: what.into_bytes(), mode: XattrMode::Set };
    match namespace.change_wait(kv::Durability::Synced, context, request) {
        // The file was renamed or removed just now. The next pass finds it in its new place.
        Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
        done => done,
    }
}

/// Removes the mark: the object is intact again.
pub fn unmark(namespace: &Namespace, of: XattrOf) -> Result<(), NsError> {
    let context = namespace.context(now(), &Actor::admin(), None);
    match namespace.change_wait(kv::Durability::Synced, context, RemoveXattr { of, name: NAME.to_vec() }) {
        Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
        done => done,
    }
}
