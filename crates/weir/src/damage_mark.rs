//! The mark of a damaged file: an extended attribute that says what was found, and of which content. `fsck --repair` and the scrub set
//! it; the server refuses the checksum of a marked file.

use namespace::{Actor, Namespace, NsError, RemoveXattr, SetXattr, XattrMode};
use types::{BodyId, ErrorCode, NsPath};

use crate::serve::now;

/// Its name.
pub const NAME: &[u8] = service::DAMAGED_MARK;

/// Marks the file at `path`. It keeps its name and what is readable of it.
pub fn mark(namespace: &Namespace, path: &[u8], what: &str, body: Option<BodyId>) -> Result<(), NsError> {
    let what = body.map_or_else(|| what.to_owned(), |body| format!("{what}{}{body}", service::CONTENT_OF));
    let Ok(path) = NsPath::parse(path) else {
        // Longer than anything that can be asked for.
        return Err(NsError::NotFound(path.escape_ascii().to_string(), "path that can be asked for"));
    };
    let context = namespace.context(now(), &Actor::admin(), None);
    let request = SetXattr { of: path.into(), name: NAME.to_vec(), value: what.into_bytes(), mode: XattrMode::Set };
    match namespace.change_wait(kv::Durability::Synced, context, request) {
        // Renamed or removed just now: the next pass finds it where it is.
        Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
        done => done,
    }
}

/// Takes the mark away: the content is as it should be again.
pub fn unmark(namespace: &Namespace, path: &[u8]) -> Result<(), NsError> {
    let Ok(path) = NsPath::parse(path) else { return Ok(()) };
    let context = namespace.context(now(), &Actor::admin(), None);
    match namespace.change_wait(kv::Durability::Synced, context, RemoveXattr { of: path.into(), name: NAME.to_vec() }) {
        Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
        done => done,
    }
}

/// Whether `mark` speaks of this content.
#[must_use]
pub fn is_of(mark: &[u8], body: BodyId) -> bool {
    let mark = String::from_utf8_lossy(mark);
    mark.rsplit_once(service::CONTENT_OF).is_some_and(|(_, of)| of == body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_content() {
        let mark = format!("page 3{}{}", service::CONTENT_OF, BodyId(7));
        assert!(is_of(mark.as_bytes(), BodyId(7)));
        assert!(!is_of(mark.as_bytes(), BodyId(8)) && !is_of(b"page 3", BodyId(7)));
    }
}
