//! Placement: the demands and preferences of a policy, and refusals.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::stores::{drawn, even, location_of, map, policy, store, uneven};
use cluster::placement::{
    First, Map, MapError, PlacementError, STORES_MAX, StoreInfo, StoreState, can_be_met, choose_other_stores,
    choose_stores, groups,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{ErrorCode, Policy, Shared, Spread, StoreId};

#[test]
fn stores_that_cannot_take_anything_get_nothing() {
    let mut stores = even(12, 3);
    let states =
        [StoreState::Suspect, StoreState::Offline, StoreState::Draining, StoreState::ReadOnly, StoreState::Full];
    for (info, state) in stores.iter_mut().zip(states) {
        info.state = state;
    }
    let closed: BTreeSet<_> = stores[..states.len()].iter().map(|info| info.store).collect();
    let map = map(stores);
    for text in ["replica(1)", "replica(2) spread=rack", "replica(3)", "stripe(4, 1MiB) replica(2)"] {
        for (store, (_, copies)) in drawn(&map, &policy(text), 2_000) {
            assert_eq!(copies == 0, closed.contains(&store), "{text}: store {store} got {copies}");
        }
    }
}

#[test]
fn a_store_that_is_said_to_have_no_room_gets_nothing() {
    let map = map(even(6, 3));
    let all: Vec<StoreId> = map.stores().iter().map(|info| info.store).collect();
    let (full, policy) = (&all[..2], policy("replica(2)"));
    for seed in 0..2_000 {
        let placed = choose_other_stores(&map, &policy, None, 1, full, seed).unwrap();
        assert!(placed.groups.iter().flatten().all(|store| !full.contains(store)), "{placed:?}");
    }
    // Too few are left for the policy: that is a lack of room, too.
    for full in [&all[..5], &all[..]] {
        let nowhere = choose_other_stores(&map, &policy, None, 1, full, 1);
        assert_eq!(nowhere.map_err(|error| error.code()), Err(ErrorCode::NoSpace));
    }
}

fn is_allowed(map: &Map, policy: &Policy, group: &[StoreId]) -> bool {
    let infos: Vec<_> = group.iter().map(|id| map.store(*id).unwrap()).collect();
    let apart = |a: &StoreInfo, b: &StoreInfo| match policy.spread() {
        Spread::Host => a.location.shared_with(&b.location) < Shared::Host,
        Spread::Rack => a.location.shared_with(&b.location) < Shared::Rack,
        Spread::Site => a.location.shared_with(&b.location) < Shared::Site,
    };
    let spread = infos.iter().enumerate().all(|(at, a)| infos[at + 1..].iter().all(|b| apart(a, b)));
    let of = |class| infos.iter().filter(|info| info.class.as_ref() == Some(class)).count();
    group.len() == usize::from(policy.layout().replicas())
        && spread
        && policy.classes().iter().all(|(class, copies)| of(class) >= usize::from(*copies))
        && infos.iter().all(|info| info.state == StoreState::Online && info.room() > 0)
}

/// Whether the policy allows any set of stores that contains the chosen ones. It tries all.
fn any_allowed(map: &Map, policy: &Policy, chosen: &mut Vec<StoreId>, from: usize) -> bool {
    if chosen.len() == usize::from(policy.layout().replicas()) {
        return is_allowed(map, policy, chosen);
    }
    (from..map.stores().len()).any(|at| {
        let store = map.stores()[at].store;
        if chosen.contains(&store) {
            return false;
        }
        chosen.push(store);
        let found = any_allowed(map, policy, chosen, at + 1);
        chosen.pop();
        found
    })
}

#[test]
fn on_any_small_cluster_groups_meet_the_demands_and_refusals_are_right() {
    let (mut placed, mut refused) = (0, HashMap::<_, u32>::new());
    for seed in 0..4_000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let stores: Vec<_> = (0..rng.random_range(1..9))
            .map(|id| {
                let (site, rack, host) = (rng.random_range(0..4), rng.random_range(0..2), rng.random_range(0..2));
                let class = ["", "a", "b", "c"][rng.random_range(0..4)];
                let mut info = store(id, &format!("s{site}/r{rack}/h{host}"), class);
                if rng.random_ratio(1, 12) {
                    info.state = StoreState::Offline;
                }
                info
            })
            .collect();
        let map = map(stores);
        let spread = ["host", "rack", "site"][rng.random_range(0..3)];
        let replicas = rng.random_range(1..5u8);
        let mut text = format!("replica({replicas}) spread={spread}");
        let (mut left, mut classes) = (replicas, Vec::new());
        for class in ["a", "b", "c"] {
            let copies = if rng.random_ratio(1, 2) { rng.random_range(0..=left) } else { 0 };
            left -= copies;
            classes.extend((copies > 0).then(|| format!("{class}:{copies}")));
        }
        if !classes.is_empty() {
            text += &format!(" class={}", classes.join(","));
        }
        let policy = policy(&text);
        match groups(&map, &policy) {
            Ok(groups) => {
                let firsts: BTreeSet<_> = groups.iter().map(|group| group[0]).collect();
                for info in map.stores() {
                    let can_be = any_allowed(&map, &policy, &mut vec![info.store], 0);
                    assert_eq!(firsts.contains(&info.store), can_be, "seed {seed}, {text}: {info:?} as the first one");
                }
                for group in groups {
                    assert!(is_allowed(&map, &policy, &group), "seed {seed}, {text}: {group:?} in {:?}", map.stores());
                }
                let found = choose_stores(&map, &policy, None, 0, seed).unwrap();
                assert!(is_allowed(&map, &policy, &found.groups[0]), "seed {seed}, {text}");
                placed += 1;
            }
            Err(error) => {
                assert!(!any_allowed(&map, &policy, &mut Vec::new(), 0), "seed {seed}, {text}: {error}");
                assert_eq!(choose_stores(&map, &policy, None, 0, seed), Err(error.clone()));
                *refused.entry(std::mem::discriminant(&error)).or_default() += 1;
            }
        }
    }
    println!("{placed} placed, refused {:?}", refused.values().collect::<Vec<_>>());
    assert!(placed > 1_000 && refused.values().filter(|n| **n > 20).count() >= 3, "{placed} placed, {refused:?}");
}

#[test]
fn every_possible_primary_is_chosen() {
    // The only store of class t1 is on site a, so the other stores on site a cannot have the first replica.
    let stores = vec![store(1, "a/r/h1", "t1"), store(2, "a/r/h2", ""), store(3, "b/r/h3", ""), store(4, "c/r/h4", "")];
    let map = map(stores);
    let got = drawn(&map, &policy("replica(2) spread=site class=t1:1"), 3_000);
    assert_eq!(got[&StoreId(2)], (0, 0));
    assert_eq!(got[&StoreId(1)].1, 3_000, "one copy of each is on the reliable store");
    assert!(got[&StoreId(1)].0 > 800 && got[&StoreId(3)].0 > 800 && got[&StoreId(4)].0 > 800, "{got:?}");
}

#[test]
fn a_policy_that_cannot_be_met_is_refused_with_advice() {
    let why = |stores: Vec<StoreInfo>, text: &str| {
        let map = map(stores);
        let error = can_be_met(&map, &policy(text)).unwrap_err();
        assert_eq!(choose_stores(&map, &policy(text), None, 0, 1).unwrap_err(), error);
        error
    };
    assert_eq!(why(vec![], "replica(1)"), PlacementError::NoStores);
    let error = why(even(12, 2), "replica(3) spread=site");
    assert_eq!(error, PlacementError::TooFewLocations { spread: Spread::Site, needed: 3, found: 2 });
    assert_eq!(
        error.to_string(),
        "replica(3) spread=site needs stores that take new objects on 3 different sites, and there are 2; ask for \
         fewer replicas or a smaller spread (rack, host), or add a store on another site"
    );
    let mut one_class = even(12, 3);
    one_class[0].class = Some("t1".parse().unwrap());
    one_class[1].class = one_class[0].class.clone(); // on the same host
    let error = why(one_class.clone(), "replica(2) class=t1:2");
    assert!(matches!(error, PlacementError::TooFewOfClass { needed: 2, found: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("add a store of that class on another host"), "{error}");
    one_class[1].class = Some("ssd".parse().unwrap());
    let error = why(one_class, "replica(2) class=t1:1,ssd:1");
    assert!(matches!(error, PlacementError::Together { .. }), "{error:?}");
    let mut closed = even(4, 1);
    closed[0].state = StoreState::Offline;
    closed[1].state = StoreState::Draining;
    closed[2].state = StoreState::Full;
    closed[3].free = 0;
    let error = why(closed, "replica(1)");
    assert_eq!(error, PlacementError::NoneTakesNew { stores: 4, out_of_reach: 1, closed: 1, full: 2 });
    assert_eq!(error.code(), ErrorCode::Unavailable, "with the lost store back there may be space");
    let mut full = even(4, 1);
    full.iter_mut().for_each(|info| info.free = info.reserve);
    assert_eq!(why(full, "replica(1)").code(), ErrorCode::NoSpace);
}

#[test]
fn a_map_refuses_invalid_lists() {
    let twice = vec![store(1, "a/r/h1", ""), store(1, "b/r/h2", "")];
    assert_eq!(Map::new(twice).unwrap_err(), MapError::Twice(StoreId(1)));
    let many = (0..=STORES_MAX as u64).map(|id| store(id, "a/r/h", "")).collect();
    assert_eq!(Map::new(many).unwrap_err(), MapError::TooMany(STORES_MAX + 1));
}

#[test]
fn the_same_question_gets_the_same_answer_in_whatever_order_stores_are_named() {
    let stores = uneven(100, 4);
    let mut turned = stores.clone();
    turned.reverse();
    turned.swap(3, 50);
    let (one, other) = (map(stores), map(turned));
    for text in ["replica(2)", "stripe(4, 1MiB) replica(2) spread=site"] {
        let (mut same, policy) = (0, policy(text));
        for seed in 0..500 {
            let placed = choose_stores(&one, &policy, None, 0, seed);
            assert_eq!(placed, choose_stores(&other, &policy, None, 0, seed));
            same += u32::from(placed == choose_stores(&one, &policy, None, 0, seed + 1));
        }
        assert!(same < 50, "{text}: another seed mostly gives other stores");
    }
}

#[test]
fn stripes_use_different_hosts_then_different_stores_then_all_evenly() {
    let text = policy("stripe(8, 1MiB) replica(2)");
    for (n, most_on_a_host, most_on_a_store) in [(40, 1, 1), (16, 1, 1), (10, 2, 1), (8, 2, 1), (4, 4, 2)] {
        let map = map(even(n, 2));
        for seed in 0..500 {
            let placed = choose_stores(&map, &text, None, 0, seed).unwrap();
            assert_eq!(placed.groups.len(), 8);
            let (mut stores, mut hosts) = (BTreeMap::new(), BTreeMap::new());
            for group in &placed.groups {
                assert!(is_allowed(&map, &text, group));
                *stores.entry(group[0]).or_insert(0) += 1;
                *hosts.entry(map.store(group[0]).unwrap().location.clone()).or_insert(0) += 1;
            }
            assert!(*stores.values().max().unwrap() <= most_on_a_store, "{n} stores, seed {seed}: {stores:?}");
            // Large clusters are placed by random draws without a search, so this holds nearly always.
            assert!(*hosts.values().max().unwrap() <= most_on_a_host + 1, "{n} stores, seed {seed}: {hosts:?}");
            if n == 40 {
                assert_eq!(hosts.len(), 8, "seed {seed}: {hosts:?}");
            }
        }
    }
}

#[test]
fn near_the_client_falls_back_from_host_to_rack_to_site_to_the_preferred_location_to_any() {
    let text = policy("replica(2) near=client prefer=b");
    let stores = vec![
        store(1, "a/r1/h1", ""),
        store(2, "a/r1/h2", ""),
        store(3, "a/r2/h3", ""),
        store(4, "b/r1/h4", ""),
        store(5, "c/r1/h5", ""),
        // Beside the client's site: in text order, one before `a/` and one after.
        store(6, "a-b/r1/h6", ""),
        store(7, "ab/r1/h7", ""),
    ];
    let client = location_of("a/r1/h1");
    let first = |gone: &[usize]| {
        let mut stores = stores.clone();
        gone.iter().for_each(|at| stores[*at].state = StoreState::Offline);
        let map = map(stores);
        let placed: Vec<_> = (0..50).map(|seed| choose_stores(&map, &text, Some(&client), 0, seed).unwrap()).collect();
        let stores: BTreeSet<_> = placed.iter().map(|placed| placed.groups[0][0].0).collect();
        assert!(placed.iter().all(|one| one.first == placed[0].first));
        (placed[0].first, stores.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(first(&[]), (First::NearClient(Shared::Host), vec![1]));
    assert_eq!(first(&[0]), (First::NearClient(Shared::Rack), vec![2]));
    assert_eq!(first(&[0, 1]), (First::NearClient(Shared::Site), vec![3]));
    assert_eq!(first(&[0, 1, 2]), (First::Preferred, vec![4]));
    assert_eq!(first(&[0, 1, 2, 3]), (First::Anywhere, vec![5, 6, 7]));
    let map = map(stores.clone());
    let without = choose_stores(&map, &text, None, 0, 1).unwrap();
    assert_eq!(
        (without.first, without.groups[0][0]),
        (First::Preferred, StoreId(4)),
        "nobody knows where the client is"
    );
    let unasked = choose_stores(&map, &policy("replica(1) prefer=b"), Some(&client), 0, 1).unwrap();
    assert_eq!(unasked.first, First::Preferred, "near is only for those who ask for it");
    assert!(map.has_place(&"a/r2".parse().unwrap()) && !map.has_place(&"a/r3".parse().unwrap()));
    assert!(!map.has_place(&"a/r1/h".parse().unwrap()) && map.has_place(&"a-b".parse().unwrap()));
}

#[test]
fn a_stripe_near_the_client_comes_from_a_range_with_enough_stores() {
    let mut stores = even(40, 4);
    stores.push(store(1, "site0/r0/h0", ""));
    let map = map(stores);
    let client = location_of("site0/r0/h0");
    let placed = choose_stores(&map, &policy("stripe(6, 1MiB) near=client"), Some(&client), 0, 1).unwrap();
    assert_eq!(placed.first, First::NearClient(Shared::Site));
    let sites = placed.groups.iter().map(|group| map.store(group[0]).unwrap().location.site() == "site0");
    assert_eq!(sites.filter(|at_site| *at_site).count(), 6);
}

#[test]
fn an_object_goes_where_it_has_room() {
    let mut stores = even(40, 4);
    for info in &mut stores[..38] {
        info.free = info.reserve + (2 << 30);
    }
    let (a, b) = (stores[38].store, stores[39].store);
    let map = map(stores);
    let one = policy("replica(1)");
    for seed in 0..200 {
        let placed = choose_stores(&map, &one, None, 100 << 30, seed).unwrap();
        assert!([a, b].contains(&placed.groups[0][0]));
        assert!(choose_stores(&map, &one, None, 1 << 30, seed).is_ok());
    }
    // Both have room, but they are on one host.
    let error = choose_stores(&map, &policy("replica(2)"), None, 100 << 30, 1).unwrap_err();
    assert_eq!(error, PlacementError::NoRoom { bytes: 100 << 30 });
    assert_eq!(error.code(), ErrorCode::NoSpace);
    // A stripe needs only a part of it on each store.
    assert!(choose_stores(&map, &policy("stripe(64, 1MiB) replica(2)"), None, 100 << 30, 1).is_ok());
    // Near the client, as long as there is room.
    let near = policy("replica(1) near=client");
    let client = map.store(StoreId(1000)).unwrap().location.clone();
    assert_eq!(choose_stores(&map, &near, Some(&client), 1 << 30, 1).unwrap().first, First::NearClient(Shared::Host));
    let far = choose_stores(&map, &near, Some(&client), 100 << 30, 1).unwrap();
    assert_eq!(far.first, First::Anywhere, "{:?}", far.groups);
}

#[test]
fn unrealistic_sizes_do_not_overflow() {
    let mut stores = even(6, 3);
    stores.iter_mut().for_each(|info| (info.capacity, info.free, info.reserve) = (u64::MAX, u64::MAX, 0));
    stores[5].reserve = u64::MAX;
    let got = drawn(&map(stores.clone()), &policy("replica(2)"), 1_000);
    assert_eq!(got.values().map(|(_, copies)| *copies).sum::<u64>(), 2_000);
    assert_eq!(got[&stores[5].store].1, 0);
}

#[test]
fn small_sites_beside_large_ones_are_found() {
    let mut stores: Vec<_> = (0..2_000).map(|id| store(id, &format!("large{}/r/h{id}", id % 2), "")).collect();
    stores.push(store(5_000, "small/r/h", ""));
    let three = map(stores.clone());
    let policy3 = policy("replica(3) spread=site");
    for group in groups(&three, &policy3).unwrap() {
        assert!(is_allowed(&three, &policy3, &group), "{group:?}");
    }
    stores.extend((1..20).map(|id| store(5_000 + id, &format!("small{id}/r/h"), "")));
    let many = map(stores);
    let policy5 = policy("replica(5) spread=site");
    let mut small = BTreeSet::new();
    for group in groups(&many, &policy5).unwrap() {
        assert!(is_allowed(&many, &policy5, &group), "{group:?}");
        small.extend(group.into_iter().filter(|id| id.0 >= 5_000));
    }
    assert_eq!(small.len(), 20, "each of the small ones is somebody's partner");
}
