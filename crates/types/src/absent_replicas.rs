//! Reports that a store lacks the replica for which a cluster's manager redirects readers to it.
//!
//! A disk server without the object of a capability redirects its client back to the manager. That is right if the file
//! has changed meanwhile. If the store has lost the replica, or was restored from an old copy, the manager would
//! redirect the client there again and again. The disk server therefore names the absent replica in its
//! redirect. The client's software passes such keys on, and so tells the manager.

use crate::striping::numbers;
use crate::{ObjectId, REPLICAS_MAX, StoreId};

/// The key in a redirect to the manager, and in the following open. The value is a list of [`AbsentReplica`]s, separated
/// by commas.
pub const ABSENT_REPLICAS_KEY: &str = "weir.absent";

/// An object that a store should have but lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbsentReplica {
    /// The object.
    pub object: ObjectId,
    /// The epoch in the capability. The store may have the object in a later one.
    pub epoch: u64,
    /// The store.
    pub store: StoreId,
}

impl AbsentReplica {
    /// The value for the redirect: `before`, which the client has already shown, followed by this replica.
    #[must_use]
    pub fn show(&self, before: &[Self]) -> String {
        let one = |one: &Self| format!("{:016x}.{:016x}.{:016x}", one.object.0, one.epoch, one.store.0);
        let all: Vec<String> = before.iter().filter(|other| *other != self).chain([self]).map(one).collect();
        all.join(",")
    }

    /// Parses the value of [`AbsentReplica::show`]. Ignores invalid items, and all beyond the maximum number of copies.
    #[must_use]
    pub fn parse_all(text: &str) -> Vec<Self> {
        let one = |text| {
            let [object, epoch, store] = numbers(text, [16, 16, 16])?;
            Some(Self { object: ObjectId(object), epoch, store: StoreId(store) })
        };
        text.split(',').take(usize::from(REPLICAS_MAX)).filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_replicas_round_trip() {
        let absent = |n| AbsentReplica { object: ObjectId(n), epoch: u64::MAX - n, store: StoreId(n + 7) };
        assert_eq!(AbsentReplica::parse_all(&absent(1).show(&[])), [absent(1)]);
        let both = absent(2).show(&[absent(1)]);
        assert_eq!(AbsentReplica::parse_all(&both), [absent(1), absent(2)]);
        assert_eq!(absent(2).show(&AbsentReplica::parse_all(&both)), both, "said once");
        assert!(both.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".,".contains(&byte)), "{both}");
        for wrong in ["", ",", "x", "0.0.0", &both[1..2]] {
            assert_eq!(AbsentReplica::parse_all(wrong), [], "{wrong}");
        }
        let many = vec![both; 1000].join(",");
        assert_eq!(AbsentReplica::parse_all(&many).len(), usize::from(REPLICAS_MAX));
    }
}
