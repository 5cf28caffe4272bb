//! The manager as others see it: it makes the parts, and passes calls on to them.

mod dispatch;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use namespace::{Content, FileState, Namespace, NsError, OpenWrite};
use node::{ClientPresence, ClusterState, Committed, ManagerAddress, STATE_LENGTHS_MAX, Summed};
use store::Space;
use types::striping::StripedOpenWrite;
use types::{
    ClientAddress, GroupId, LocationRanges, NodeId, NsPath, ObjectId, Policy, RequestNumber, StoreId, WriterToken,
};

use crate::attributes::Attributes;
use crate::audit::Audit;
use crate::capability_clock::CapabilityClock;
use crate::comparison::Comparison;
use crate::coordinator::{Coordinator, PublishedView};
use crate::delegated::DelegatedProxies;
use crate::hold::Hold;
use crate::inventories::Inventories;
use crate::jobs::{Backfill, Copies, Damages, Deletions, Draining, Graces, Summing};
use crate::known_damage::KnownDamage;
use crate::names::Names;
use crate::open::OpenService;
use crate::open_lengths::OpenLengths;
use crate::views::{Activities, Views};
use crate::widening::Widening;
use crate::without_primary::WritesWithoutPrimary;
use crate::{
    ApplyError, ApplyOptions, ApplyView, AuditView, CompareOptions, ComparisonError, ComparisonView, DamageView,
    DrainError, FileView, LossView, ManagerSettings, MemberError, MissingAfter, MissingPage, OpenRequest, OpeningError,
    OtherManagers, Redirect, RemoveLost, RepairError, RepairView, StatusView, StoreView, SumError, TopView, Unsummed,
    World,
};

/// A manager.
pub struct Manager {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    coordinator: Arc<Coordinator>,
    open: Arc<OpenService>,
    backfill: Arc<Backfill>,
    copies: Arc<Copies>,
    damages: Arc<Damages>,
    deletions: Arc<Deletions>,
    draining: Arc<Draining>,
    graces: Arc<Graces>,
    summing: Summing,
    attributes: Attributes,
    inventories: Arc<Inventories>,
    audit: Audit,
    activities: Arc<Activities>,
    open_lengths: OpenLengths,
    views: Views,
    hold: Arc<Hold>,
    comparison: Comparison,
    widening: Widening,
    delegated: DelegatedProxies,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Manager")
    }
}

impl Manager {
    /// Starts a manager on a namespace, which an earlier manager may have used.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn start(
        namespace: Arc<Namespace>,
        settings: ManagerSettings,
        world: Box<dyn World>,
    ) -> Result<Arc<Self>, NsError> {
        let (names, world): (Names, Arc<dyn World>) = (Names::new(namespace), Arc::from(world));
        let clock = CapabilityClock::start(world.now(), world.wall());
        let coordinator = Coordinator::start(names.clone(), Arc::clone(&world), clock, &settings)?;
        let hold = Hold::read(&names)?;
        let (names_again, world_again) = (|| names.clone(), || Arc::clone(&world));
        let without_primary = WritesWithoutPrimary::default();
        let known_damage = Arc::new(KnownDamage::default());
        let open = Arc::new(OpenService::new(
            names_again(),
            world_again(),
            Arc::clone(&coordinator),
            settings.capability_lifetime,
            without_primary.clone(),
            Arc::clone(&known_damage),
        ));
        let copies = Arc::new(Copies::new(
            names_again(),
            world_again(),
            Arc::clone(&coordinator),
            Arc::clone(&known_damage),
            settings.copies,
        ));
        let parts = (Arc::clone(&copies), Arc::clone(&hold));
        let damages =
            Arc::new(Damages::new(names_again(), world_again(), Arc::clone(&coordinator), parts, known_damage));
        let deletions = Arc::new(Deletions::new(names_again(), world_again(), &coordinator, Arc::clone(&hold)));
        let backfill = Arc::new(Backfill::new(
            names_again(),
            world_again(),
            Arc::clone(&coordinator),
            (Arc::clone(&copies), Arc::clone(&deletions)),
        ));
        let draining = Arc::new(Draining::new(world_again(), Arc::clone(&coordinator)));
        let graces = Arc::new(Graces::new(
            names_again(),
            (coordinator.published(), world_again()),
            Arc::clone(&open),
            (without_primary, Arc::clone(&hold)),
        ));
        let inventories = Arc::new(Inventories::new(coordinator.published(), world_again()));
        let comparison = Comparison::new(
            names_again(),
            world_again(),
            Arc::clone(&coordinator),
            (Arc::clone(&hold), Arc::clone(&inventories)),
        );
        let parts = (Arc::clone(&copies), Arc::clone(&hold));
        let widening = Widening::new(names_again(), world_again(), Arc::clone(&coordinator), parts);
        let summing = Summing::new(world_again(), Arc::clone(&open));
        let attributes = Attributes::new(names_again(), coordinator.published(), world_again());
        let audit = Audit::new(names_again(), world_again(), Arc::clone(&coordinator), Arc::clone(&inventories));
        let activities = Arc::new(Activities::default());
        let views = Views::new(
            names_again(),
            world_again(),
            Arc::clone(&coordinator),
            (Arc::clone(&activities), Arc::clone(&hold)),
            (Arc::clone(&backfill), Arc::clone(&copies), Arc::clone(&damages), Arc::clone(&draining)),
        );
        Ok(Arc::new(Self {
            view: coordinator.published(),
            names,
            world,
            coordinator,
            open,
            backfill,
            copies,
            damages,
            deletions,
            draining,
            graces,
            summing,
            attributes,
            inventories,
            audit,
            activities,
            open_lengths: OpenLengths::default(),
            delegated: DelegatedProxies::default(),
            views,
            hold,
            comparison,
            widening,
        }))
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        self.names.namespace()
    }

    /// Whether this manager may give disk servers sessions and leases: it has the lease of its database, or there is no other manager that could take
    /// over. After somebody has taken its place (a command, or the same directory elsewhere), it may not.
    #[must_use]
    pub fn may_grant(&self) -> bool {
        self.coordinator.may_grant()
    }

    /// Whether the cluster has other managers. Whoever adds one says so here.
    #[must_use]
    pub fn other_managers(&self) -> &OtherManagers {
        self.coordinator.other_managers()
    }

    /// Sets the manager's address for clients, `host:port`. Disk servers send clients there.
    pub fn set_clients_at(&self, address: &str) {
        self.coordinator.set_clients_at(address);
    }

    /// The addresses of the managers that have said theirs, by node number.
    #[must_use]
    pub fn managers(&self) -> Vec<ManagerAddress> {
        self.coordinator.published().get().servers.managers().to_vec()
    }

    /// Sets the locations of clients that do not state their own.
    pub fn set_client_locations(&self, ranges: LocationRanges) {
        self.coordinator.set_client_locations(ranges);
    }

    /// Applies settings that may change at run time: the grace period of writers without a primary, and the rate of repair.
    pub fn adjust(&self, grace: Duration, copied_bytes_per_second: u64) {
        self.coordinator.set_grace(grace);
        self.copies.set_bytes_per_second(copied_bytes_per_second);
    }

    /// What a standby manager needs to answer readers, beside the namespace. So much of that is `committed` now.
    #[must_use]
    pub fn cluster_state(&self, committed: Committed) -> ClusterState {
        let lengths = self.open_lengths.all(STATE_LENGTHS_MAX);
        self.view.get().to_state(self.world.now(), committed, lengths)
    }

    /// The space of all stores together.
    #[must_use]
    pub fn space(&self) -> Space {
        self.view.get().servers.space()
    }

    /// A node at this address has connected.
    pub fn connected(&self, node: NodeId, address: IpAddr) {
        self.coordinator.connected(node, address);
    }

    /// A node's connection has ended. The manager sends no clients there any more. The node's session goes on until its lease ends.
    pub fn disconnected(&self, node: NodeId) {
        self.coordinator.disconnected(node);
    }
}

/// Opens.
impl Manager {
    /// Opens for writing. Calls `answer` once, perhaps in another thread; it must not wait.
    pub fn open_write(
        &self,
        open_request: OpenRequest,
        op: OpenWrite,
        answer: impl FnOnce(Result<Redirect, OpeningError>) + Send + 'static,
    ) {
        self.open.open_write(open_request, op, answer);
    }

    /// Opens a unit of a striped file for its writer. With `goes_on` it also opens a unit that has ended. Calls `answer` once, perhaps in another
    /// thread; it must not wait.
    pub fn open_unit_write(
        &self,
        open_request: OpenRequest,
        unit: (StripedOpenWrite, u8, bool),
        answer: impl FnOnce(Result<Redirect, OpeningError>) + Send + 'static,
    ) {
        self.open.open_unit_write(open_request, unit, answer);
    }

    /// Opens for reading. `unit`: open this unit of the file, if it still has this object.
    ///
    /// # Errors
    /// Why the client is sent nowhere.
    pub fn open_read(
        &self,
        open_request: &OpenRequest,
        path: &NsPath,
        partial: bool,
        unit: Option<(u8, ObjectId)>,
    ) -> Result<Redirect, OpeningError> {
        self.open.open_read(open_request, path, partial, unit)
    }

    /// Says who writes a striped file, and whether that client is connected. Calls `then` once, perhaps in another thread; it must not wait. `None`: the
    /// open write has ended, or not all servers answer. `combined`: if the units' servers see a client, ask whether it is a server that combines the
    /// units for a client that is gone.
    pub fn who_writes_striped(
        &self,
        (writer, combined): (WriterToken, bool),
        then: impl FnOnce(Option<(String, ClientPresence)>) + Send + 'static,
    ) {
        self.open.who_writes_striped((writer, combined), then);
    }

    /// The addresses of disk servers that can show a file, for clients of the request's protocol, the nearest first. For a file being written, the
    /// primary's address. Empty for a directory.
    ///
    /// # Errors
    /// If the file does not exist, or none of its stores is online.
    pub fn locate(&self, open_request: &OpenRequest, path: &NsPath) -> Result<Vec<ClientAddress>, OpeningError> {
        self.open.locate(open_request, path)
    }

    /// Whether a disk server has announced a close with this number that has not ended yet.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn is_closing(&self, number: RequestNumber) -> Result<bool, NsError> {
        self.open.is_closing(number)
    }

    /// Whether there is such a close, or its announcement may be on its way. For a number that is never announced this is so for two seconds.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn may_be_closing(&self, number: RequestNumber) -> Result<bool, NsError> {
        self.open.may_be_closing(number)
    }

    /// The length of a file that is being written, as the servers that it is written to last reported it, in bytes. A power failure cannot undo it. If
    /// the file has been removed since the caller found `content`, the recorded length.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn open_write_len(&self, content: &Content) -> Result<u64, NsError> {
        if content.group != GroupId::STRIPED {
            return Ok(self.open_lengths.of(content.object));
        }
        let found = self.names.read(|read| namespace::units_if_there(read, content.object))?;
        let Some((stripe, units)) = found else { return Ok(content.len) };
        let unit_len = |unit: &Content| match unit.state {
            FileState::Open(_) | FileState::Updating(_) => self.open_lengths.of(unit.object),
            FileState::Complete | FileState::Interrupted(_) => unit.len,
        };
        let lens: Vec<u64> = units.iter().map(|unit| unit.content().map_or(0, unit_len)).collect();
        Ok(stripe.whole_prefix(&lens))
    }

    /// Has a disk server read a file through. Calls `then` once, in any thread; it must not wait. Calls `is_wanted` from time to time to learn
    /// whether anyone still waits.
    pub fn sum(
        &self,
        file: Unsummed,
        is_wanted: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<Summed, SumError>) + Send + 'static,
    ) {
        self.summing.sum(file, is_wanted, then);
    }
}

/// An administrator's decisions.
impl Manager {
    /// Makes a store read-only, or writable again. Returns when that is recorded. A draining store stops draining.
    ///
    /// # Errors
    /// If the store is unknown or removed as lost, or the change cannot be recorded.
    pub fn set_read_only(&self, store: StoreId, read_only: bool) -> Result<(), MemberError> {
        self.coordinator.set_read_only(store, read_only)?;
        self.draining.forget(store);
        Ok(())
    }

    /// Starts to drain a store. Returns when that is recorded.
    ///
    /// # Errors
    /// If the store is unknown or removed as lost, or the change cannot be recorded.
    pub fn drain_store(&self, store: StoreId) -> Result<(), DrainError> {
        self.draining.start(store)
    }

    /// Stops draining a store, so that it is used again. It does not return to groups that it has left or is just leaving.
    ///
    /// # Errors
    /// If the store is not draining, or the change cannot be recorded.
    pub fn stop_draining(&self, store: StoreId) -> Result<(), DrainError> {
        self.draining.stop(store)
    }

    /// Removes a store as lost: other stores replace it in its groups. Returns when that is recorded.
    ///
    /// # Errors
    /// If its node is online, unless `force` is set; if the store is unknown, or the change cannot be recorded.
    pub fn remove_lost_store(&self, store: StoreId, force: bool) -> Result<(), RepairError> {
        self.coordinator.remove_as_lost(store, force)?;
        self.draining.forget(store);
        Ok(())
    }

    /// Shows what is lost with `stores`, and removes them as lost if that is confirmed. Other stores then replace them in their groups. `go_on` is
    /// asked from time to time: if it returns `false`, nothing is removed, and the result is `None`.
    ///
    /// # Errors
    /// If the removal is confirmed and the node of a store is online, unless `force` is set; if a store is unknown, or the change cannot be recorded.
    pub fn remove_lost_stores(
        &self,
        stores: &BTreeSet<StoreId>,
        how: RemoveLost,
        go_on: impl FnMut() -> bool,
    ) -> Result<Option<LossView>, RepairError> {
        for store in stores {
            self.coordinator.check_lost(*store, how.force || !how.is_confirmed)?;
        }
        let Some(found) = self.views.losses(stores, go_on)? else { return Ok(None) };
        if how.is_confirmed {
            for store in stores {
                self.remove_lost_store(*store, how.force)?;
            }
        }
        Ok(Some(LossView { is_removed: how.is_confirmed, ..found }))
    }

    /// Removes a store from the cluster.
    ///
    /// # Errors
    /// If a group counts on it, it is draining and not empty yet, it is unknown, or the change cannot be recorded.
    pub fn remove_store(&self, store: StoreId) -> Result<(), MemberError> {
        self.coordinator.remove_store(store, self.draining.is_empty(store))
    }

    /// Removes a node, given by name or number. The node can no longer connect. Its stores stay in the cluster, and another node may bring them.
    ///
    /// # Errors
    /// If the node is unknown, is the manager or is online, or if the change cannot be recorded. With `force`, a node that is online is cut off. Repeat
    /// the call after [`MemberError::IsCutOff`], when the lease has ended.
    pub fn remove_node(&self, name: &str, force: bool) -> Result<(), MemberError> {
        self.coordinator.remove_node(name, force)
    }
}

/// After a restore from a backup.
impl Manager {
    /// Compares the restored names with what the stores have, and accepts the state if that is asked. Waits for disk servers. `go_on` is asked from time
    /// to time: if it returns `false`, nothing is accepted, and the result is `None`.
    ///
    /// # Errors
    /// If the namespace was never restored, a store could not be compared and the state is to be accepted, or the namespace cannot be read or changed.
    pub fn compare_restored(
        &self,
        how: CompareOptions,
        go_on: impl FnMut() -> bool,
    ) -> Result<Option<ComparisonView>, ComparisonError> {
        self.comparison.compare(how, go_on)
    }
}

/// Policies.
impl Manager {
    /// Brings the files below `path` to the policies of their directories, as far as they need more replicas. `go_on` is asked from time to time: if it
    /// returns `false`, the walk stops, and the result is `None`. Run it again to continue.
    ///
    /// # Errors
    /// If `path` is not a directory, the namespace cannot be read or changed, or it was restored and nobody has accepted that.
    pub fn apply_policy(
        &self,
        path: &NsPath,
        how: ApplyOptions,
        go_on: impl FnMut() -> bool,
    ) -> Result<Option<ApplyView>, ApplyError> {
        self.widening.apply(path, how, go_on)
    }
}

/// Views for people.
impl Manager {
    /// The cluster as a whole.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn status_view(&self) -> Result<StatusView, NsError> {
        self.views.status()
    }

    /// The same with the present activity. Cheap enough to call every second.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn top_view(&self) -> Result<TopView, NsError> {
        self.views.top()
    }

    /// All stores, by location.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn stores_view(&self) -> Result<Vec<StoreView>, NsError> {
        self.views.stores()
    }

    /// The progress of replacing stores.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn repair_view(&self) -> Result<RepairView, NsError> {
        self.views.repair()
    }

    /// A page of under-replicated files, after `after`. With `unreadable`, only files that nobody can read now. Files that are being written for the
    /// first time are left out: their writer still takes care of them.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn missing(&self, after: Option<MissingAfter>, unreadable: bool) -> Result<MissingPage, NsError> {
        self.views.missing(after, unreadable)
    }

    /// Compares the namespace with what each store has. Lists at most `list_max` problems of each kind. Waits for disk servers, so it takes a thread of
    /// its own. `go_on` is asked from time to time: if it returns `false`, the result is `None`.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn audit(&self, list_max: usize, go_on: &mut dyn FnMut() -> bool) -> Result<Option<AuditView>, NsError> {
        self.audit.run(list_max, go_on)
    }

    /// Whether a disk server has reported this store's replica of an object as damaged.
    #[must_use]
    pub fn knows_damage(&self, store: StoreId, object: ObjectId) -> bool {
        self.damages.is_damaged(store, object)
    }

    /// Damaged replicas, as disk servers report them now.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn damage_view(&self) -> Result<DamageView, NsError> {
        self.views.damage()
    }

    /// A file and its replicas. Follows a symbolic link.
    ///
    /// # Errors
    /// If the file does not exist, or the namespace cannot be read.
    pub fn file_view(&self, path: &NsPath) -> Result<FileView, NsError> {
        self.views.file(path)
    }

    /// Checks whether the existing stores can satisfy a policy if all of them are usable. Returns sentences for people about obstacles at present.
    ///
    /// # Errors
    /// The stores' shortcomings, or when the namespace cannot be read.
    pub fn judge_policy(&self, policy: &Policy) -> Result<Vec<String>, OpeningError> {
        self.views.judge_policy(policy)
    }
}
