//! Gives the root directory the policy `replica(2)` when stores first stand on several hosts, if nobody has set one. Then the loss of a host loses no
//! file. It happens once in the life of a cluster: an administrator who changes or removes the policy has the last word.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use namespace::{Durability, GiveDefaultPolicy};
use types::{Layout, Policy};

use super::Coordinator;
use super::hosts::split;

/// How many replicas a file gets then.
const REPLICAS: u8 = 2;

/// How far the decision is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DefaultPolicy {
    /// Stores stand on one host, or on none.
    Open,
    /// It is being recorded.
    BeingDecided,
    /// It is recorded.
    Decided,
}

impl Coordinator {
    /// Decides, once stores stand on several hosts.
    pub(super) fn decide_default_policy(self: &Arc<Self>) {
        let hosts = {
            let mut state = self.lock();
            if state.default_policy != DefaultPolicy::Open {
                return;
            }
            let hosts = hosts_of(state.servers.hosts_of_stores());
            if hosts < usize::from(REPLICAS) {
                return;
            }
            state.default_policy = DefaultPolicy::BeingDecided;
            hosts
        };
        let Ok(layout) = Layout::new(REPLICAS, REPLICAS, None) else { return };
        let policy = Policy::new(layout);
        let op = GiveDefaultPolicy { policy: policy.clone(), hosts: u32::try_from(hosts).unwrap_or(u32::MAX) };
        let this = Arc::clone(self);
        self.names.change_as_manager(self.world.wall(), Durability::Synced, op, move |result| {
            let decided = match result {
                Ok(is_given) => {
                    if is_given {
                        tracing::warn!(
                            hosts,
                            "stores stand on several hosts, and nobody has set a policy for /: from now on it is {policy}. Files that are there keep \
                             their replicas; `weir policy set /` changes it"
                        );
                    }
                    DefaultPolicy::Decided
                }
                Err(error) => {
                    tracing::error!(%error, "the policy of / cannot be recorded");
                    DefaultPolicy::Open
                }
            };
            this.lock().default_policy = decided;
        });
    }
}

/// The number of hosts that differ both in their address and in their location: a policy keeps replicas apart by location, and two locations on one
/// machine fail together. A loopback address shows that the cluster is on one machine.
fn hosts_of<'a>(stores: impl Iterator<Item = (Option<&'a str>, String)>) -> usize {
    let (mut addresses, mut locations) = (BTreeSet::new(), BTreeSet::new());
    for (address, location) in stores {
        let Some((host, _)) = address.and_then(split) else { continue };
        if is_loopback(&host) {
            return 1;
        }
        addresses.insert(host);
        locations.insert(location);
    }
    addresses.len().min(locations.len())
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(stores: &[(&str, &str)]) -> usize {
        hosts_of(stores.iter().map(|(address, location)| (Some(*address), (*location).to_owned())))
    }

    #[test]
    fn hosts_differ_in_address_and_location() {
        assert_eq!(hosts(&[]), 0);
        assert_eq!(hosts(&[("ds1:1095", "s/r/ds1"), ("ds2:1095", "s/r/ds2")]), 2);
        assert_eq!(hosts(&[("ds1:1095", "s/r/ds1"), ("ds1:2095", "s/r/ds2")]), 1, "two nodes on one machine");
        assert_eq!(hosts(&[("ds1:1095", "s/r/x"), ("ds2:1095", "s/r/x")]), 1, "no policy could keep them apart");
        assert_eq!(
            hosts(&[("[2001:db8::1]:1095", "s/r/1"), ("10.0.0.2:1095", "s/r/2"), ("10.0.0.3:1095", "s/r/3")]),
            3
        );
        assert_eq!(hosts_of([(None, "s/r/1".to_owned())].into_iter()), 0);
    }

    #[test]
    fn cluster_on_loopback_addresses_is_on_one_machine() {
        for loopback in ["127.0.0.2:1095", "[::1]:1095", "localhost:1095"] {
            assert_eq!(hosts(&[("10.0.0.2:1095", "s/r/1"), ("10.0.0.3:1095", "s/r/2"), (loopback, "s/r/3")]), 1);
        }
    }
}
