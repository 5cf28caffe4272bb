//! The further metrics of a node of a cluster. docs/reference/metrics.md lists them, and a test compares. The labels are states, of which
//! there are few, and a node's own stores.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Presence;
use cluster::placement::StoreState;
use disk_server::DiskServer;
use manager::{Manager, TopView};
use monitor::exposition::{Exposition, Kind};
use store::Space;

/// The states of a store.
const STORE_STATES: [StoreState; 9] = [
    StoreState::Online,
    StoreState::Suspect,
    StoreState::Offline,
    StoreState::Removed,
    StoreState::Returned,
    StoreState::Replaced,
    StoreState::Draining,
    StoreState::ReadOnly,
    StoreState::Full,
];

/// The source of a cluster node's metrics.
pub enum ClusterSource {
    /// A manager.
    Manager {
        /// The running manager.
        manager: Arc<Manager>,
        /// The file system of its data directory.
        space: Box<dyn Fn() -> Option<Space> + Send + Sync>,
    },
    /// A standby manager.
    Standby(service::Standby),
    /// A disk server.
    Disk(Arc<DiskServer>),
}

impl ClusterSource {
    /// The file systems of this node. The `space` of a manager's front end covers all stores of the cluster instead.
    pub(super) fn own_space(&self, space: Option<Space>) -> Option<Space> {
        match self {
            Self::Manager { space, .. } => space(),
            Self::Standby(_) => None,
            Self::Disk(_) => space,
        }
    }

    pub(super) fn tell(&self, out: &mut Exposition) {
        if !matches!(self, Self::Disk(_)) {
            out.family("weir_manager_active", Kind::Gauge, "1 on the active manager, 0 on a standby")
                .sample(u8::from(matches!(self, Self::Manager { .. })));
        }
        match self {
            Self::Standby(standby) => {
                let help = "1 while this standby answers readers, 0 while it sends them to the active manager";
                out.family("weir_standby_answers_readers", Kind::Gauge, help)
                    .sample(u8::from(standby.reads().is_some()));
            }
            Self::Manager { manager, .. } => match manager.top_view() {
                Ok(view) => of_manager(out, &view),
                Err(error) => tracing::warn!("the cluster's metrics cannot be computed: {error}"),
            },
            Self::Disk(disk) => of_disk_server(out, disk),
        }
    }
}

fn of_manager(out: &mut Exposition, view: &TopView) {
    use Kind::{Counter, Gauge};
    let status = &view.status;
    let mut nodes = BTreeMap::from([("online", 0_u64), ("suspect", 0), ("away", 0)]);
    for presence in status.nodes.iter().filter_map(|node| node.presence) {
        let state = match presence {
            Presence::Online => "online",
            Presence::Suspect => "suspect",
            Presence::Away => "away",
        };
        *nodes.entry(state).or_default() += 1;
    }
    out.family("weir_cluster_nodes", Gauge, "Disk servers, by state");
    for (state, count) in nodes {
        out.labelled(&[("state", state)], count);
    }
    out.family("weir_cluster_stores", Gauge, "Stores, by state");
    for state in STORE_STATES {
        let count = status.stores.get(&state).copied().unwrap_or(0);
        out.labelled(&[("state", &state.to_string())], count);
    }
    out.family("weir_cluster_capacity_bytes", Gauge, "Size of the stores that accept new files")
        .sample(status.capacity);
    out.family("weir_cluster_available_bytes", Gauge, "Bytes available on these stores, above the reserve")
        .sample(status.available);
    out.family("weir_cluster_writers", Gauge, "Files that are being written, counted up to about 10,000")
        .sample(status.writers.count);
    out.family("weir_cluster_missing_replicas", Gauge, "Missing replicas, counted up to about 10,000")
        .sample(status.missing.count);
    out.family("weir_cluster_repairs_running", Gauge, "Missing replicas that are being repaired now")
        .sample(status.copying);
    out.family(
        "weir_cluster_groups_under_replicated",
        Gauge,
        "Groups with a store that is not online: their files are under-replicated",
    )
    .sample(status.groups_under_replicated);
    out.family(
        "weir_cluster_groups_unavailable",
        Gauge,
        "Groups without any store online: files that only they have cannot be read",
    )
    .sample(status.groups_unavailable);
    let damaged = status.damaged;
    out.family("weir_cluster_damaged_replicas", Gauge, "Damaged replicas on stores, by what becomes of them");
    for (state, count) in
        [("repairing", damaged.repairing), ("waiting", damaged.waiting), ("no_other", damaged.no_other)]
    {
        out.labelled(&[("state", state)], count);
    }
    out.family("weir_cluster_damaged_repaired_total", Counter, "Damaged replicas that were replaced by intact ones")
        .sample(damaged.repaired);
    out.family("weir_cluster_repairs_total", Counter, "Missing replicas that were repaired")
        .sample(view.repaired_replicas);
    out.family("weir_cluster_repaired_bytes_total", Counter, "Bytes of the repaired replicas")
        .sample(view.repaired_bytes);
}

fn of_disk_server(out: &mut Exposition, disk: &DiskServer) {
    use Kind::Gauge;
    let figures = disk.figures();
    out.family("weir_in_session", Gauge, "1 while the disk server holds a lease and may answer")
        .sample(u8::from(figures.is_in_session));
    out.family(
        "weir_load_ratio",
        Gauge,
        "Share of its transfer capacity that the disk server used in the last second, 0 to 1",
    )
    .sample(f64::from(figures.load_permille) / 1000.0);
    let stores: Vec<_> = figures.stores.iter().map(|store| (store.store.to_string(), store)).collect();
    let mut each = |name, help, value: &dyn Fn(&disk_server::StoreFigures) -> Option<u64>| {
        out.family(name, Gauge, help);
        for (label, store) in &stores {
            if let Some(value) = value(store) {
                out.labelled(&[("store", label)], value);
            }
        }
    };
    each("weir_store_capacity_bytes", "Size of a store's file system", &|store| Some(store.space?.total));
    each("weir_store_free_bytes", "Free bytes of a store's file system", &|store| Some(store.space?.free));
    each("weir_store_floor_bytes", "Free bytes below which a store accepts no new data", &|store| {
        Some(store.space?.floor)
    });
    each("weir_store_refusing", "1 while a store takes no new data for want of space", &|store| {
        Some(u64::from(store.space?.floor_reached))
    });
    each("weir_store_open_replicas", "Replicas that are being written on a store", &|store| {
        Some(store.open_replicas as u64)
    });
}
