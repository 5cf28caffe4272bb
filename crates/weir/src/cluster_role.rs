//! Starts the roles of a cluster's nodes: the manager's and the disk server's decisions, and the front end of each.

use std::net::SocketAddr;
use std::sync::Arc;

use cluster::CopyRate;
use cluster::ProcessEpoch;
use config::Config;
use disk::{Access, Disk, DiskError, OpenOptions};
use disk_server::{DiskNode, DiskServer, DiskSettings, OnManagers, StoreAt};
use foundation::disk_of;
use manager::{Manager, ManagerNode, ManagerSettings, PlaceChecks};
use types::{BootId, NodeId};
use xrootd::{Server, ServerConfig};

use crate::Failure;
use crate::audit_log;
use crate::cluster_node::RunningRole;
use crate::exit::Exit;
use crate::not_active::{Cause, NotActive};
use crate::serve::{fetcher, not_served, set_bounds};
use crate::serve_disk::DiskParts;
use crate::serve_manager::ManagerParts;
use crate::striping::StripedFiles;

fn not_started(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::new(Exit::Failed, error).while_doing("cannot start the cluster role of this node")
}

pub(crate) fn server_config(config: &Config, listen: SocketAddr, boot: BootId) -> Result<ServerConfig, Failure> {
    let mut server_config = ServerConfig::new(listen, boot);
    set_bounds(config, &mut server_config);
    // The manager only permits a third-party copy; the disk servers carry it out.
    server_config.service.pull = fetcher(config);
    server_config.service.audit = audit_log::open(config)?;
    Ok(server_config)
}

/// Starts the manager.
pub(crate) fn manager_settings(config: &Config, node: NodeId) -> ManagerSettings {
    let copies = CopyRate { bytes_per_second: config.repair_rate, ..CopyRate::default() };
    ManagerSettings { node, grace: config.grace, copies, ..ManagerSettings::default() }
}

pub(crate) fn start_manager(parts: &ManagerParts<'_>) -> Result<(RunningRole, Arc<Manager>), NotActive> {
    let ManagerParts { own, config, foundation, links, boot, sockets, listen, security } = parts;
    let settings = manager_settings(config, *own);
    let engine = &foundation.names.engine;
    let place = PlaceChecks { has_lease: engine.has_lease(), is_lost: engine.has_lost_place() };
    let node =
        ManagerNode::start(Arc::clone(&foundation.names.namespace), settings, links, place).map_err(|error| {
            let cause = Cause::of_manager(&error);
            NotActive::new(not_started(error), cause)
        })?;
    foundation.names.engine.on_batch_done(Arc::new(xrootd::batch_done));
    let role = service::Role::Manager(Arc::clone(node.manager()));
    let mut server_config = server_config(config, *listen, *boot)?;
    security.give_to(&mut server_config, false);
    let server = Server::start_on(sockets.clients()?, server_config, role).map_err(|error| {
        let cause = Cause::of_server(&error);
        NotActive::new(not_served(error), cause)
    })?;
    node.manager().set_clients_at(&sockets.for_clients);
    node.manager().set_client_locations(config.client_locations.clone());
    let (receiver, manager) = (node.receiver(), Arc::clone(node.manager()));
    let stop_node = Box::new(move || node.stop());
    Ok((RunningRole { receiver, server, stop_node }, manager))
}

/// Starts the disk server. `on_managers` takes the addresses of managers that it is told.
pub(crate) fn start_disk(
    parts: &DiskParts<'_>,
    on_managers: OnManagers,
) -> Result<(RunningRole, Arc<DiskServer>), Failure> {
    let DiskParts { config, data, stores, links, boot, listen, security } = parts;
    let process_epoch = next_life(&*disk_of(data))
        .map_err(|error| Failure::new(Exit::DiskFailed, error).while_doing("cannot count the runs of this node"))?;
    // Unsynced bytes are trusted as long as none of its journals has lost any.
    let boot = stores.iter().fold(*boot, |boot, store| store.foundation.journal.boot(boot));
    let at = |store: &crate::served_stores::ServedStore| StoreAt {
        store_id: store.foundation.objects.id,
        store: Arc::clone(&store.foundation.objects.store),
    };
    let settings = DiskSettings { node: links.node(), process_epoch, boot };
    let node = DiskNode::start(settings, stores.iter().map(at).collect(), links).map_err(not_started)?;
    node.on_managers(on_managers);
    let role = service::Role::Disk(Arc::clone(node.server()));
    let mut server_config = server_config(config, *listen, boot)?;
    security.give_to(&mut server_config, true);
    let asked = Arc::clone(node.server());
    let striped = StripedFiles::new(move || asked.managers());
    server_config.service.striper = Some(service::PutsTogether(Arc::new(striped)));
    let server = Server::start(server_config, role).map_err(not_served)?;
    let watch = server.watch();
    node.server().set_front_end(Some(Box::new(move || watch.front_end())));
    let (receiver, disk_server) = (node.receiver(), Arc::clone(node.server()));
    let stop_node = Box::new(move || {
        // Each of the two needs a reference to the other.
        node.server().set_front_end(None);
        node.stop();
    });
    Ok((RunningRole { receiver, server, stop_node }, disk_server))
}

/// Where the runs of a disk server are counted. The folder is there once a run has opened its stores.
pub(crate) const RUNS_DIR: &str = "node/runs";

/// Counts the runs of this node durably, so that of two runs the later one is known.
fn next_life(disk: &dyn Disk) -> Result<ProcessEpoch, DiskError> {
    disk.create_dir_all(RUNS_DIR)?;
    disk.sync_dir("node")?;
    // Each run makes a file named by its number. The earlier files can go once this one is durable.
    let before: Vec<u64> = disk.list(RUNS_DIR)?.iter().filter_map(|entry| entry.name.parse().ok()).collect();
    let process_epoch = before.iter().copied().max().unwrap_or(0) + 1;
    let file =
        disk.open(&format!("{RUNS_DIR}/{process_epoch}"), OpenOptions { access: Access::CreateNew, direct: false })?;
    file.sync_data()?;
    disk.sync_dir(RUNS_DIR)?;
    for old in before {
        disk.remove(&format!("{RUNS_DIR}/{old}"))?;
    }
    Ok(ProcessEpoch(process_epoch))
}
