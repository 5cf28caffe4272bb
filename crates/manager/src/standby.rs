//! [`StandbyManager`]: answers readers while another manager is active.
//!
//! It reads the namespace where it is: in the database. Sessions, fences and keys of disk servers it has from the active manager, again and again. So its
//! view may be older than that of the active one; `open/reading.rs` explains why that costs a redirect at most. It grants nothing, changes nothing and
//! has no connection with disk servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use namespace::{MemberEntry, Namespace, NsError, StoreEntry};
use node::{ClusterState, FromManager};
use store::Space;
use types::{ClientAddress, LocationRanges, NodeId, NsPath, ObjectId, Timestamp};

use crate::capability_clock::CapabilityClock;
use crate::coordinator::Coordinator;
use crate::known_damage::KnownDamage;
use crate::names::Names;
use crate::open::OpenService;
use crate::tracked::Tracked;
use crate::without_primary::WritesWithoutPrimary;
use crate::{ManagerSettings, OpenRequest, OpeningError, Redirect, World};

/// How old the state of the active manager may be. After that time a disk server that it calls online may have died with it, and nobody knows.
const CURRENT: Duration = Duration::from_secs(5);

/// How often the lists of nodes and stores are read at least.
const LISTS_EVERY: Duration = Duration::from_secs(2);

/// See the module.
pub struct StandbyManager {
    names: Names,
    coordinator: Arc<Coordinator>,
    open: OpenService,
    surroundings: Arc<Surroundings>,
    lists: Tracked<Option<(Time, Lists)>>,
}

/// The nodes and the stores of the cluster.
type Lists = (Vec<MemberEntry>, Vec<StoreEntry>);

impl std::fmt::Debug for StandbyManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StandbyManager")
    }
}

impl StandbyManager {
    /// Starts it on a namespace that the active manager changes ([`Namespace::for_reading`]). It answers nobody before [`StandbyManager::follow`].
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn start(
        namespace: Arc<Namespace>,
        settings: ManagerSettings,
        outside: StandbyWorld,
    ) -> Result<Arc<Self>, NsError> {
        let names = Names::new(namespace);
        let surroundings = Arc::new(Surroundings { outside, heard: Tracked::default() });
        let world = || Arc::clone(&surroundings) as Arc<dyn World>;
        // Until the active manager has told its own.
        let clock = CapabilityClock::start(surroundings.now(), surroundings.wall());
        let coordinator = Coordinator::start(names.clone(), world(), clock, &settings)?;
        let open = OpenService::new(
            names.clone(),
            world(),
            Arc::clone(&coordinator),
            settings.capability_lifetime,
            WritesWithoutPrimary::default(),
            Arc::new(KnownDamage::default()),
        );
        Ok(Arc::new(Self { names, coordinator, open, surroundings, lists: Tracked::default() }))
    }

    /// Takes over the state of the active manager, which was asked for at `asked` by [`StandbyManager::now`], and reads the lists of nodes and stores.
    ///
    /// # Errors
    /// When the namespace cannot be read, or the active manager changes it in ways that this version does not know. Then nobody is answered any more.
    pub fn follow(&self, state: &ClusterState, asked: Time) -> Result<(), NsError> {
        let lists = self.lists(state).inspect_err(|_| self.surroundings.heard.lock().asked = None)?;
        self.coordinator.follow(state, lists, asked);
        let connected = state.nodes.iter().filter(|node| node.is_connected).map(|node| node.node).collect();
        let (lengths, space) = (state.lengths.iter().copied().collect(), state.space);
        let space = Space { total: space.total, free: space.free, floor: space.floor, floor_reached: false };
        *self.surroundings.heard.lock() = Heard { asked: Some(asked), connected, lengths, space };
        Ok(())
    }

    /// The lists of nodes and stores, read lately.
    fn lists(&self, state: &ClusterState) -> Result<Lists, NsError> {
        let now = self.now();
        let kept = self.lists.lock().clone().filter(|(read_at, (members, _))| {
            let is_member = |node: NodeId| members.iter().any(|member| member.node == node);
            now.since(*read_at) < LISTS_EVERY && state.nodes.iter().all(|node| is_member(node.node))
        });
        if let Some((_, lists)) = kept {
            return Ok(lists);
        }
        let lists = self.names.read(|read| {
            // Fails if the active manager has begun to change the namespace in a way that this version does not know.
            namespace::progress(read)?;
            Ok((namespace::members(read)?, namespace::stores(read)?))
        })?;
        *self.lists.lock() = Some((now, lists.clone()));
        Ok(lists)
    }

    /// The time of this manager.
    #[must_use]
    pub fn now(&self) -> Time {
        self.surroundings.now()
    }

    /// Whether the state of the active manager is recent enough to answer readers.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let (now, asked) = (self.now(), self.surroundings.heard.lock().asked);
        asked.is_some_and(|asked| now.since(asked) <= CURRENT)
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        self.names.namespace()
    }

    /// Sets the locations of clients that do not state their own.
    pub fn set_client_locations(&self, ranges: LocationRanges) {
        self.coordinator.set_client_locations(ranges);
    }

    /// Opens for reading, as [`crate::Manager::open_read`].
    ///
    /// # Errors
    /// Why the client is sent nowhere. The active manager may know more.
    pub fn open_read(
        &self,
        open_request: &OpenRequest,
        path: &NsPath,
        partial: bool,
        unit: Option<(u8, ObjectId)>,
    ) -> Result<Redirect, OpeningError> {
        self.open.open_read(open_request, path, partial, unit)
    }

    /// Where a file can be read, as [`crate::Manager::locate`].
    ///
    /// # Errors
    /// If the file does not exist, or none of its stores is online.
    pub fn locate(&self, open_request: &OpenRequest, path: &NsPath) -> Result<Vec<ClientAddress>, OpeningError> {
        self.open.locate(open_request, path)
    }

    /// Whether there are disk servers at this host, as far as is known.
    #[must_use]
    pub fn has_servers_at(&self, host: &str) -> bool {
        !self.coordinator.published().get().servers.stores_at(&[host.to_owned()]).is_empty()
    }

    /// The space of all stores together, as the active manager last said.
    #[must_use]
    pub fn space(&self) -> Space {
        self.surroundings.heard.lock().space
    }

    /// The length of an object that is being written, as its disk server last reported it to the active manager; `None` if it did not.
    #[must_use]
    pub fn open_write_len(&self, object: ObjectId) -> Option<u64> {
        self.surroundings.heard.lock().lengths.get(&object).copied()
    }
}

/// What a standby manager needs from outside.
pub struct StandbyWorld {
    /// Its own clock.
    pub now: Box<dyn Fn() -> Time + Send + Sync>,
    /// Random numbers.
    pub random: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// What its parts get from outside.
struct Surroundings {
    outside: StandbyWorld,
    heard: Tracked<Heard>,
}

/// What the active manager said last.
#[derive(Default)]
struct Heard {
    asked: Option<Time>,
    /// The disk servers that it has a connection with.
    connected: BTreeSet<NodeId>,
    lengths: BTreeMap<ObjectId, u64>,
    space: Space,
}

impl World for Surroundings {
    fn now(&self) -> Time {
        (self.outside.now)()
    }

    // The time of day comes from the active manager.
    fn wall(&self) -> Timestamp {
        Timestamp(0)
    }

    fn random(&self) -> u64 {
        (self.outside.random)()
    }

    fn secret(&self) -> Option<[u8; 32]> {
        None
    }

    fn has_lease(&self) -> bool {
        false
    }

    fn has_lost_place(&self) -> bool {
        true
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.heard.lock().connected.contains(&node)
    }

    fn send(&self, _: NodeId, _: FromManager) -> bool {
        false
    }

    fn cut(&self, _: NodeId, _: &str) {}
}
