//! The part of a capability that managers write and disk servers read.

use cluster::server::Grant;
use serde::{Deserialize, Serialize};
use types::capability::Capability;
use types::striping::StripedOpenWrite;
use types::{Ino, ReplicaIndex, Timestamp};

/// The contents of `types::Capability::layout`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// The purpose of the capability.
    pub to: To,
    /// The shard that the capability is for: 0, as long as each replica is a whole copy.
    pub shard: ReplicaIndex,
    /// The inode of the file. Clients are shown its number.
    pub ino: Ino,
    /// The permission bits of the file.
    pub mode: u16,
    /// The time of its last change.
    pub mtime: Timestamp,
    /// For an open write: the length that it may reach before it must reserve more. `None`: any length.
    pub may_reach: Option<u64>,
}

/// The purpose of a capability.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum To {
    /// Access to a replica on a store of the server.
    Replica(Grant),
    /// Access to a striped file, whose units the server combines, wherever they are.
    Striped(Striped),
}

/// A striped file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Striped {
    /// The number of units.
    pub width: u8,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// The rights of the client.
    pub rights: StripedRights,
}

/// The rights to a striped file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StripedRights {
    /// Write a new file.
    Write {
        /// The open write of the client.
        writing: StripedOpenWrite,
        /// Whether to continue an interrupted file, including its units that have ended.
        goes_on: bool,
    },
    /// Read a file that is not being written.
    Read {
        /// Its length. If the file is interrupted, the length up to the first unwritten range.
        len: u64,
        /// Whether the file is interrupted.
        is_partial: bool,
    },
    /// Read a file that is being written.
    Follow,
}

impl Layout {
    /// Encodes the layout. The bytes are empty if it cannot be encoded; servers refuse a capability with empty bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        link::encode(self).unwrap_or_default()
    }

    /// Decodes the bytes of [`Layout::encode`]. `None` if they are invalid.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        link::decode(bytes).ok()
    }
}

/// The rights of a valid capability at one store. `None` if it has another purpose.
#[must_use]
pub fn grant_of(capability: &Capability) -> Option<Grant> {
    match Layout::decode(&capability.layout)?.to {
        To::Replica(grant) => Some(grant),
        To::Striped(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use cluster::server::GrantRights;
    use types::{
        BootGeneration, GroupId, InSyncReplica, ObjectId, REPLICAS_MAX, SessionId, StoreId, WriterKey, WriterToken,
        capability::LAYOUT_BYTES_MAX, striping::WriteSecret,
    };

    use super::*;

    #[test]
    fn the_layout_fits_into_a_capability_whatever_its_numbers() {
        let writer = WriterToken { key: WriterKey(u64::MAX), object: ObjectId(u64::MAX), epoch: u32::MAX };
        let writing = StripedOpenWrite { writer, secret: WriteSecret(u128::MAX) };
        let in_sync = vec![
            InSyncReplica { store: StoreId(u64::MAX), boot_generation: BootGeneration(u32::MAX) };
            usize::from(REPLICAS_MAX)
        ];
        let rights = GrantRights::Write { writer, in_sync, may_make: true };
        let (session, group) = (SessionId(u64::MAX), GroupId(u64::MAX));
        let replica = To::Replica(Grant { store: StoreId(u64::MAX), session, group, rights });
        let striped =
            Striped { width: u8::MAX, chunk: u64::MAX, rights: StripedRights::Write { writing, goes_on: true } };
        for to in [replica, To::Striped(striped)] {
            let layout = Layout {
                to,
                shard: ReplicaIndex(u16::MAX),
                ino: Ino(u64::MAX),
                mode: u16::MAX,
                mtime: Timestamp(i64::MIN),
                may_reach: Some(u64::MAX),
            };
            let bytes = layout.encode();
            assert!(!bytes.is_empty() && bytes.len() <= LAYOUT_BYTES_MAX, "{} bytes", bytes.len());
            assert_eq!(Layout::decode(&bytes), Some(layout));
        }
    }
}
