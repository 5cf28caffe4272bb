//! The part of a permission that managers write and disk servers read.

use cluster::server::Grant;
use serde::{Deserialize, Serialize};
use types::capability::Capability;
use types::striping::StripedOpenWrite;
use types::{Ino, ReplicaIndex, Timestamp};

/// The form of `types::Capability::layout`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// What for.
    pub to: To,
    /// Which shard of the content it is about: 0, as long as each store has the whole of what it has.
    pub shard: ReplicaIndex,
    /// The object that the content is of: clients are shown its number.
    pub ino: Ino,
    /// Its permission bits.
    pub mode: u16,
    /// When it was changed last.
    pub mtime: Timestamp,
}

/// What a permission is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum To {
    /// A replica on a store of the server.
    Replica(Grant),
    /// A striped file, which the server puts together from its units, wherever these are.
    Striped(Striped),
}

/// A striped file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Striped {
    /// Units side by side.
    pub width: u8,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// To do what.
    pub rights: StripedRights,
}

/// What may be done with a striped file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StripedRights {
    /// To write a new one.
    Write {
        /// Who does, and that he may.
        writing: StripedOpenWrite,
        /// It was interrupted, and is to be gone on with: so are its units, as far as they have ended.
        goes_on: bool,
    },
    /// To read one that nobody writes.
    Read {
        /// How long it is; of one whose writer went away, how much is there without a gap.
        len: u64,
        /// Its writer went away.
        is_partial: bool,
    },
    /// To read one that is being written.
    Follow,
}

impl Layout {
    /// Its bytes. Of what has no form there are none, and what is sealed with it is refused.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        link::encode(self).unwrap_or_default()
    }

    /// The layout of [`Layout::encode`]; `None`: these bytes are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        link::decode(bytes).ok()
    }
}

/// What a permission that was found good allows at one store; `None`: it is of another kind.
#[must_use]
pub fn grant_of(permission: &Capability) -> Option<Grant> {
    match Layout::decode(&permission.layout)?.to {
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
    fn what_it_is_for_fits_into_a_permission_whatever_its_numbers_are() {
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
            };
            let bytes = layout.encode();
            assert!(!bytes.is_empty() && bytes.len() <= LAYOUT_BYTES_MAX, "{} bytes", bytes.len());
            assert_eq!(Layout::decode(&bytes), Some(layout));
        }
    }
}
