//! A federation of reliable sites (T1) and less reliable ones (Tn): where the replicas of its four placement
//! scenarios go. The policies are those of docs/how-to/policies.md.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use crate::stores::{location_of, map, policy, store};
use cluster::placement::{First, Map, Placed, StoreInfo, StoreState, choose_stores, rank_readers};
use types::{Location, Policy, Shared, StoreId};

const DOCUMENT: &str = include_str!("../../../docs/how-to/policies.md");

/// Two reliable sites and four others, each with 3 hosts of 2 stores.
fn federation() -> Vec<StoreInfo> {
    let sites = [("cern", "t1"), ("jinr", "t1"), ("desy", "tn"), ("itep", "tn"), ("mephi", "tn"), ("spbsu", "tn")];
    let mut stores = Vec::new();
    for (site, class) in sites {
        for host in 0..3 {
            for _ in 0..2 {
                stores.push(store(100 + stores.len() as u64, &format!("{site}/r{}/ds{host}", host % 2), class));
            }
        }
    }
    stores
}

/// The line of the document that begins with this scenario's number.
fn scenario(number: &str) -> Policy {
    let start = format!("| {number} |");
    let lines: Vec<_> = DOCUMENT.lines().filter(|line| line.starts_with(&start)).collect();
    assert_eq!(lines.len(), 1, "docs/how-to/policies.md has one line for scenario {number}");
    let text = lines[0].split('`').nth(1).unwrap_or_else(|| panic!("no policy in {}", lines[0]));
    policy(text)
}

fn site(map: &Map, store: StoreId) -> String {
    map.store(store).unwrap().location.site().to_owned()
}

/// The placements of `n` objects written by a client at `client`.
fn written(map: &Map, policy: &Policy, client: Option<&Location>, n: u64) -> Vec<Placed> {
    (0..n).map(|seed| choose_stores(map, policy, client, 1 << 30, seed).unwrap()).collect()
}

/// The number of objects with replica `at` on each site.
fn sites(map: &Map, placed: &[Placed], at: usize) -> BTreeMap<String, usize> {
    let mut sites = BTreeMap::new();
    for one in placed {
        *sites.entry(site(map, one.groups[0][at])).or_default() += 1;
    }
    sites
}

/// Checks that all sites have about the same number.
fn evenly(sites: &BTreeMap<String, usize>, n: usize) {
    assert_eq!(sites.len(), n, "{sites:?}");
    let sum: usize = sites.values().sum();
    for (site, count) in sites {
        assert!((count * n).abs_diff(sum) < sum / 5, "{site}: {sites:?}");
    }
}

#[test]
fn scenario_0_random_over_all_sites() {
    let map = map(federation());
    let policy = scenario("0");
    let placed = written(&map, &policy, Some(&location_of("desy/r1/wn7")), 6_000);
    assert!(placed.iter().all(|one| one.groups.len() == 1 && one.groups[0].len() == 1));
    evenly(&sites(&map, &placed, 0), 6);
}

#[test]
fn scenario_1_as_close_to_the_client_as_possible() {
    let map = map(federation());
    let policy = scenario("1");
    let at_site = written(&map, &policy, Some(&location_of("desy/r7/wn7")), 500);
    assert_eq!(sites(&map, &at_site, 0), BTreeMap::from([("desy".into(), 500)]));
    let stores: BTreeSet<_> = at_site.iter().map(|one| one.groups[0][0]).collect();
    assert_eq!(stores.len(), 6, "all stores of the site take part");
    let in_rack = written(&map, &policy, Some(&location_of("desy/r1/wn7")), 100);
    for one in &in_rack {
        assert_eq!(map.store(one.groups[0][0]).unwrap().location, location_of("desy/r1/ds1"));
    }
    let on_host = written(&map, &policy, Some(&location_of("desy/r0/ds2")), 100);
    for one in &on_host {
        assert_eq!(one.first, First::NearClient(Shared::Host));
        assert_eq!(map.store(one.groups[0][0]).unwrap().location.host(), "ds2");
    }
}

#[test]
fn scenario_1_else_the_default_reliable_site() {
    let policy = scenario("1");
    let mut stores = federation();
    let elsewhere = location_of("home/sofa/laptop");
    let of = |stores: &Vec<StoreInfo>, client: Option<&Location>| {
        let map = map(stores.clone());
        let placed = written(&map, &policy, client, 600);
        (sites(&map, &placed, 0), placed[0].first)
    };
    let all_at_cern = (BTreeMap::from([("cern".to_owned(), 600)]), First::Preferred);
    assert_eq!(of(&stores, Some(&elsewhere)), all_at_cern, "a client at no site of the federation");
    assert_eq!(of(&stores, None), all_at_cern, "a client of which nothing is known");
    let at_desy = location_of("desy/r1/wn7");
    set(&mut stores, "desy", StoreState::Full);
    assert_eq!(of(&stores, Some(&at_desy)), all_at_cern, "the client's site is full");
    set(&mut stores, "cern", StoreState::Offline);
    let (found, first) = of(&stores, Some(&at_desy));
    assert_eq!(first, First::Anywhere);
    evenly(&found, 4);
}

fn set(stores: &mut [StoreInfo], site: &str, state: StoreState) {
    stores.iter_mut().filter(|info| info.location.site() == site).for_each(|info| info.state = state);
}

#[test]
fn scenario_2_1_the_second_copy_anywhere_else_written_during_the_transfer() {
    let map = map(federation());
    let policy = scenario("2.1");
    assert_eq!((policy.layout().replicas(), policy.layout().sync()), (2, 2), "the close waits for both");
    let placed = written(&map, &policy, Some(&location_of("itep/r7/wn1")), 5_000);
    assert_eq!(sites(&map, &placed, 0), BTreeMap::from([("itep".into(), 5_000)]));
    let seconds = sites(&map, &placed, 1);
    assert!(!seconds.contains_key("itep"), "never on the same site");
    assert_eq!(seconds.len(), 5, "on all others: {seconds:?}");
    assert!(seconds.values().all(|count| (500..2_000).contains(count)), "{seconds:?}");
    let far = written(&map, &policy, None, 1_000);
    assert_eq!(sites(&map, &far, 0), BTreeMap::from([("cern".into(), 1_000)]), "else at the default site");
}

#[test]
fn scenario_2_2_both_copies_random_the_second_one_in_the_background() {
    let map = map(federation());
    let policy = scenario("2.2");
    assert_eq!((policy.layout().replicas(), policy.layout().sync()), (2, 1), "the close waits for the first");
    let placed = written(&map, &policy, Some(&location_of("itep/r7/wn1")), 12_000);
    evenly(&sites(&map, &placed, 0), 6);
    evenly(&sites(&map, &placed, 1), 6);
    for one in &placed {
        assert_ne!(site(&map, one.groups[0][0]), site(&map, one.groups[0][1]));
    }
}

#[test]
fn precious_data_has_a_copy_on_a_reliable_site_whatever_happens_to_the_others() {
    let policy = scenario("precious");
    let mut stores = federation();
    for (lost, reliable) in [(None, 2), (Some("jinr"), 1), (Some("mephi"), 1)] {
        if let Some(lost) = lost {
            set(&mut stores, lost, StoreState::Offline);
        }
        let map = map(stores.clone());
        let placed = written(&map, &policy, Some(&location_of("desy/r1/wn7")), 2_000);
        let mut on = BTreeSet::new();
        for one in &placed {
            let sites: BTreeSet<_> = one.groups[0].iter().map(|member| site(&map, *member)).collect();
            assert_eq!(sites.len(), 2, "{sites:?}");
            assert_eq!(site(&map, one.groups[0][0]), "desy", "the first copy near the client");
            assert!(sites.contains("cern") || sites.contains("jinr"), "{sites:?}");
            on.extend(sites.into_iter().filter(|site| site == "cern" || site == "jinr"));
        }
        assert_eq!(on.len(), reliable, "{on:?}");
    }
    set(&mut stores, "cern", StoreState::Offline);
    let error = choose_stores(&map(stores), &policy, None, 0, 1).unwrap_err().to_string();
    assert!(DOCUMENT.lines().any(|line| line == error), "the document says the same: {error}");
}

#[test]
fn a_demand_for_too_many_sites_is_refused_as_documented() {
    let mut stores = federation();
    stores.retain(|info| ["cern", "desy"].contains(&info.location.site()));
    let error = choose_stores(&map(stores), &policy("replica(3) spread=site"), None, 0, 1).unwrap_err().to_string();
    assert!(DOCUMENT.lines().any(|line| line == error), "the document says the same: {error}");
}

#[test]
fn a_demand_comes_before_a_wish() {
    let map = map(federation());
    let policy = policy("replica(1) near=client class=t1:1");
    let placed = written(&map, &policy, Some(&location_of("desy/r1/wn7")), 2_000);
    evenly(&sites(&map, &placed, 0), 2);
    assert!(placed.iter().all(|one| one.first == First::Anywhere), "the client's site is not of that class");
    let placed = written(&map, &policy, Some(&location_of("jinr/r1/wn7")), 200);
    assert_eq!(sites(&map, &placed, 0), BTreeMap::from([("jinr".into(), 200)]));
}

#[test]
fn readers_go_to_their_own_site() {
    let map = map(federation());
    for one in written(&map, &scenario("2.2"), None, 500) {
        let holders = &one.groups[0];
        for reader in ["cern", "jinr", "desy", "itep", "mephi", "spbsu"] {
            let order = rank_readers(&map, holders, Some(&location_of(&format!("{reader}/r9/wn1"))), 3).concat();
            assert_eq!(order.len(), 2);
            if holders.iter().any(|holder| site(&map, *holder) == reader) {
                assert_eq!(site(&map, order[0]), reader);
            }
        }
    }
}

#[test]
fn every_policy_in_the_document_can_be_read() {
    let (mut read, mut shown_too) = (0, 0);
    for line in DOCUMENT.lines().filter(|line| line.starts_with("| ")) {
        let Some(text) = line.split('`').nth(1).filter(|text| text.contains('(') && !text.contains(['N', 'W', '|']))
        else {
            continue;
        };
        assert_eq!(policy(text).to_string().parse::<Policy>().unwrap(), policy(text));
        if let Some(shown) = line.split('`').nth(3).filter(|shown| shown.contains('(')) {
            assert_eq!(policy(text).to_string(), shown);
            shown_too += 1;
        }
        read += 1;
    }
    assert!(read >= 7 && shown_too == 2, "{read} policies read, {shown_too} shown");
}
