//! The part of a capability for the server that receives it, besides the client, its rights and the expiry.

use serde::{Deserialize, Serialize};
use types::{GroupId, InSyncReplica, SessionId, StoreId, WriterToken};

use crate::replication::{Epoch, ObjectDigest};

/// The cluster's part of a capability. It is in `types::Capability::layout`, which has room for
/// [`types::capability::LAYOUT_BYTES_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The store that it is for.
    pub store: StoreId,
    /// The disk server's session when the manager gave it. It is valid in that session only.
    pub session: SessionId,
    /// The group of the object.
    pub group: GroupId,
    /// What it allows.
    pub rights: GrantRights,
}

/// What a grant allows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GrantRights {
    /// Writing, with this store as the primary.
    Write {
        /// The writer.
        writer: WriterToken,
        /// All in-sync replicas, the primary first.
        in_sync: Vec<InSyncReplica>,
        /// The object is new, and this store may have no replica yet.
        may_make: bool,
    },
    /// Reading a complete object.
    Read {
        /// The epoch of its last writer.
        epoch: Epoch,
        /// Its digest.
        whole: ObjectDigest,
    },
    /// Reading the object of an open write at its primary.
    Follow,
    /// Reading the bytes kept of an interrupted file.
    Kept {
        /// The epoch of its last writer.
        epoch: Epoch,
    },
}

#[cfg(test)]
mod tests {
    use types::{BootGeneration, ObjectId, REPLICAS_MAX, WriterKey, capability::LAYOUT_BYTES_MAX};

    use super::*;

    #[test]
    fn a_grant_of_any_numbers_fits_into_a_capability() {
        let writer = WriterToken { key: WriterKey(u64::MAX), object: ObjectId(u64::MAX), epoch: u32::MAX };
        let in_sync = vec![
            InSyncReplica { store: StoreId(u64::MAX), boot_generation: BootGeneration(u32::MAX) };
            usize::from(REPLICAS_MAX)
        ];
        let rights = GrantRights::Write { writer, in_sync, may_make: true };
        let (session, group) = (SessionId(u64::MAX), GroupId(u64::MAX));
        let grant = Grant { store: StoreId(u64::MAX), session, group, rights };
        let bytes = postcard::to_allocvec(&grant).unwrap();
        assert!(bytes.len() <= LAYOUT_BYTES_MAX, "{} bytes", bytes.len());
        assert_eq!(postcard::from_bytes::<Grant>(&bytes).unwrap(), grant);
    }
}
