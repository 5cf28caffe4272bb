//! The coordinator owns the sessions of disk servers, the fences, the groups of stores, and the capability keys. It publishes what others need for
//! their decisions as a [`ClusterView`]. It knows neither the open service nor the maintenance jobs.
//!
//! One lock protects its state. The table of groups has a lock of its own: there may be ten thousand groups, and a view would copy them at each
//! change. That lock may be taken while any other lock of the manager is held. No other lock is taken under it.

mod capability_keys;
mod default_policy;
mod fencing;
mod following;
mod groups;
mod hosts;
mod lost_stores;
mod members;
mod registration;
pub(crate) mod servers;
mod view;

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use cluster::{Fences, LeaseTerms, Presence, Sessions, Time};
use namespace::{NsError, Read};
use parking_lot::RwLock;
use types::{LocationRanges, NodeId, SessionId};

use crate::capability_clock::CapabilityClock;
use crate::names::Names;
use crate::tracked::{Tracked, TrackedGuard};
use crate::{ManagerSettings, OtherManagers, World};
use default_policy::DefaultPolicy;
use fencing::Waiting;
pub(crate) use fencing::{Ended, Placing, has_older_version};
use groups::Groups;
use hosts::split;
pub use lost_stores::{RemoveLost, RepairError};
pub use members::MemberError;
use servers::Servers;
pub use servers::is_manager;
pub(crate) use view::ClusterView;

/// Reads servers, stores and groups from the namespace, for a manager that starts.
fn read(read: &dyn Read) -> Result<(Servers, Groups), NsError> {
    let mut servers = Servers::default();
    servers.take(namespace::members(read)?, namespace::stores(read)?);
    let groups = Groups::read(read, &servers)?;
    Ok((servers, groups))
}

/// The longest delay until renewed leases appear in a view. Publishing a view for each renewal of a thousand nodes would cost too much.
const PUBLISH_RENEWALS: Duration = Duration::from_millis(100);

/// The view that the coordinator has published last.
#[derive(Clone)]
pub(crate) struct PublishedView {
    latest: Arc<RwLock<Arc<ClusterView>>>,
}

impl PublishedView {
    /// The present view of the cluster. Never waits for the coordinator: the lock is held only while a reference is copied.
    pub(crate) fn get(&self) -> Arc<ClusterView> {
        Arc::clone(&self.latest.read())
    }
}

/// See the module.
pub(crate) struct Coordinator {
    names: Names,
    world: Arc<dyn World>,
    /// This manager's node.
    own: NodeId,
    others: OtherManagers,
    terms: LeaseTerms,
    state: Tracked<CoordinatorState>,
    /// Replaced as a whole, under the lock of `state`.
    published: PublishedView,
    groups: Tracked<Groups>,
    /// Taken before `state`, so that the last message sent is also the latest state.
    telling_addresses: Tracked<()>,
}

/// The coordinator's own state, and the view that it publishes next. Code reads the view through this value and changes it with the `_mut` methods.
struct CoordinatorState {
    view: ClusterView,
    /// Publish the view when this lock is released.
    is_news: bool,
    /// The view has newer leases or figures than the published one.
    is_later: bool,
    published_at: Time,
    waiting: Vec<Waiting>,
    /// Nodes that are just being removed.
    being_removed: BTreeSet<NodeId>,
    /// Nodes that were cut off, to be removed when their leases have ended. After a restart of the manager they are not cut off any more: nobody was
    /// told that they are removed.
    cut_off: BTreeSet<NodeId>,
    /// Nodes that know the present addresses of all stores.
    told: BTreeSet<NodeId>,
    /// The number of address lists sent so far.
    tellings: u64,
    /// Some node does not know the present addresses of all stores yet.
    wants_telling: bool,
    /// The set of online servers has changed since the map was made.
    is_changed: bool,
    /// Space or load has changed since the map was made. Every store reports each second, so the map is not remade for each report.
    has_new_figures: bool,
    next_look: Time,
    /// Reads of the member and store lists: the number started, and the latest one whose result was used.
    looks: (u64, u64),
    /// A disk server has an object whose number this namespace never assigned.
    is_older: bool,
    /// How far the decision about the root's policy is.
    default_policy: DefaultPolicy,
}

impl Coordinator {
    /// Starts with what an earlier manager has recorded in the namespace.
    pub(crate) fn start(
        names: Names,
        world: Arc<dyn World>,
        clock: CapabilityClock,
        settings: &ManagerSettings,
    ) -> Result<Arc<Self>, NsError> {
        let now = world.now();
        let sessions = Sessions::new(settings.terms, names.session(), now, names.read(namespace::nodes)?);
        let sessions = sessions.at_random_distance(world.random());
        let (servers, groups) = names.read(read)?;
        let others = OtherManagers::default();
        others.end_look(others.begin_look(), settings.node, &names.read(namespace::members)?);
        let is_decided = names.read(namespace::default_policy)?.is_some();
        let cut_off = names.read(namespace::cut_off)?;
        let view = ClusterView {
            version: 1,
            clock,
            grace: settings.grace,
            clients_at: None,
            client_locations: Arc::default(),
            servers: Arc::new(servers),
            sessions: Arc::new(sessions),
            fences: Arc::new(Fences::default()),
        };
        let published = PublishedView { latest: Arc::new(RwLock::new(Arc::new(view.clone()))) };
        let state = CoordinatorState {
            view,
            is_news: false,
            is_later: false,
            published_at: now,
            waiting: Vec::new(),
            being_removed: BTreeSet::new(),
            cut_off,
            told: BTreeSet::new(),
            tellings: 0,
            wants_telling: true,
            is_changed: false,
            has_new_figures: false,
            next_look: Time::default(),
            looks: (0, 0),
            is_older: false,
            default_policy: if is_decided { DefaultPolicy::Decided } else { DefaultPolicy::Open },
        };
        let this = Self {
            names,
            world,
            own: settings.node,
            others,
            terms: settings.terms,
            state: Tracked::new(state),
            published,
            groups: Tracked::new(groups),
            telling_addresses: Tracked::default(),
        };
        // The view must list stores that have not reported yet.
        this.lock().make_map(now);
        Ok(Arc::new(this))
    }

    /// The view, for parts that decide by it.
    pub(crate) fn published(&self) -> PublishedView {
        self.published.clone()
    }

    fn view(&self) -> Arc<ClusterView> {
        self.published.get()
    }

    /// Locks the groups. A thread takes no other lock after this one.
    pub(crate) fn groups(&self) -> TrackedGuard<'_, Groups> {
        self.groups.lock()
    }

    /// Waits for the lock. All changes made under it are published together when it is released.
    fn lock(&self) -> CoordinatorGuard<'_> {
        CoordinatorGuard { coordinator: self, state: self.state.lock() }
    }

    /// Publishes changes that were too small for a view of their own.
    pub(crate) fn publish_what_is_left(&self) {
        let mut state = self.lock();
        state.is_news |= state.is_later;
    }

    /// Whether a disk server has reported objects that are newer than the namespace.
    pub(crate) fn is_older(&self) -> bool {
        self.lock().is_older
    }

    /// See [`crate::Manager::may_grant`].
    pub(crate) fn may_grant(&self) -> bool {
        self.world.has_lease() || (!self.others.exist() && !self.world.has_lost_place())
    }

    /// This manager's node.
    pub(crate) fn own(&self) -> NodeId {
        self.own
    }

    pub(crate) fn other_managers(&self) -> &OtherManagers {
        &self.others
    }

    /// Sets the manager's address for clients, `host:port`.
    pub(crate) fn set_clients_at(&self, address: &str) {
        let mut state = self.lock();
        (state.view.clients_at, state.is_news) = (split(address), true);
    }

    pub(crate) fn set_client_locations(&self, ranges: LocationRanges) {
        let mut state = self.lock();
        (state.view.client_locations, state.is_news) = (Arc::new(ranges), true);
    }

    pub(crate) fn set_grace(&self, grace: Duration) {
        let mut state = self.lock();
        (state.view.grace, state.is_news) = (grace, true);
    }
}

impl CoordinatorState {
    fn servers_mut(&mut self) -> &mut Servers {
        self.is_news = true;
        Arc::make_mut(&mut self.view.servers)
    }

    /// For the figures that stores report each second. They take effect with the next map.
    fn figures_mut(&mut self) -> &mut Servers {
        self.is_later = true;
        Arc::make_mut(&mut self.view.servers)
    }

    fn sessions_mut(&mut self) -> &mut Sessions {
        self.is_news = true;
        Arc::make_mut(&mut self.view.sessions)
    }

    /// The fences, with the sessions that they apply to. Pass `is_news` if a fence begins or ends, so that the view is published.
    fn fences_mut(&mut self, is_news: bool) -> (&mut Fences, &Sessions) {
        self.is_news |= is_news;
        (Arc::make_mut(&mut self.view.fences), &self.view.sessions)
    }

    /// Extends a session ([`Sessions::renew`]). Readers of the view learn of it in time, and at once if they took the node for offline.
    fn renew(&mut self, now: Time, node: NodeId, session: SessionId) -> bool {
        let was_online = self.view.sessions.presence(now, node) == Presence::Online;
        let is_good = Arc::make_mut(&mut self.view.sessions).renew(now, node, session);
        if is_good {
            self.is_later = true;
            self.is_news |= !was_online || now.since(self.published_at) >= PUBLISH_RENEWALS;
            if self.is_news {
                self.published_at = now;
            }
        }
        is_good
    }
}

/// Read access only. Changes go through the `_mut` methods, which mark the view for publication.
impl Deref for CoordinatorState {
    type Target = ClusterView;

    fn deref(&self) -> &ClusterView {
        &self.view
    }
}

/// The coordinator's lock. Releasing it publishes the changes.
struct CoordinatorGuard<'a> {
    coordinator: &'a Coordinator,
    state: TrackedGuard<'a, CoordinatorState>,
}

impl Drop for CoordinatorGuard<'_> {
    fn drop(&mut self) {
        // Still under the lock, so that views are published in the order in which they were made.
        if self.state.is_news {
            (self.state.is_news, self.state.is_later) = (false, false);
            self.state.view.version += 1;
            *self.coordinator.published.latest.write() = Arc::new(self.state.view.clone());
        }
    }
}

impl Deref for CoordinatorGuard<'_> {
    type Target = CoordinatorState;

    fn deref(&self) -> &CoordinatorState {
        &self.state
    }
}

impl DerefMut for CoordinatorGuard<'_> {
    fn deref_mut(&mut self) -> &mut CoordinatorState {
        &mut self.state
    }
}
