//! What a capability carries for the server that it is shown to, besides who may do what until when.

use serde::{Deserialize, Serialize};
use types::{GroupId, InSyncReplica, SessionId, StoreId, WriterToken};

use crate::replication::{Epoch, ObjectDigest};

/// The part of a capability that is the cluster's affair: it is in `types::Capability::layout`, where there is room for
/// [`types::capability::LAYOUT_BYTES_MAX`] bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The store that it is for.
    pub store: StoreId,
    /// The disk server's session when this was given: it counts in that one alone.
    pub session: SessionId,
    /// The group that the content belongs to.
    pub group: GroupId,
    /// To do what.
    pub rights: GrantRights,
}

/// What a grant is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GrantRights {
    /// To write, this store being the primary.
    Write {
        /// The writer.
        writer: WriterToken,
        /// All that take part, the primary first.
        in_sync: Vec<InSyncReplica>,
        /// It is a new content, of which there need be no replica yet.
        may_make: bool,
    },
    /// To read a content that is whole.
    Read {
        /// The epoch of its last writer.
        epoch: Epoch,
        /// What it is.
        whole: ObjectDigest,
    },
    /// To read what somebody writes, at the store that is its primary.
    Follow,
    /// To read what is kept of a content whose writing was interrupted.
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
    fn a_grant_fits_into_a_capability_whatever_its_numbers_are() {
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
