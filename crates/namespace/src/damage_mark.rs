//! The mark of a damaged file. A scrub or a check sets it; a server reads it before it answers a request for the file's checksum.

/// The extended attribute of a file that a scrub or `weir fsck --repair` has found damaged. Its value is the finding, [`OBJECT_SEPARATOR`], and the number
/// of the object.
pub const DAMAGED_MARK: &[u8] = b"weir.damaged";
/// Precedes the number of the object in the value of [`DAMAGED_MARK`].
pub const OBJECT_SEPARATOR: &str = "; content ";
