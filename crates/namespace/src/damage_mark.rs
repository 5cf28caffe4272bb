//! The mark of a damaged file. A scrub or a check sets it; a server reads it before it answers a request for the file's checksum.

use types::ObjectId;

/// The extended attribute of a file that a scrub or `weir fsck --repair` has found damaged. Its value is the finding, [`OBJECT_SEPARATOR`], and the number
/// of the object.
pub const DAMAGED_MARK: &[u8] = b"weir.damaged";
/// Precedes the number of the object in the value of [`DAMAGED_MARK`].
pub const OBJECT_SEPARATOR: &str = "; content ";

/// The value of the mark: what was found about this object.
#[must_use]
pub fn damage_mark(what: &str, object: ObjectId) -> String {
    format!("{what}{OBJECT_SEPARATOR}{object}")
}

/// Whether a mark is about this object, and not about an earlier content of the file.
#[must_use]
pub fn is_damage_mark_of(mark: &[u8], object: ObjectId) -> bool {
    let mark = String::from_utf8_lossy(mark);
    mark.rsplit_once(OBJECT_SEPARATOR).is_some_and(|(_, of)| of == object.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_applies_to_one_object() {
        let mark = damage_mark("page 3", ObjectId(7));
        assert!(is_damage_mark_of(mark.as_bytes(), ObjectId(7)));
        assert!(!is_damage_mark_of(mark.as_bytes(), ObjectId(8)) && !is_damage_mark_of(b"page 3", ObjectId(7)));
    }
}
