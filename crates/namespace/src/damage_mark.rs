//! The mark of a damaged file. Whoever finds the damage sets it, and a server that is asked for the file's checksum reads it.

/// The extended attribute of a file that a scrub or `weir fsck --repair` has found damaged. Its value: what was found, [`CONTENT_OF`], the
/// content's number.
pub const DAMAGED_MARK: &[u8] = b"weir.damaged";
/// Stands in the value of [`DAMAGED_MARK`] before the content's number.
pub const CONTENT_OF: &str = "; content ";
