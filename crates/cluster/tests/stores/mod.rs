//! Stores for the placement tests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, clippy::cast_precision_loss)] // a test may fail this way

use std::collections::BTreeMap;

use cluster::placement::{Load, Map, StoreInfo, StoreState, choose_stores};
use types::{Location, NodeId, Policy, StoreId};

pub const TIB: u64 = 1 << 40;

pub fn policy(text: &str) -> Policy {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub fn location_of(text: &str) -> Location {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// An empty store of 10 TiB, a tenth of which is reserved.
pub fn store(id: u64, location: &str, class: &str) -> StoreInfo {
    StoreInfo {
        store: StoreId(id),
        node: NodeId(id),
        location: location_of(location),
        class: (!class.is_empty()).then(|| class.parse().unwrap()),
        capacity: 10 * TIB,
        reserve: TIB,
        free: 10 * TIB,
        load: Load::default(),
        state: StoreState::Online,
    }
}

/// `n` stores, spread evenly over `sites` sites of 4 racks, with two stores on each host.
pub fn even(n: u64, sites: u64) -> Vec<StoreInfo> {
    (0..n)
        .map(|id| {
            let host = id / 2;
            let (site, rack) = (host % sites, host / sites % 4);
            store(1000 + id * 7, &format!("site{site}/r{rack}/h{host}"), "")
        })
        .collect()
}

/// The same with one to four times the space.
pub fn uneven(n: u64, sites: u64) -> Vec<StoreInfo> {
    let mut stores = even(n, sites);
    for (info, n) in stores.iter_mut().zip(0..) {
        let factor = 1 + n % 4;
        info.capacity = factor * 9 * TIB + TIB;
        info.free = info.capacity;
    }
    stores
}

pub fn map(stores: Vec<StoreInfo>) -> Map {
    Map::new(stores).unwrap()
}

/// How many replicas of `contents` objects each store got, as primary and in all.
pub fn drawn(map: &Map, policy: &Policy, contents: u64) -> BTreeMap<StoreId, (u64, u64)> {
    let mut got: BTreeMap<_, _> = map.stores().iter().map(|info| (info.store, (0, 0))).collect();
    for seed in 0..contents {
        for group in choose_stores(map, policy, None, 0, seed).unwrap().groups {
            got.get_mut(&group[0]).unwrap().0 += 1;
            for member in group {
                got.get_mut(&member).unwrap().1 += 1;
            }
        }
    }
    got
}
