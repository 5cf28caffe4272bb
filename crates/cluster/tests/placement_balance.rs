//! Placement over many stores: balance, few groups that rarely change, speed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::stores::{TIB, drawn, even, location_of, map, policy, uneven};
use cluster::placement::{Load, Map, StoreInfo, StoreState, choose_stores, groups};
use types::StoreId;

/// Mean of (got - expected)² / expected: about 1 for correct draws, and more the further they are from that.
fn misfit(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0);
    for (got, expected) in pairs {
        sum += (got - expected).powi(2) / expected;
        n += 1.0;
    }
    sum / n
}

fn shares(map: &Map) -> BTreeMap<StoreId, f64> {
    let total: f64 = map.stores().iter().map(|info| info.room() as f64).sum();
    map.stores().iter().map(|info| (info.store, info.room() as f64 / total)).collect()
}

#[test]
fn primaries_follow_free_space_with_4_40_and_10_000_stores_of_unequal_sizes() {
    for (n, contents) in [(4, 40_000), (40, 80_000), (10_000, 400_000)] {
        let map = map(uneven(n, 2));
        let got = drawn(&map, &policy("replica(1)"), contents);
        let misfit = misfit(shares(&map).iter().map(|(id, share)| (got[id].0 as f64, share * contents as f64)));
        println!("{n} stores: misfit {misfit:.2}");
        assert!(misfit < if n < 100 { 2.0 } else { 1.1 }, "{n} stores: misfit {misfit}");
        if n < 100 {
            for (id, share) in shares(&map) {
                let expected = share * contents as f64;
                let off = (got[&id].0 as f64 / expected - 1.0).abs();
                assert!(off < 0.1, "{n} stores: store {id} got {} of {expected:.0}", got[&id].0);
            }
        }
    }
}

#[test]
fn further_copies_follow_free_space_too() {
    for (n, sites, text, contents) in [
        (40, 4, "replica(2)", 100_000),
        (40, 4, "replica(3) spread=rack", 100_000),
        (60, 4, "replica(2) spread=site", 100_000),
        (10_000, 20, "replica(2) spread=site", 400_000),
    ] {
        let map = map(uneven(n, sites));
        let policy = policy(text);
        let copies = contents * u64::from(policy.layout().replicas());
        let got = drawn(&map, &policy, contents);
        let shares = shares(&map);
        let worst = shares
            .iter()
            .map(|(id, share)| (got[id].1 as f64 / (share * copies as f64) - 1.0).abs())
            .fold(0.0, f64::max);
        let misfit = misfit(shares.iter().map(|(id, share)| (got[id].1 as f64, share * copies as f64)));
        println!("{n} stores, {text}: the worst is off by {:.1} %, misfit {misfit:.2}", worst * 100.0);
        if n < 100 {
            assert!(worst < 0.15, "{n} stores, {text}: {worst}");
        } else {
            // Some 80 draws for each. Chance alone gives 1.
            assert!(misfit < 1.5, "{n} stores, {text}: {misfit}");
        }
    }
}

#[test]
fn the_reserve_is_left_and_loaded_stores_get_less() {
    let mut stores = even(4, 1);
    stores[0].free = stores[0].reserve; // nothing above the reserve
    stores[1].load = Load::from_permille(1000);
    stores[2].load = Load::from_permille(65_535); // a value outside the range counts as 1000
    let map = map(stores.clone());
    let got = drawn(&map, &policy("replica(1)"), 30_000);
    let of = |at: usize| got[&stores[at].store].0 as f64 / 30_000.0;
    assert!(of(0) == 0.0, "{}", of(0));
    assert!((of(1) - 1.0 / 6.0).abs() < 0.02 && (of(2) - 1.0 / 6.0).abs() < 0.02, "{} {}", of(1), of(2));
    assert!((of(3) - 4.0 / 6.0).abs() < 0.02, "{}", of(3));
}

#[test]
fn groups_are_few_and_everybody_has_about_ten_partners() {
    for (n, text) in
        [(40, "replica(2)"), (1_000, "replica(2) spread=site"), (1_000, "replica(3)"), (10_000, "replica(2)")]
    {
        let map = map(uneven(n, 10));
        let groups = groups(&map, &policy(text)).unwrap();
        let mut partners: BTreeMap<StoreId, BTreeSet<StoreId>> = BTreeMap::new();
        for group in &groups {
            for (a, b) in group.iter().flat_map(|a| group.iter().map(move |b| (a, b))).filter(|(a, b)| a != b) {
                partners.entry(*a).or_default().insert(*b);
            }
        }
        let counts: Vec<_> = partners.values().map(BTreeSet::len).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        println!("{n} stores, {text}: {} groups, {least} to {most} partners", groups.len());
        assert!(groups.len() as u64 <= n * 10, "{n} stores, {text}: {} groups", groups.len());
        assert_eq!(partners.len() as u64, n, "everybody shares data with somebody");
        assert!(*least >= 10.min(n as usize / 3) && *most <= 70, "{n} stores, {text}: {least} to {most} partners");
        // No object is placed on any other set.
        let known: BTreeSet<_> = groups.into_iter().collect();
        for seed in 0..1_000 {
            let placed = choose_stores(&map, &policy(text), None, 0, seed).unwrap();
            assert!(known.contains(&placed.groups[0]), "{n} stores, {text}: {:?}", placed.groups[0]);
        }
    }
}

#[test]
fn most_groups_stay_when_a_store_comes_or_goes() {
    for (n, sites, text) in [
        (40, 4, "replica(2)"),
        (40, 4, "replica(2) spread=site"),
        (400, 4, "replica(3) spread=rack"),
        (2_000, 10, "replica(2)"),
    ] {
        let all = uneven(n, sites);
        let set = |stores: Vec<StoreInfo>| -> BTreeSet<_> {
            groups(&map(stores), &policy(text)).unwrap().into_iter().collect()
        };
        let with = set(all.clone());
        let share = |changed: usize| changed as f64 / with.len() as f64;
        for gone in [0, n as usize / 2, n as usize - 1] {
            let mut fewer = all.clone();
            let removed = fewer.remove(gone).store;
            let without = set(fewer);
            // Adding and removing a store are the same step, seen from two sides.
            let moved = with.iter().filter(|group| !group.contains(&removed) && !without.contains(*group)).count();
            let new = without.difference(&with).count();
            println!("{n} stores, {text}: {moved} of {} groups moved, {new} new", with.len());
            assert!(share(moved) < 0.01 + 0.5 / n as f64, "{n} stores, {text}: {moved} moved");
            assert!(share(new) < 0.01 + 4.0 / n as f64, "{n} stores, {text}: {new} new");
            let mut lost = all.clone();
            lost[gone].state = StoreState::Offline;
            assert_eq!(set(lost), without, "a lost store is as good as gone");
        }
        let mut fuller = all.clone();
        fuller.iter_mut().for_each(|info| info.free = info.free * 9 / 10);
        fuller[0].load = Load::from_permille(700);
        assert_eq!(set(fuller), with, "space and load change how often groups are used, not which there are");
    }
}

#[test]
fn one_placement_over_10_000_stores_is_quick() {
    let (mean, table) = timed(20_000);
    println!("{mean:?} each, {table:?} for the first one");
    assert!(mean < Duration::from_micros(200) && table < Duration::from_secs(20), "{mean:?}, {table:?}");
}

#[test]
#[ignore = "prints figures: cargo test -p weir-cluster --release -- --ignored --nocapture how_quick"]
fn print_placement_times() {
    let start = Instant::now();
    let map = map(uneven(10_000, 20));
    println!("a map of 10,000 stores: {:?}", start.elapsed());
    drop(map);
    let (mean, table) = timed(1_000_000);
    println!("replica(2) spread=site near=client over 10,000 stores: {mean:?} each, {table:?} for the first one");
}

fn timed(times: u32) -> (Duration, Duration) {
    let map = map(uneven(10_000, 20));
    let policy = policy("replica(2) spread=site near=client prefer=site3");
    let start = Instant::now();
    let client = location_of("site7/r9/h9");
    choose_stores(&map, &policy, None, TIB, 0).unwrap();
    let table = start.elapsed();
    let start = Instant::now();
    for seed in 0..u64::from(times) {
        let client = (seed % 2 == 0).then_some(&client);
        std::hint::black_box(choose_stores(&map, &policy, client, 0, seed)).unwrap();
    }
    (start.elapsed() / times, table)
}
