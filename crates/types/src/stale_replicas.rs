//! That a store has no longer what a cluster's manager sends readers to it for.
//!
//! A disk server that cannot show what the manager's permission speaks of sends its client back to be told who can. That is right where the file has
//! changed meanwhile. Where the store has lost it, or was brought back from an old copy, the manager would send the client there again, and so on. So the disk
//! server says with the redirect what is lacking, and the client, whose software carries such words along, tells the manager.

use crate::striping::numbers;
use crate::{ObjectId, REPLICAS_MAX, StoreId};

/// The word of a redirect to the manager, and of the open that follows it: [`StaleReplica`]s with commas between.
pub const STALE_REPLICAS_KEY: &str = "weir.lacks";

/// A content that a store should have and has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaleReplica {
    /// The content.
    pub object: ObjectId,
    /// Which state of it: what the permission had. With a later one the store may have it.
    pub epoch: u64,
    /// The store.
    pub store: StoreId,
}

impl StaleReplica {
    /// As it is in the word, behind `before`, what the client has shown of that already.
    #[must_use]
    pub fn show(&self, before: &[Self]) -> String {
        let one = |one: &Self| format!("{:016x}.{:016x}.{:016x}", one.object.0, one.epoch, one.store.0);
        let all: Vec<String> = before.iter().filter(|other| *other != self).chain([self]).map(one).collect();
        all.join(",")
    }

    /// What [`StaleReplica::show`] has made: no more than a content has copies; the rest of the word, and whatever it is not, is left out.
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
    fn it_reads_back_from_its_word() {
        let stale_replicas = |n| StaleReplica { object: ObjectId(n), epoch: u64::MAX - n, store: StoreId(n + 7) };
        assert_eq!(StaleReplica::parse_all(&stale_replicas(1).show(&[])), [stale_replicas(1)]);
        let both = stale_replicas(2).show(&[stale_replicas(1)]);
        assert_eq!(StaleReplica::parse_all(&both), [stale_replicas(1), stale_replicas(2)]);
        assert_eq!(stale_replicas(2).show(&StaleReplica::parse_all(&both)), both, "said once");
        assert!(both.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".,".contains(&byte)), "{both}");
        for wrong in ["", ",", "x", "0.0.0", &both[1..2]] {
            assert_eq!(StaleReplica::parse_all(wrong), [], "{wrong}");
        }
        let many = vec![both; 1000].join(",");
        assert_eq!(StaleReplica::parse_all(&many).len(), usize::from(REPLICAS_MAX));
    }
}
