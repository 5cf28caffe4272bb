//! After an object was placed: where a reader goes first, and which store replaces a lost member.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};

use crate::stores::{even, location_of, map, policy, store, uneven};
use cluster::placement::{
    Load, PlacementError, StoreInfo, StoreState, choose_stores, further_store, groups, rank_readers, replacement,
};
use types::{ObjectId, Spread, StoreId};

fn ids(ids: &[u64]) -> Vec<StoreId> {
    ids.iter().copied().map(StoreId).collect()
}

fn holders() -> Vec<StoreInfo> {
    vec![store(1, "a/r1/h1", ""), store(2, "a/r1/h2", ""), store(3, "a/r2/h3", ""), store(4, "b/r1/h4", "")]
}

#[test]
fn the_nearest_copy_is_tried_first() {
    let map = map(holders());
    let order = |client: &str| rank_readers(&map, &ids(&[4, 2, 3, 1]), Some(&location_of(client)), 5);
    assert_eq!(order("a/r1/h1"), [ids(&[1]), ids(&[2]), ids(&[3]), ids(&[4])]);
    assert_eq!(order("a/r2/h9")[0], ids(&[3]));
    assert_eq!(order("b/r7/h9")[0], ids(&[4]));
    let mut others = order("c/r1/h1").concat();
    others.sort();
    assert_eq!((others, order("c/r1/h1").len()), (ids(&[1, 2, 3, 4]), 1), "all are equally far");
}

#[test]
fn busy_draining_and_suspect_stores_come_later_and_lost_or_unknown_ones_never() {
    let mut stores = holders();
    stores[0].state = StoreState::Suspect;
    stores[1].load = Load::from_permille(950);
    stores[2].state = StoreState::ReadOnly;
    stores[3].state = StoreState::Full;
    let client = location_of("a/r1/h1");
    let all = ids(&[1, 2, 3, 4, 77]);
    assert_eq!(rank_readers(&map(stores.clone()), &all, Some(&client), 1).concat(), ids(&[3, 4, 2, 1]));
    stores[2].state = StoreState::Offline;
    stores[3].state = StoreState::Draining;
    assert_eq!(rank_readers(&map(stores.clone()), &all, Some(&client), 1).concat(), ids(&[2, 4, 1]));
    stores.iter_mut().for_each(|info| info.state = StoreState::Offline);
    assert!(rank_readers(&map(stores), &all, Some(&client), 1).is_empty());
    assert_eq!(rank_readers(&map(holders()), &ids(&[4, 4, 4]), Some(&client), 1), [ids(&[4])], "each once");
}

#[test]
fn equals_are_tried_at_random_and_the_less_loaded_more_often() {
    let mut stores = holders();
    stores.truncate(3);
    stores[1].load = Load::from_permille(800);
    let map = map(stores);
    let mut first: BTreeMap<StoreId, u32> = BTreeMap::new();
    for seed in 0..10_000 {
        let order = rank_readers(&map, &ids(&[1, 2, 3]), None, seed).concat();
        assert_eq!(
            order,
            rank_readers(&map, &ids(&[3, 1, 2]), None, seed).concat(),
            "the order of the question does not matter"
        );
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 3);
        *first.entry(order[0]).or_default() += 1;
    }
    let of = |id| f64::from(first[&StoreId(id)]) / 10_000.0;
    assert!((of(1) - 1.0 / 2.4).abs() < 0.02 && (of(2) - 0.4 / 2.4).abs() < 0.02, "{first:?}");
}

#[test]
fn a_replacement_keeps_spread_and_class() {
    let text = policy("replica(3) spread=site class=t1:1");
    let mut stores = Vec::new();
    for (site, class) in [("a", "t1"), ("b", ""), ("c", ""), ("d", "t1"), ("e", "")] {
        stores.extend((0..4).map(|n| store(u64::from(site.as_bytes()[0]) * 10 + n, &format!("{site}/r/h{n}"), class)));
    }
    let map = map(stores.clone());
    let site = |id: StoreId| map.store(id).unwrap().location.site().to_owned();
    let mut replaced = 0;
    for group in groups(&map, &text).unwrap() {
        for lost in &group {
            let left: Vec<_> = group.iter().copied().filter(|member| member != lost).collect();
            let new = replacement(&map, &text, &left, *lost, &[]).unwrap();
            assert_eq!(replacement(&map, &text, &left, *lost, &[]).unwrap(), new);
            let another = replacement(&map, &text, &left, *lost, &[new]).unwrap();
            assert!(another != new && another != *lost, "one that leaves does not come back before it has left");
            assert!(new != *lost && left.iter().all(|member| site(*member) != site(new)), "{group:?} - {lost} + {new}");
            let reliable = left.iter().chain([&new]).any(|member| ["a", "d"].contains(&site(*member).as_str()));
            assert!(reliable, "{group:?} - {lost} + {new}");
            replaced += 1;
        }
    }
    assert!(replaced > 100);
}

#[test]
fn the_groups_of_a_lost_store_go_to_many_others() {
    let text = policy("replica(2)");
    let mut stores = uneven(400, 4);
    let all = groups(&map(stores.clone()), &text).unwrap();
    let lost = stores[17].store;
    stores[17].state = StoreState::Offline;
    let map = map(stores);
    let mut takers: BTreeMap<StoreId, u32> = BTreeMap::new();
    for group in all.iter().filter(|group| group.contains(&lost)) {
        let left: Vec<_> = group.iter().copied().filter(|member| *member != lost).collect();
        *takers.entry(replacement(&map, &text, &left, lost, &[]).unwrap()).or_default() += 1;
    }
    println!("{takers:?}");
    assert!(takers.len() >= 12 && takers.values().all(|groups| *groups <= 4), "{takers:?}");
}

#[test]
fn the_objects_of_one_store_get_further_replicas_on_many_others() {
    let text = policy("replica(2)");
    let stores = uneven(400, 4);
    let (first, map) = (stores[17].store, map(stores));
    let further = |object, fits: &dyn Fn(StoreId) -> bool| further_store(&map, &text, &[first], ObjectId(object), fits);
    let mut takers: BTreeMap<StoreId, u32> = BTreeMap::new();
    for object in 1..=1000 {
        *takers.entry(further(object, &|_| true).unwrap()).or_default() += 1;
    }
    println!("{takers:?}");
    assert!(takers.len() >= 8 && takers.values().all(|objects| *objects < 400), "{takers:?}");
    assert!(!takers.contains_key(&first));
    let full = further(1, &|_| true).unwrap();
    assert!(further(1, &|store| store != full).is_some_and(|store| store != full));
    assert_eq!(further(1, &|_| false), None);
}

#[test]
fn without_a_suitable_store_a_replacement_is_refused() {
    let mut stores = even(8, 2);
    let (here, there) = (stores[0].store, stores[2].store);
    let text = policy("replica(2) spread=site");
    for info in stores.iter_mut().filter(|info| info.location.site() == "site1") {
        info.state = StoreState::Offline;
    }
    let error = replacement(&map(stores.clone()), &text, &[here], there, &[]).unwrap_err();
    assert_eq!(error, PlacementError::NoReplacement { lost: there, spread: Spread::Site, class: None });
    assert!(error.to_string().contains("on another site"), "{error}");
    // One store on the other site is online again, so it is chosen. The lost store never is, even if it answers
    // again.
    stores[3].state = StoreState::Online;
    let back = stores[3].store;
    assert_eq!(replacement(&map(stores.clone()), &text, &[here], there, &[]), Ok(back));
    stores[2].state = StoreState::Online;
    stores[3].state = StoreState::Offline;
    assert!(replacement(&map(stores), &text, &[here], there, &[]).is_err());
    // No store is of the missing class.
    let text = policy("replica(2) class=t1:1");
    let error = replacement(&map(even(8, 2)), &text, &[here], there, &[]).unwrap_err();
    assert!(error.to_string().contains("add a store of class t1 on another host"), "{error}");
    assert!(matches!(choose_stores(&map(vec![]), &text, None, 0, 1), Err(PlacementError::NoStores)));
}
