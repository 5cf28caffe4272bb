//! Proxies that clients have delegated for third-party copies, until the disk servers ask to which the clients were sent. They are in memory only.

use std::collections::HashMap;
use std::time::Duration;

use cluster::Time;
use node::{FoundProxy, SentProxy};
use types::{NodeId, ObjectId, PrincipalId};

use crate::tracked::Tracked;

/// How long a proxy is held. The client's capability for the disk server must be shown for the first time within the same time.
const HELD_FOR: Duration = Duration::from_secs(60);
/// The most proxies that are held. Each may have 64 KiB.
const HELD_MAX: usize = 256;
/// The most of them of one principal. A disk server takes a proxy as soon as the client is there, so few are held at a time.
const OF_ONE_MAX: usize = 32;
/// The most entries, with those of proxies that a disk server has taken.
const ENTRIES_MAX: usize = 4096;

/// The proxies that are held.
#[derive(Default)]
pub(crate) struct DelegatedProxies(Tracked<HashMap<ObjectId, Held>>);

struct Held {
    node: NodeId,
    principal: PrincipalId,
    /// `None`: the node has taken it.
    proxy: Option<SentProxy>,
    since: Time,
}

/// Whether one more of this principal may be held.
fn has_room(held: &HashMap<ObjectId, Held>, principal: PrincipalId) -> bool {
    let waiting = || held.values().filter(|held| held.proxy.is_some());
    held.len() < ENTRIES_MAX
        && waiting().count() < HELD_MAX
        && waiting().filter(|held| held.principal == principal).count() < OF_ONE_MAX
}

impl DelegatedProxies {
    /// Whether a proxy of this principal may be held.
    pub(crate) fn has_room(&self, principal: PrincipalId) -> bool {
        has_room(&self.0.lock(), principal)
    }

    /// Holds a proxy of a principal for a node. Returns whether there was room.
    pub(crate) fn hold(
        &self,
        now: Time,
        (node, object): (NodeId, ObjectId),
        principal: PrincipalId,
        proxy: SentProxy,
    ) -> bool {
        let mut held = self.0.lock();
        let replaces = held.get(&object).is_some_and(|held| held.principal == principal && held.proxy.is_some());
        let has_room = replaces || has_room(&held, principal);
        if has_room {
            held.insert(object, Held { node, principal, proxy: Some(proxy), since: now });
        }
        has_room
    }

    /// Gives the proxy for this object, if it is held for this node, and drops it here.
    pub(crate) fn take(&self, now: Time, node: NodeId, object: ObjectId) -> FoundProxy {
        let mut held = self.0.lock();
        let found = held.get_mut(&object).filter(|held| held.node == node && now.since(held.since) < HELD_FOR);
        found.map_or(FoundProxy::None, |held| held.proxy.take().map_or(FoundProxy::Given, FoundProxy::Proxy))
    }

    /// Drops those that were held long enough. Call it regularly.
    pub(crate) fn tick(&self, now: Time) {
        self.0.lock().retain(|_, held| now.since(held.since) < HELD_FOR);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use node::CopySource;
    use types::Timestamp;

    use super::*;

    const ANA: PrincipalId = PrincipalId(1000);
    const BEN: PrincipalId = PrincipalId(1001);

    fn proxy() -> SentProxy {
        let source = CopySource { server: "there".into(), tls: false, path: "/a".into() };
        SentProxy::new("x".into(), Timestamp::from_secs(9), source).unwrap()
    }

    #[test]
    fn a_proxy_is_for_one_node_and_object_and_a_minute() {
        let held = DelegatedProxies::default();
        let now = Time::default();
        assert!(held.hold(now, (NodeId(1), ObjectId(5)), ANA, proxy()));
        assert_eq!(held.take(now, NodeId(2), ObjectId(5)), FoundProxy::None, "another node");
        assert_eq!(held.take(now, NodeId(1), ObjectId(6)), FoundProxy::None, "another object");
        // The client asks again, and is sent elsewhere.
        assert!(held.hold(now, (NodeId(2), ObjectId(5)), ANA, proxy()));
        assert_eq!(held.take(now, NodeId(1), ObjectId(5)), FoundProxy::None);
        let later = now + HELD_FOR;
        assert_eq!(held.take(later, NodeId(2), ObjectId(5)), FoundProxy::None, "too late");
        held.tick(later);
        assert_eq!(held.take(now, NodeId(2), ObjectId(5)), FoundProxy::None, "it is dropped");
    }

    #[test]
    fn a_proxy_is_given_once() {
        let held = DelegatedProxies::default();
        let now = Time::default();
        assert!(held.hold(now, (NodeId(1), ObjectId(5)), ANA, proxy()));
        assert_eq!(held.take(now, NodeId(1), ObjectId(5)), FoundProxy::Proxy(proxy()));
        assert_eq!(held.take(now, NodeId(1), ObjectId(5)), FoundProxy::Given);
        // The client has come to the manager again.
        assert!(held.hold(now, (NodeId(1), ObjectId(5)), ANA, proxy()));
        assert_eq!(held.take(now, NodeId(1), ObjectId(5)), FoundProxy::Proxy(proxy()));
    }

    #[test]
    fn nobody_takes_the_room_of_others() {
        let held = DelegatedProxies::default();
        let now = Time::default();
        let at = |number: usize| (NodeId(1), ObjectId(100 + number as u64));
        for number in 0..OF_ONE_MAX {
            assert!(held.hold(now, at(number), ANA, proxy()));
        }
        assert!(!held.has_room(ANA) && !held.hold(now, at(OF_ONE_MAX), ANA, proxy()), "her share");
        assert!(held.hold(now, at(0), ANA, proxy()), "it replaces one");
        assert!(held.has_room(BEN) && held.hold(now, at(1000), BEN, proxy()));
        // What was taken makes room.
        assert_eq!(held.take(now, NodeId(1), at(0).1), FoundProxy::Proxy(proxy()));
        assert!(held.hold(now, at(OF_ONE_MAX), ANA, proxy()));
        for number in 0..HELD_MAX {
            let principal = PrincipalId(2000 + u32::try_from(number / OF_ONE_MAX).unwrap());
            assert_eq!(held.hold(now, at(2000 + number), principal, proxy()), number < HELD_MAX - OF_ONE_MAX - 1);
        }
        assert!(!held.has_room(BEN), "all are bounded");
        held.tick(now + HELD_FOR);
        assert!(held.has_room(ANA) && held.has_room(BEN));
    }
}
