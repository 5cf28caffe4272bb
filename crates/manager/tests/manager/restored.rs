//! A manager whose namespace was restored from a backup: what it holds back, and what it finds on its disk servers.

use std::thread;

use manager::{CompareOptions, ComparisonError, ComparisonView};
use namespace::{ContinueRestored, RaiseIncarnation};
use node::{Inventory, InventoryRequest, ObjectDigest, StoredReplica, StoredState};
use types::{Adler32, Crc32c, Incarnation, Ino, ReplicaId};

use super::*;

const LOOK: CompareOptions = CompareOptions { list: 10, accept: false, force: false, keep: 1000 };

impl Cluster {
    /// Two disk servers with a store each, whose namespace was restored, and the manager that runs on it.
    fn restored() -> (Self, [NodeId; 2]) {
        let kv = Arc::new(MemoryKv::new());
        let mut cluster = Self::on(Arc::clone(&kv));
        let nodes = [1, 2].map(|number| cluster.disk(number).0);
        cluster.groups(&[1, 2]);
        cluster.has_file("/kept", &[1, 2]);
        cluster.has_file("/short", &[1]);
        cluster.opens("/open", &[1, 2]);
        let (at_least, above_ino, above_object) = (Incarnation(1), Ino(1 << 40), ObjectId(1 << 44));
        change(&cluster.namespace, RaiseIncarnation { at_least, above_ino, above_object });
        change(&cluster.namespace, ContinueRestored { taken: Timestamp(1), random: 0 });
        cluster.namespace = Namespace::open(kv, Timestamp(2), NamespaceConfig::default()).unwrap();
        cluster.passes(100);
        cluster.restart_manager();
        cluster.come_again(&nodes);
        (cluster, nodes)
    }

    /// The nodes have a session and their stores are online.
    fn come_again(&self, nodes: &[NodeId; 2]) {
        for (node, store) in nodes.iter().zip(1..) {
            self.comes(*node);
            self.registers(*node).unwrap();
            self.reports(*node, &[store]);
        }
        self.manager.tick();
    }

    /// Runs the periodic work for two minutes, and returns the messages to these nodes that are about objects.
    fn works(&self, nodes: &[NodeId; 2]) -> Vec<&'static str> {
        let mut about = Vec::new();
        for _ in 0..60 {
            self.passes(2);
            for (node, store) in nodes.iter().zip(1..) {
                self.registers(*node);
                self.reports(*node, &[store]);
            }
            self.manager.tick();
            for node in nodes {
                about.extend(self.sent(*node).iter().filter_map(kind_of));
            }
        }
        about
    }

    fn removes(&self, path: &str) {
        change(&self.namespace, namespace::Remove { path: NsPath::parse(path.as_bytes()).unwrap() });
    }

    /// Compares; the disk servers have these replicas, in order.
    fn compares(
        &self,
        nodes: &[NodeId; 2],
        has: &[Vec<StoredReplica>; 2],
        how: CompareOptions,
    ) -> Result<ComparisonView, ComparisonError> {
        thread::scope(|scope| {
            let comparing = scope.spawn(|| self.manager.compare_restored(how, || true));
            while !comparing.is_finished() {
                for (node, has) in nodes.iter().zip(has) {
                    for message in self.sent(*node) {
                        let FromManager::Inventory { number, request, .. } = message else { continue };
                        let found = Ok(answer(&request, has));
                        self.manager.receive(*node, FromDisk::Inventory { number, found });
                    }
                }
                thread::yield_now();
            }
            comparing.join().unwrap().map(Option::unwrap)
        })
    }
}

/// Pages of two replicas.
fn answer(request: &InventoryRequest, has: &[StoredReplica]) -> Inventory {
    match request {
        InventoryRequest::After(after) => {
            let rest: Vec<_> = has.iter().filter(|one| Some(one.replica) > *after).copied().collect();
            let is_last = rest.len() <= 2;
            Inventory::Replicas { replicas: rest.into_iter().take(2).collect(), is_last }
        }
        InventoryRequest::Origins(replicas) => {
            Inventory::Origins(replicas.iter().map(|one| format!("/made-as/{}", one.object.0).into_bytes()).collect())
        }
    }
}

fn kind_of(message: &FromManager) -> Option<&'static str> {
    match message {
        FromManager::WhatHas { .. } => Some("what-has"),
        FromManager::WhoLeads { .. } => Some("who-leads"),
        FromManager::End(_) => Some("end"),
        FromManager::Cluster(ToServer::ToStore { message: ToStore::Copy { .. }, .. }) => Some("copy"),
        FromManager::Cluster(ToServer::ToStore { message: ToStore::Delete { .. }, .. }) => Some("delete"),
        _ => None,
    }
}

fn stored(object: u64, incarnation: u64) -> StoredReplica {
    let replica = ReplicaId::first(ObjectId(object));
    let state = StoredState::Whole(ObjectDigest { len: 1, crc32c: Crc32c(7), adler32: Adler32(7) });
    StoredReplica { replica, state, is_damaged: false, incarnation: Incarnation(incarnation) }
}

#[test]
fn nothing_is_copied_ended_or_drained_before_the_state_is_accepted() {
    let (cluster, nodes) = Cluster::restored();
    cluster.manager.drain_store(StoreId(2)).unwrap();
    assert!(cluster.manager.status_view().unwrap().is_held);
    assert_eq!(cluster.works(&nodes), [] as [&str; 0]);
    cluster.manager.stop_draining(StoreId(2)).unwrap();
    let has = [vec![stored(cluster.object("/kept").0, 1), stored(cluster.object("/short").0, 1)], Vec::new()];
    let accepted = cluster.compares(&nodes, &has, CompareOptions { accept: true, ..LOOK }).unwrap();
    assert!(!accepted.is_held && !cluster.manager.status_view().unwrap().is_held);
    let about = cluster.works(&nodes);
    assert!(about.contains(&"copy") && about.contains(&"who-leads"), "{about:?}");
    // What the second store did not have is missing there, and comes from the first.
    let holders = cluster.namespace.read(|read| namespace::holders(read, GROUP, cluster.object("/kept"))).unwrap();
    assert_eq!(holders, [StoreId(1)]);
}

#[test]
fn what_a_client_removes_or_replaces_stays_on_the_stores_until_the_state_is_accepted() {
    let (cluster, nodes) = Cluster::restored();
    // The lost namespace may have renamed it: then it is the only copy of a file with another name.
    cluster.removes("/kept");
    assert_eq!(cluster.works(&nodes), [] as [&str; 0]);
    // What was made since is nobody else's.
    cluster.has_file("/new", &[1, 2]);
    cluster.removes("/new");
    let about = cluster.works(&nodes);
    assert!(!about.is_empty() && about.iter().all(|kind| *kind == "delete"), "{about:?}");
    let has = [vec![stored(cluster.object("/short").0, 1)], Vec::new()];
    cluster.compares(&nodes, &has, CompareOptions { accept: true, ..LOOK }).unwrap();
    assert!(cluster.works(&nodes).contains(&"delete"));
}

#[test]
fn lost_files_and_replicas_without_a_name_are_found() {
    let (cluster, nodes) = Cluster::restored();
    let [kept, short, open] = ["/kept", "/short", "/open"].map(|path| cluster.object(path).0);
    let later: Vec<StoredReplica> = (0..5).map(|number| stored(open + 10 + number, 1)).collect();
    // The first store has all that the names say, and five objects of the time after the backup, of which one is on the second as well. That one has
    // lost `/kept`. Objects of the present incarnation are being written just now.
    let first =
        [vec![stored(kept, 1), stored(short, 1), stored(open, 1)], later.clone(), vec![stored(1 << 45, 2)]].concat();
    let second = vec![stored(open, 1), later[4]];
    let found = cluster.compares(&nodes, &[first.clone(), second.clone()], LOOK).unwrap();
    assert_eq!((found.stores, found.lost_count, found.under_replicated_count), (2, 0, 1));
    assert_eq!((found.extra_count, found.extra_bytes, found.extra.len()), (6, 6, 6));
    assert_eq!(found.extra.iter().filter(|one| one.made_as == format!("/made-as/{}", open + 14)).count(), 2);
    assert!(found.is_held, "a look changes nothing");
    // Without a replica at all, a file is lost. A store that was not compared may have it.
    let without_short: Vec<_> = first.iter().filter(|one| one.replica.object.0 != short).copied().collect();
    let without_both: Vec<_> = without_short.iter().filter(|one| one.replica.object.0 != kept).copied().collect();
    let found = cluster.compares(&nodes, &[without_both, second], LOOK).unwrap();
    let lost: Vec<&str> = found.lost.iter().map(|file| file.path.as_str()).collect();
    assert_eq!((lost, found.lost_count, found.under_replicated_count), (vec!["/kept", "/short"], 2, 0));
    let found = cluster.compares(&nodes, &[first, Vec::new()], CompareOptions { list: 2, ..LOOK }).unwrap();
    assert_eq!((found.extra_count, found.extra.len()), (5, 2), "all are counted, some are listed");
}

#[test]
fn a_file_that_only_a_store_outside_its_group_has_is_not_lost_and_prevents_the_acceptance() {
    let (mut cluster, nodes) = Cluster::restored();
    let member = Member { store: StoreId(1), since: ObjectId(1), through: ObjectId(0) };
    change(&cluster.namespace, PutGroup { group: Group { group: GROUP, epoch: 2, members: vec![member] } });
    cluster.restart_manager();
    cluster.come_again(&nodes);
    let [kept, short, open] = ["/kept", "/short", "/open"].map(|path| cluster.object(path).0);
    let has = [vec![stored(open, 1)], vec![stored(kept, 1)]];
    let found = cluster.compares(&nodes, &has, LOOK).unwrap();
    assert_eq!((found.stores, found.lost_count, found.extra_count), (2, 1, 0));
    let [elsewhere] = &found.elsewhere[..] else { panic!("{:?}", found.elsewhere) };
    assert_eq!((elsewhere.path.as_str(), elsewhere.location.as_str()), ("/kept", "site/rack/host2"));
    assert_eq!((elsewhere.object.clone(), found.elsewhere_count), (format!("{kept:016x}"), 1));
    let accept = CompareOptions { accept: true, ..LOOK };
    let refused = cluster.compares(&nodes, &has, accept).unwrap_err();
    assert!(matches!(&refused, ComparisonError::Elsewhere(1)), "{refused}");
    assert!(cluster.manager.status_view().unwrap().is_held);
    assert!(!cluster.compares(&nodes, &has, CompareOptions { force: true, ..accept }).unwrap().is_held);
    // Shorter than the names say, it is no copy.
    let has = [vec![stored(short, 1)], vec![StoredReplica { state: StoredState::Kept(0), ..stored(kept, 1) }]];
    let (cluster, nodes) = Cluster::restored();
    let found = cluster.compares(&nodes, &has, LOOK).unwrap();
    assert_eq!((found.elsewhere_count, found.changed_count), (0, 1));
}

#[test]
fn all_absent_replicas_are_recorded_even_if_they_do_not_fit_into_memory() {
    let (cluster, nodes) = Cluster::restored();
    let has = [Vec::new(), Vec::new()];
    let found = cluster.compares(&nodes, &has, CompareOptions { keep: 1, ..LOOK }).unwrap();
    assert!(found.and_more && found.lost_count < 2);
    let accepted = cluster.compares(&nodes, &has, CompareOptions { accept: true, keep: 1, ..LOOK }).unwrap();
    assert_eq!((accepted.lost_count, accepted.lost.len(), accepted.and_more, accepted.is_held), (2, 2, false, false));
    for path in ["/kept", "/short"] {
        assert_eq!(cluster.holders(cluster.object(path)), [] as [u64; 0], "{path}");
    }
}

#[test]
fn stores_that_were_draining_are_read_only_after_the_acceptance() {
    let (cluster, nodes) = Cluster::restored();
    cluster.manager.drain_store(StoreId(2)).unwrap();
    let has = [vec![stored(cluster.object("/kept").0, 1), stored(cluster.object("/short").0, 1)], Vec::new()];
    assert_eq!(cluster.compares(&nodes, &has, LOOK).unwrap().draining, ["site/rack/host2"]);
    cluster.compares(&nodes, &has, CompareOptions { accept: true, ..LOOK }).unwrap();
    let state = cluster.namespace.read(|read| namespace::store(read, StoreId(2))).unwrap().unwrap().state;
    assert_eq!(state, namespace::WantedState::ReadOnly);
    assert!(!cluster.works(&nodes).contains(&"what-has"));
}

#[test]
fn another_version_on_a_store_that_should_miss_the_file_is_told() {
    let (cluster, nodes) = Cluster::restored();
    let [kept, short] = ["/kept", "/short"].map(|path| cluster.object(path).0);
    let other = StoredState::Whole(ObjectDigest { len: 0, crc32c: Crc32c(0), adler32: Adler32(1) });
    let has = |state| {
        [vec![stored(kept, 1), stored(short, 1)], vec![stored(kept, 1), StoredReplica { state, ..stored(short, 1) }]]
    };
    let found = cluster.compares(&nodes, &has(other), LOOK).unwrap();
    let changed: Vec<&str> = found.changed.iter().map(|file| file.path.as_str()).collect();
    assert_eq!((changed, found.under_replicated_count), (vec!["/short"], 0));
    // A replica that lags behind is nothing new.
    let found = cluster.compares(&nodes, &has(StoredState::Written(0)), LOOK).unwrap();
    assert_eq!((found.changed_count, found.under_replicated_count), (0, 0));
}

#[test]
fn a_store_that_cannot_be_compared_prevents_the_acceptance_unless_it_is_forced() {
    let (cluster, nodes) = Cluster::restored();
    // The second disk server has gone.
    cluster.passes(100);
    cluster.registers(nodes[0]);
    cluster.reports(nodes[0], &[1]);
    cluster.manager.tick();
    let has = [Vec::new(), Vec::new()];
    let found = cluster.compares(&nodes, &has, LOOK).unwrap();
    assert_eq!(
        (found.stores, found.not_compared.len(), found.lost_count),
        (1, 1, 1),
        "only /short had no other holder"
    );
    let accept = CompareOptions { accept: true, ..LOOK };
    let refused = cluster.compares(&nodes, &has, accept).unwrap_err();
    assert!(matches!(&refused, ComparisonError::NotCompared(stores) if stores.len() == 1), "{refused}");
    assert!(cluster.manager.status_view().unwrap().is_held);
    assert!(!cluster.compares(&nodes, &has, CompareOptions { force: true, ..accept }).unwrap().is_held);
}

#[test]
fn a_manager_that_was_never_restored_has_nothing_to_compare() {
    let cluster = Cluster::new();
    let refused = cluster.manager.compare_restored(LOOK, || true).unwrap_err();
    assert!(matches!(refused, ComparisonError::NotRestored), "{refused}");
    assert!(!cluster.manager.status_view().unwrap().is_held);
}

#[test]
fn stores_on_two_hosts_give_the_root_a_policy_once() {
    let mut cluster = Cluster::new();
    let policy = |cluster: &Cluster| {
        cluster.manager.status_view().map(|status| (status.default_policy, status.is_default_given))
    };
    let looks = |cluster: &Cluster| {
        cluster.passes(2);
        cluster.manager.tick();
    };
    cluster.disk(1);
    looks(&cluster);
    assert_eq!(policy(&cluster).unwrap(), ("replica(1) spread=host".into(), false));
    cluster.disk(2);
    looks(&cluster);
    assert_eq!(policy(&cluster).unwrap(), ("replica(2) sync=2 spread=host".into(), true));
    change(&cluster.namespace, namespace::RemovePolicy { path: NsPath::root() });
    cluster.restart_manager();
    cluster.disk(3);
    looks(&cluster);
    assert_eq!(policy(&cluster).unwrap(), ("replica(1) spread=host".into(), false), "an administrator has removed it");
}

#[test]
fn a_write_that_was_completed_after_the_backup_is_told_and_prevents_the_acceptance() {
    let (cluster, nodes) = Cluster::restored();
    let [kept, short, open] = ["/kept", "/short", "/open"].map(|path| cluster.object(path).0);
    let has = |state| {
        let first = vec![stored(kept, 1), stored(short, 1), StoredReplica { state, ..stored(open, 1) }];
        [first, vec![stored(kept, 1), StoredReplica { state, ..stored(open, 1) }]]
    };
    let accept = CompareOptions { accept: true, ..LOOK };
    let whole = has(stored(open, 1).state);
    let found = cluster.compares(&nodes, &whole, LOOK).unwrap();
    let [finished] = &found.finished[..] else { panic!("{:?}", found.finished) };
    assert_eq!((finished.path.as_str(), finished.object.clone()), ("/open", format!("{open:016x}")));
    assert_eq!((found.finished_count, found.lost_count, found.extra_count), (1, 0, 0));
    let refused = cluster.compares(&nodes, &whole, accept).unwrap_err();
    assert!(matches!(&refused, ComparisonError::Finished(1)), "{refused}");
    assert!(cluster.manager.status_view().unwrap().is_held);
    // As it was at the backup.
    let found = cluster.compares(&nodes, &has(StoredState::Written(1)), accept).unwrap();
    assert_eq!((found.finished_count, found.is_held), (0, false));
    let (cluster, nodes) = Cluster::restored();
    assert!(!cluster.compares(&nodes, &whole, CompareOptions { force: true, ..accept }).unwrap().is_held);
}

#[test]
fn a_damaged_replica_counts_until_the_state_is_accepted() {
    let (cluster, nodes) = Cluster::restored();
    let kept = cluster.object("/kept");
    cluster.reports_damage(nodes[0], 1, &[kept], &[]);
    assert_eq!((cluster.damage(), cluster.holders(kept)), ([0, 1, 0, 0], vec![1, 2]), "the other may be gone");
    let has = [vec![stored(kept.0, 1), stored(cluster.object("/short").0, 1)], vec![stored(kept.0, 1)]];
    cluster.compares(&nodes, &has, CompareOptions { accept: true, ..LOOK }).unwrap();
    cluster.reports_damage(nodes[0], 1, &[kept], &[]);
    cluster.until_damage([1, 0, 0, 0]);
    assert_eq!(cluster.holders(kept), [2]);
}

#[test]
fn nothing_is_recorded_as_absent_after_the_acceptance() {
    let (cluster, nodes) = Cluster::restored();
    let [kept, short] = ["/kept", "/short"].map(|path| cluster.object(path));
    let accept = CompareOptions { accept: true, ..LOOK };
    let all = [vec![stored(kept.0, 1), stored(short.0, 1)], vec![stored(kept.0, 1)]];
    cluster.compares(&nodes, &all, accept).unwrap();
    let [first, _] = all;
    cluster.compares(&nodes, &[first, Vec::new()], accept).unwrap();
    assert_eq!(cluster.holders(kept), [1, 2], "it may have come while the store was asked");
}
