//! Proxies that clients have delegated for third-party copies, until the disk servers ask to which the clients were sent. They are in memory only.

use std::collections::HashMap;
use std::time::Duration;

use cluster::Time;
use node::SentProxy;
use types::{NodeId, ObjectId};

use crate::tracked::Tracked;

/// How long a proxy is held. The client's capability for the disk server must be shown for the first time within the same time.
const HELD_FOR: Duration = Duration::from_secs(60);
/// The most proxies that are held. Each may have 64 KiB.
pub(crate) const HELD_MAX: usize = 256;

/// The proxies that are held.
#[derive(Default)]
pub(crate) struct DelegatedProxies(Tracked<HashMap<ObjectId, Held>>);

struct Held {
    node: NodeId,
    proxy: SentProxy,
    since: Time,
}

impl DelegatedProxies {
    /// Holds a proxy for a node. Returns whether there was room.
    pub(crate) fn hold(&self, now: Time, (node, object): (NodeId, ObjectId), proxy: SentProxy) -> bool {
        let mut held = self.0.lock();
        let is_full = held.len() >= HELD_MAX && !held.contains_key(&object);
        if !is_full {
            held.insert(object, Held { node, proxy, since: now });
        }
        !is_full
    }

    /// The proxy for this object, if it is held for this node. It stays: the client may repeat its request there.
    pub(crate) fn of(&self, now: Time, node: NodeId, object: ObjectId) -> Option<SentProxy> {
        let held = self.0.lock();
        let held = held.get(&object)?;
        (held.node == node && now.since(held.since) < HELD_FOR).then(|| held.proxy.clone())
    }

    /// Drops those that were held long enough. Call it regularly.
    pub(crate) fn tick(&self, now: Time) {
        self.0.lock().retain(|_, held| now.since(held.since) < HELD_FOR);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use types::Timestamp;

    use super::*;

    #[test]
    fn a_proxy_is_for_one_node_and_object_and_a_minute() {
        let held = DelegatedProxies::default();
        let now = Time::default();
        let proxy = SentProxy::new("x".into(), Timestamp::from_secs(9)).unwrap();
        assert!(held.hold(now, (NodeId(1), ObjectId(5)), proxy.clone()));
        assert_eq!(held.of(now, NodeId(1), ObjectId(5)), Some(proxy.clone()));
        assert_eq!(held.of(now, NodeId(2), ObjectId(5)), None, "another node");
        assert_eq!(held.of(now, NodeId(1), ObjectId(6)), None, "another object");
        // The client asks again, and is sent elsewhere.
        assert!(held.hold(now, (NodeId(2), ObjectId(5)), proxy.clone()));
        assert_eq!(held.of(now, NodeId(1), ObjectId(5)), None);
        let later = now + HELD_FOR;
        assert_eq!(held.of(later, NodeId(2), ObjectId(5)), None, "too late");
        for number in 100..100 + HELD_MAX as u64 - 1 {
            assert!(held.hold(now, (NodeId(1), ObjectId(number)), proxy.clone()));
        }
        assert!(!held.hold(now, (NodeId(1), ObjectId(7)), proxy.clone()), "they are bounded");
        assert!(held.hold(now, (NodeId(1), ObjectId(5)), proxy.clone()));
        held.tick(later);
        assert!(held.hold(later, (NodeId(1), ObjectId(7)), proxy));
    }
}
