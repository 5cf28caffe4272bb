//! The coordinator: sessions of disk servers, fences, groups in the making, keys of capabilities. Whatever it knows that others decide by, it
//! publishes as a [`ClusterView`].
//!
//! Its state has one lock. The table of groups has another, since there may be ten thousands of them, and a view that had them would copy them at
//! each change; it may be taken while any other lock of the manager is held, and no other lock is taken under it.

mod fencing;
mod groups;
mod hosts;
mod members;
mod registration;
pub(crate) mod servers;
mod view;

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use cluster::{Fences, Presence, Sessions, Time};
use parking_lot::RwLock;
use types::{LocationRanges, NodeId, SessionId};

use crate::tracked::{Tracked, TrackedGuard};
use fencing::Waiting;
pub(crate) use fencing::{Ended, Placing};
use groups::Groups;
pub(crate) use hosts::split;
pub use members::MemberError;
use namespace::{NsError, Read};
use servers::Servers;
pub(crate) use view::ClusterView;

/// What the namespace knows of servers, stores and groups, for a manager that begins.
pub(crate) fn read(read: &dyn Read) -> Result<(Servers, Groups), NsError> {
    let mut servers = Servers::default();
    servers.take(namespace::members(read)?, namespace::stores(read)?);
    let groups = Groups::read(read, &servers)?;
    Ok((servers, groups))
}

/// Leases that are renewed reach those who look at views at most this late. With each of a thousand nodes' renewals a view of its own would be made.
const PUBLISH_RENEWALS: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Coordinator {
    state: Tracked<CoordinatorState>,
    /// Replaced as a whole, under the lock of `state`. Its own lock is held for as long as a reference is copied.
    published: RwLock<Arc<ClusterView>>,
    groups: Tracked<Groups>,
    /// Taken before `state`: what is told last has to be what was looked at last.
    telling_addresses: Tracked<()>,
}

/// What only the coordinator knows, and the view that it publishes next: that can be read through this value, and is changed by its `_mut` methods.
pub(crate) struct CoordinatorState {
    view: ClusterView,
    /// The view is to be published with the end of this lock.
    is_news: bool,
    /// It has other leases or figures than the published one.
    is_later: bool,
    published_at: Time,
    waiting: Vec<Waiting>,
    /// Nodes that are just being removed.
    member_states: BTreeSet<NodeId>,
    /// Who was told who serves which store, as that is now.
    told: BTreeSet<NodeId>,
    /// Counts how often somebody was told.
    tellings: u64,
    /// Somebody has not been told yet who serves which store, as that is now.
    wants_telling: bool,
    /// Who is there, since the map was made.
    is_changed: bool,
    /// How much space or load there is, since then: every store says so every second, and the map is not made anew for each.
    has_new_figures: bool,
    next_look: Time,
    /// Looks at which nodes and stores there are: how many were begun, and the latest whose result counts.
    looks: (u64, u64),
    /// A disk server has contents that these names never had a number for.
    is_older: bool,
}

impl Coordinator {
    pub(crate) fn new(
        now: Time,
        (sessions, servers, groups): (Sessions, Servers, Groups),
        grace: Duration,
    ) -> Coordinator {
        let view = ClusterView {
            version: 1,
            grace,
            clients_at: None,
            client_locations: Arc::default(),
            servers: Arc::new(servers),
            sessions: Arc::new(sessions),
            fences: Arc::new(Fences::default()),
        };
        let published = RwLock::new(Arc::new(view.clone()));
        let state = CoordinatorState {
            view,
            is_news: false,
            is_later: false,
            published_at: now,
            waiting: Vec::new(),
            member_states: BTreeSet::new(),
            told: BTreeSet::new(),
            tellings: 0,
            wants_telling: true,
            is_changed: false,
            has_new_figures: false,
            next_look: Time::default(),
            looks: (0, 0),
            is_older: false,
        };
        let this = Self {
            state: Tracked::new(state),
            published,
            groups: Tracked::new(groups),
            telling_addresses: Tracked::default(),
        };
        // Of stores that nothing was heard of yet it is known that they are.
        this.lock().make_map(now);
        this
    }

    /// The cluster as it is known now. Never waits for the coordinator.
    pub(crate) fn view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.published.read())
    }

    /// The groups. The last lock that a thread takes.
    pub(crate) fn groups(&self) -> TrackedGuard<'_, Groups> {
        self.groups.lock()
    }

    /// Waits for the lock. What is changed under it is published with its end, as a whole.
    pub(crate) fn lock(&self) -> CoordinatorGuard<'_> {
        CoordinatorGuard { coordinator: self, state: self.state.lock() }
    }

    /// Publishes what was not worth a view of its own.
    pub(crate) fn publish_what_is_left(&self) {
        let mut state = self.lock();
        state.is_news |= state.is_later;
    }

    /// A disk server has said first words with contents that are newer than the names.
    pub(crate) fn is_older(&self) -> bool {
        self.lock().is_older
    }

    pub(crate) fn set_clients_at(&self, address: Option<(String, u16)>) {
        let mut state = self.lock();
        (state.view.clients_at, state.is_news) = (address, true);
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

    /// For what stores say every second: it is seen with the next map.
    fn figures_mut(&mut self) -> &mut Servers {
        self.is_later = true;
        Arc::make_mut(&mut self.view.servers)
    }

    fn sessions_mut(&mut self) -> &mut Sessions {
        self.is_news = true;
        Arc::make_mut(&mut self.view.sessions)
    }

    /// With the sessions that they are begun in. What is begun or ended is to be published: `is_news`.
    fn fences_mut(&mut self, is_news: bool) -> (&mut Fences, &Sessions) {
        self.is_news |= is_news;
        (Arc::make_mut(&mut self.view.fences), &self.view.sessions)
    }

    /// Prolongs a session ([`Sessions::renew`]). Those who decide learn of it in time, and at once where they took the node for one that is not there.
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

/// For reading. Changes go by the `_mut` methods, which say that there is something to publish.
impl Deref for CoordinatorState {
    type Target = ClusterView;

    fn deref(&self) -> &ClusterView {
        &self.view
    }
}

/// The lock of the coordinator. With its end what was changed is published.
pub(crate) struct CoordinatorGuard<'a> {
    coordinator: &'a Coordinator,
    state: TrackedGuard<'a, CoordinatorState>,
}

impl Drop for CoordinatorGuard<'_> {
    fn drop(&mut self) {
        // Under the lock still: views are published in the order in which they came about.
        if self.state.is_news {
            (self.state.is_news, self.state.is_later) = (false, false);
            self.state.view.version += 1;
            *self.coordinator.published.write() = Arc::new(self.state.view.clone());
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
