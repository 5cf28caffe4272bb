//! Who is writing (`W`), and which bodies are there (`B`).

use kv::Read;
use types::{BodyId, ClientIdentity, GroupId, NsPath};

use crate::{BodyRecord, NsError, WriterKey, WriterRecord};

/// Names one writer at one epoch. A server keeps it with the handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WriterToken {
    /// From client and path.
    pub key: WriterKey,
    /// The content being written.
    pub body: BodyId,
    /// Raised by each re-open.
    pub epoch: u32,
}

/// Those who write, in key order after `after`, at most `limit`.
pub fn writers(
    read: &dyn Read,
    after: Option<(WriterKey, BodyId)>,
    limit: usize,
) -> Result<Vec<WriterRecord>, NsError> {
    todo!("{}", limit + usize::from(after.is_some()) + usize::from(read.get(b"")?.is_some()))
}

/// The writers that a re-open of `path` by `client` would match. A server asks before it opens when the machine has
/// booted since, to learn from the store whether bytes were lost ([`crate::OpenWrite::vouched`]).
pub fn find_writer(read: &dyn Read, client: &ClientIdentity, path: &NsPath) -> Result<Vec<WriterRecord>, NsError> {
    todo!("{client:?} {path} {}", read.get(b"")?.is_some())
}

/// The bodies of `group` in order after `after`, at most `limit`: for audits of stores.
pub fn bodies(
    read: &dyn Read,
    group: GroupId,
    after: Option<BodyId>,
    limit: usize,
) -> Result<Vec<BodyRecord>, NsError> {
    todo!("{group} {after:?} {limit} {}", read.get(b"")?.is_some())
}

/// One body's record.
pub fn body_record(read: &dyn Read, group: GroupId, body: BodyId) -> Result<Option<BodyRecord>, NsError> {
    todo!("{group} {body} {}", read.get(b"")?.is_some())
}
