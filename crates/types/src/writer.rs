//! The writer of an object.

use crate::ObjectId;

/// Identifies a writer: derived from the client's identity and the path (docs/reference/formats.md).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct WriterKey(pub u64);

/// Names one writer at one epoch. A server keeps it with the handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct WriterToken {
    /// Derived from client and path.
    pub key: WriterKey,
    /// The object being written.
    pub object: ObjectId,
    /// Rises with each re-open.
    pub epoch: u32,
}
