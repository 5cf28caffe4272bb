//! `weir fsck --cluster`, as far as it needs no real disk server.

use std::thread;

use manager::{AuditView, ProblemKind};
use node::{Inventory, ObjectDigest, StoredReplica, StoredState};
use types::{Adler32, Crc32c, Incarnation, ReplicaId};

use super::*;

impl Cluster {
    /// Compares. Store 2 of this node has these objects, in order; no other store answers.
    fn audits(&self, node: NodeId, has: &[ObjectId]) -> AuditView {
        let stored = |object: &ObjectId| StoredReplica {
            replica: ReplicaId::first(*object),
            state: StoredState::Whole(ObjectDigest { len: 1, crc32c: Crc32c(7), adler32: Adler32(7) }),
            is_damaged: false,
            incarnation: Incarnation(1),
        };
        thread::scope(|scope| {
            let audit = scope.spawn(|| self.manager.audit(1000, &mut || true));
            while !audit.is_finished() {
                for message in self.sent(node) {
                    let FromManager::Inventory { number, request, .. } = message else { continue };
                    let node::InventoryRequest::After(after) = request else { continue };
                    let replicas = has.iter().map(stored).filter(|one| Some(one.replica) > after).collect();
                    let found = Ok(Inventory::Replicas { replicas, is_last: true });
                    self.manager.receive(node, FromDisk::Inventory { number, found });
                }
                thread::yield_now();
            }
            audit.join().unwrap().unwrap().unwrap()
        })
    }
}

/// The kinds, paths and stores, in order of the paths.
fn told(found: &AuditView) -> Vec<(ProblemKind, &str, &str)> {
    let mut all: Vec<_> = found
        .findings
        .iter()
        .map(|one| (one.kind, one.path.as_deref().unwrap_or_default(), one.store.as_str()))
        .collect();
    all.sort_by_key(|(_, path, _)| *path);
    all
}

#[test]
fn files_of_stores_that_are_removed_as_lost_are_lost() {
    const ELSEWHERE: GroupId = GroupId(8);
    let mut cluster = Cluster::new();
    let nodes: Vec<NodeId> = (1..=2).map(|number| cluster.joins(number)).collect();
    let member = |store, since| Member { store: StoreId(store), since: ObjectId(since), through: ObjectId(0) };
    cluster.groups(&[1, 2]);
    cluster.has_file("/kept", &[1, 2]);
    cluster.has_file("/second-lacks-it", &[1, 2]);
    // More than one page.
    (0..600).for_each(|number| cluster.has_file(&format!("/first-{number:03}"), &[1]));
    // The only store of this file's group was replaced, and the other one never got it.
    let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
    let open = OpenWrite::new(NsPath::parse(b"/nowhere").unwrap(), WriteMode::NewOnly, client, BootId(1));
    let group = |epoch, members| PutGroup { group: Group { group: ELSEWHERE, epoch, members } };
    change(&cluster.namespace, group(1, vec![member(1, 1)]));
    let writer = change(
        &cluster.namespace,
        OpenWrite { placement: Placement { group: ELSEWHERE, in_sync: in_sync(&[1]) }, ..open },
    )
    .writer;
    let content = namespace::Committed { len: 1, sums: None, mtime: None };
    let commit = namespace::Commit { writer, content, completion: namespace::Completion::ByClient };
    let holders = vec![StoreId(1)];
    change(&cluster.namespace, namespace::CommitPlaced { commit, group: ELSEWHERE, by: StoreId(1), holders });
    change(&cluster.namespace, group(2, vec![member(2, 1 << 40)]));
    // This one has no finished object yet.
    cluster.opens("/open", &[1, 2]);

    cluster.restart_manager();
    let sessions: Vec<SessionId> = (1..)
        .zip(&nodes)
        .map(|(store, node)| {
            cluster.comes(*node);
            let session = cluster.registers(*node).unwrap();
            cluster.reports(*node, &[store]);
            session
        })
        .collect();
    cluster.lives(&[(nodes[1], sessions[1])], 60);
    let kept = [cluster.object("/kept")];
    let found = cluster.audits(nodes[1], &kept);
    assert_eq!((found.unchecked_stores.len(), found.counts.get(&ProblemKind::Unchecked)), (1, Some(&1)));
    assert_eq!(found.counts.get(&ProblemKind::Lost), Some(&1), "only what no store should have");

    cluster.manager.remove_lost_store(StoreId(1), true).unwrap();
    let found = cluster.audits(nodes[1], &kept);
    assert_eq!((found.checked_stores, found.unchecked_stores.len(), found.compared), (1, 0, 2));
    assert_eq!(found.counts, [(ProblemKind::Lost, 602)].into(), "{:?}", told(&found));
    let told = told(&found);
    assert_eq!(told.len(), 602);
    assert!(told[..600].iter().all(|(_, _, store)| store.ends_with("which is removed as lost")), "{told:?}");
    assert_eq!(told[600], (ProblemKind::Lost, "/nowhere", ""));
    assert_eq!((told[601].1, told[601].2.starts_with("store 2 at")), ("/second-lacks-it", true));
}

#[test]
fn what_a_draining_store_still_has_is_not_extra() {
    let mut cluster = Cluster::new();
    let node = cluster.joins(2);
    cluster.groups(&[2]);
    cluster.restart_manager();
    cluster.comes(node);
    let session = cluster.registers(node).unwrap();
    cluster.reports(node, &[2]);
    cluster.lives(&[(node, session)], 1);
    let extra = [ObjectId(1 << 20)];
    assert_eq!(cluster.audits(node, &extra).counts, [(ProblemKind::Extra, 1)].into());
    cluster.manager.drain_store(StoreId(2)).unwrap();
    let found = cluster.audits(node, &extra);
    assert_eq!((found.checked_stores, found.counts), (1, [].into()));
}
