//! A standby manager answers readers as the active one would, by what it was told last.

use std::time::Duration;

use manager::{Redirect, StandbyManager, StandbyWorld};
use types::ReplicaId;

use super::*;

struct Standby {
    now: Arc<Mutex<Time>>,
    manager: Arc<StandbyManager>,
}

impl Standby {
    fn of(kv: &Arc<MemoryKv>) -> Self {
        let now = Arc::<Mutex<Time>>::default();
        let clock = Arc::clone(&now);
        let outside = StandbyWorld { now: Box::new(move || *clock.lock()), random: Box::new(|| 4 | 1 << 62) };
        let namespace = Namespace::for_reading(Arc::clone(kv) as Arc<dyn Kv>);
        Self { now, manager: StandbyManager::start(namespace, ManagerSettings::default(), outside).unwrap() }
    }

    fn hears(&self, of: &Cluster) {
        self.manager.follow(&of.manager.cluster_state(node::Committed::default()), self.manager.now()).unwrap();
    }

    fn opens(&self, path: &str) -> Result<Redirect, OpeningError> {
        let path = NsPath::parse(path.as_bytes()).unwrap();
        self.manager.open_read(&request(&path), &path, false, None)
    }
}

impl Cluster {
    /// Stores report, and the manager notices it.
    fn settles(&self, stores: &[(NodeId, u64)]) {
        for (node, store) in stores {
            self.reports(*node, &[*store]);
        }
        self.passes(1);
        self.manager.tick();
    }
}

fn request(path: &NsPath) -> OpenRequest {
    OpenRequest::new(Timestamp(1), path.clone(), std::net::Ipv4Addr::LOCALHOST.into(), Actor::admin())
}

fn opens_at_active(cluster: &Cluster, path: &str) -> Result<Redirect, OpeningError> {
    let path = NsPath::parse(path.as_bytes()).unwrap();
    cluster.manager.open_read(&request(&path), &path, false, None)
}

#[test]
fn readers_are_sent_where_the_active_manager_sends_them() {
    let kv = Arc::new(MemoryKv::new());
    let cluster = Cluster::on(Arc::clone(&kv));
    let (first, _) = cluster.disk(1);
    let (second, _) = cluster.disk(2);
    cluster.groups(&[1, 2]);
    cluster.has_file("/file", &[1, 2]);
    cluster.settles(&[(first, 1), (second, 2)]);
    let standby = Standby::of(&kv);
    assert!(!standby.manager.is_current(), "it has heard nothing");
    standby.hears(&cluster);
    assert!(standby.manager.is_current());
    let to = standby.opens("/file").unwrap();
    assert_eq!(to, opens_at_active(&cluster, "/file").unwrap(), "with the same capability");
    let missing = standby.opens("/missing").unwrap_err();
    assert_eq!(missing.code(), ErrorCode::NotFound);
    // What is committed later is read at once.
    cluster.has_file("/later", &[1, 2]);
    assert_eq!(standby.opens("/later").unwrap(), opens_at_active(&cluster, "/later").unwrap());
    // A server goes away: the standby hears of it with the next state.
    cluster.manager.disconnected(to.node);
    standby.hears(&cluster);
    let other = if to.node == first { second } else { first };
    assert_eq!(standby.opens("/file").unwrap().node, other);
    cluster.manager.disconnected(other);
    standby.hears(&cluster);
    assert!(standby.opens("/file").is_err());
}

#[test]
fn a_capability_is_of_the_session_that_the_standby_knows() {
    let kv = Arc::new(MemoryKv::new());
    let cluster = Cluster::on(Arc::clone(&kv));
    let (node, before) = cluster.disk(1);
    cluster.groups(&[1]);
    cluster.has_file("/file", &[1]);
    cluster.settles(&[(node, 1)]);
    let standby = Standby::of(&kv);
    standby.hears(&cluster);
    let old = standby.opens("/file").unwrap().capability;
    let after = cluster.boots(node, 9).unwrap();
    assert_ne!(before, after);
    cluster.settles(&[(node, 1)]);
    assert_eq!(standby.opens("/file").unwrap().capability, old, "the disk server will refuse it");
    assert_ne!(opens_at_active(&cluster, "/file").unwrap().capability, old);
    standby.hears(&cluster);
    assert_eq!(standby.opens("/file").unwrap(), opens_at_active(&cluster, "/file").unwrap());
}

#[test]
fn nobody_is_sent_to_a_replica_that_is_being_fenced() {
    let kv = Arc::new(MemoryKv::new());
    let cluster = Cluster::on(Arc::clone(&kv));
    let (node, _) = cluster.disk(1);
    cluster.groups(&[1]);
    cluster.has_file("/file", &[1]);
    cluster.settles(&[(node, 1)]);
    let standby = Standby::of(&kv);
    let state = cluster.manager.cluster_state(node::Committed::default());
    let object = opens_at_active(&cluster, "/file").unwrap().object;
    let fenced = node::ClusterState { fenced: vec![ReplicaId::first(object)], ..state };
    standby.manager.follow(&fenced, standby.manager.now()).unwrap();
    let refused = standby.opens("/file").unwrap_err();
    assert!(matches!(refused, OpeningError::Wait { .. }), "{refused}");
    standby.hears(&cluster);
    assert!(standby.opens("/file").is_ok());
}

#[test]
fn an_old_state_is_not_used() {
    let kv = Arc::new(MemoryKv::new());
    let cluster = Cluster::on(Arc::clone(&kv));
    let standby = Standby::of(&kv);
    standby.hears(&cluster);
    *standby.now.lock() = Time(Duration::from_secs(5));
    assert!(standby.manager.is_current());
    *standby.now.lock() = Time(Duration::from_millis(5001));
    assert!(!standby.manager.is_current());
    // What was asked for before counts from then, however late it comes.
    let asked = Time(Duration::from_secs(1));
    standby.manager.follow(&cluster.manager.cluster_state(node::Committed::default()), asked).unwrap();
    assert!(standby.manager.is_current());
    *standby.now.lock() = Time(Duration::from_millis(6001));
    assert!(!standby.manager.is_current());
}
