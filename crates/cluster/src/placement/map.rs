//! The stores of a cluster as placement needs to know them, with tables that serve many placements.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use types::{Location, LocationPrefix, NodeId, Policy, Spread, StoreClass, StoreId};

use super::random::mix2;
use super::table::{Shape, Table};
use super::{MapError, PlacementError};

/// The largest number of stores in a map.
pub const STORES_MAX: usize = 65_536;
/// The number of random orders in which stores find their partners.
pub(super) const RINGS: usize = 10;
/// The number of policy shapes whose tables are kept.
const TABLES_MAX: usize = 32;

/// Whether a store can be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreState {
    /// The store serves objects and takes new ones.
    Online,
    /// The manager has not heard from its node for a while. Its objects may still be read.
    Suspect,
    /// Its node is away, or runs without the store.
    Offline,
    /// An administrator has removed it as lost. Other stores replace it.
    Removed,
    /// It was removed as lost, and its node serves it again. Readers may use it until others have its objects.
    Returned,
    /// It was removed as lost, and no group depends on it any more.
    Replaced,
    /// The store serves its objects and takes no new ones, so that its disk can be removed later.
    Draining,
    /// The store serves its objects and takes no new ones.
    ReadOnly,
    /// The store serves its objects and has no space.
    Full,
}

impl StoreState {
    /// Whether no new object can be put on it because it cannot be reached, or others replace it.
    #[must_use]
    pub fn is_out_of_reach(self) -> bool {
        self == Self::Suspect || self.is_gone()
    }

    /// Whether it is offline or removed as lost.
    #[must_use]
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Offline | Self::Removed | Self::Returned | Self::Replaced)
    }
}

impl fmt::Display for StoreState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Online => "online",
            Self::Suspect => "suspect",
            Self::Offline => "offline",
            Self::Removed => "removed",
            Self::Returned => "returned",
            Self::Replaced => "replaced",
            Self::Draining => "draining",
            Self::ReadOnly => "read-only",
            Self::Full => "full",
        })
    }
}

/// How busy a store is, from 0 to 1000 thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Load(u16);

impl Load {
    /// Takes thousandths; more than 1000 counts as 1000.
    #[must_use]
    pub fn from_permille(permille: u16) -> Self {
        Self(permille.min(1000))
    }

    /// Returns thousandths.
    #[must_use]
    pub fn permille(self) -> u16 {
        self.0
    }

    /// How readily a store is chosen, from 250 to 1000. The busiest store still gets a quarter of its share, so
    /// that one late report does not send everybody elsewhere at once.
    pub(super) fn readiness(self) -> u64 {
        1000 - u64::from(self.0) * 3 / 4
    }
}

/// A store as its node last reported it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreInfo {
    /// The number of the store.
    pub store: StoreId,
    /// The node that serves it.
    pub node: NodeId,
    /// Its location.
    pub location: Location,
    /// Its class, if its administrator has set one.
    pub class: Option<StoreClass>,
    /// Its size in bytes.
    pub capacity: u64,
    /// Free bytes that must not be used.
    pub reserve: u64,
    /// Free bytes, including those of the reserve.
    pub free: u64,
    /// How busy it is.
    pub load: Load,
    /// Whether it can be used.
    pub state: StoreState,
}

impl StoreInfo {
    /// Returns the bytes that can still be used.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.free.min(self.capacity).saturating_sub(self.reserve)
    }

    /// Its share of new objects; 0: it takes none.
    fn weight(&self) -> u64 {
        if self.state != StoreState::Online {
            return 0;
        }
        // In MiB and at most 64 PiB, so that the sum over all stores fits.
        let room = self.room().min(1 << 56) >> 20;
        room * self.load.readiness()
    }
}

/// All stores with their indexes. Each round of reports gives a new map; a placement then takes microseconds.
#[derive(Debug)]
pub struct Map {
    /// Ordered by location, so that the stores of a site, rack or host are adjacent.
    stores: Vec<StoreInfo>,
    /// The index of each store in `stores`, ordered by the store's number.
    by_id: Vec<(StoreId, u32)>,
    /// For each spread, the number of the host, rack or site that a store belongs to.
    domains: [Vec<u32>; 3],
    /// All stores in [`RINGS`] random orders, as pairs of a hash and an index. They depend only on the set of
    /// stores, not on their reports.
    rings: Vec<Vec<(u64, u32)>>,
    weights: Vec<u64>,
    /// A cache: built at the first placement of each shape. The same map always gives the same tables.
    tables: Mutex<Vec<(Shape, Built)>>,
}

type Built = Result<Arc<Table>, PlacementError>;

impl Default for Map {
    /// A map without stores.
    fn default() -> Self {
        Self {
            stores: Vec::new(),
            by_id: Vec::new(),
            domains: Default::default(),
            rings: vec![Vec::new(); RINGS],
            weights: Vec::new(),
            tables: Mutex::default(),
        }
    }
}

impl Map {
    /// Makes a map of `stores`, in any order.
    ///
    /// # Errors
    /// [`MapError`]: a store appears twice, or there are too many.
    pub fn new(mut stores: Vec<StoreInfo>) -> Result<Self, MapError> {
        if stores.len() > STORES_MAX {
            return Err(MapError::TooMany(stores.len()));
        }
        stores.sort_unstable_by(|a, b| (a.location.as_str(), a.store).cmp(&(b.location.as_str(), b.store)));
        let numbered = || (0u32..).zip(&stores);
        let mut by_id: Vec<_> = numbered().map(|(at, info)| (info.store, at)).collect();
        by_id.sort_unstable();
        if let Some(pair) = by_id.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(MapError::Twice(pair[0].0));
        }
        let rings = (0..RINGS as u64)
            .map(|ring| {
                let mut order: Vec<_> = numbered().map(|(at, info)| (mix2(ring, info.store.0), at)).collect();
                order.sort_unstable();
                order
            })
            .collect();
        let domains = [3, 2, 1].map(|depth| number_domains(&stores, depth));
        let weights = stores.iter().map(StoreInfo::weight).collect();
        Ok(Self { stores, by_id, domains, rings, weights, tables: Mutex::default() })
    }

    /// Returns all stores, ordered by location.
    #[must_use]
    pub fn stores(&self) -> &[StoreInfo] {
        &self.stores
    }

    /// Returns the report of a store.
    #[must_use]
    pub fn store(&self, store: StoreId) -> Option<&StoreInfo> {
        self.index_of(store).map(|at| self.info(at))
    }

    /// Whether any store, in any state, is at or below `location`. A policy that prefers another location is
    /// probably mistyped.
    #[must_use]
    pub fn has_place(&self, location: &LocationPrefix) -> bool {
        !self.range_of(location).is_empty()
    }

    pub(super) fn index_of(&self, store: StoreId) -> Option<u32> {
        let at = self.by_id.binary_search_by_key(&store, |(id, _)| *id).ok()?;
        Some(self.by_id[at].1)
    }

    pub(super) fn info(&self, at: u32) -> &StoreInfo {
        &self.stores[at as usize]
    }

    pub(super) fn weight(&self, at: u32) -> u64 {
        self.weights[at as usize]
    }

    /// The number of a store's host, rack or site.
    pub(super) fn domain(&self, spread: Spread, at: u32) -> u32 {
        self.domains(spread)[at as usize]
    }

    pub(super) fn domains(&self, spread: Spread) -> &[u32] {
        match spread {
            Spread::Host => &self.domains[0],
            Spread::Rack => &self.domains[1],
            Spread::Site => &self.domains[2],
        }
    }

    pub(super) fn ring(&self, ring: usize) -> &[(u64, u32)] {
        &self.rings[ring % RINGS]
    }

    /// The stores at or below a location.
    pub(super) fn range_of(&self, location: &LocationPrefix) -> std::ops::Range<usize> {
        let whole = location.as_str().matches('/').count() == 2;
        let text = if whole { location.as_str().to_owned() } else { format!("{location}/") };
        let start = self.stores.partition_point(|info| info.location.as_str() < text.as_str());
        let len = self.stores[start..].partition_point(|info| location.contains(&info.location));
        start..start + len
    }

    /// The table of a policy's shape, built at its first use.
    pub(super) fn table(&self, policy: &Policy) -> Built {
        let lock = || self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, built)) = lock().iter().find(|(shape, _)| shape.is_of(policy)) {
            return built.clone();
        }
        // The build runs outside the lock, so that other policies do not wait. Two threads that build the same
        // table get equal ones.
        let shape = Shape::of(policy);
        let built = Table::build(self, &shape).map(Arc::new);
        let mut tables = lock();
        let over = (tables.len() + 1).saturating_sub(TABLES_MAX);
        tables.drain(..over);
        tables.push((shape, built.clone()));
        built
    }
}

/// Numbers the distinct prefixes of `depth` names. Stores with the same prefix are adjacent.
fn number_domains(stores: &[StoreInfo], depth: usize) -> Vec<u32> {
    let mut number = 0;
    let mut last: Option<LocationPrefix> = None;
    stores
        .iter()
        .map(|info| {
            if !last.as_ref().is_some_and(|last| last.contains(&info.location)) {
                number += 1;
                last = Some(info.location.prefix(depth));
            }
            number
        })
        .collect()
}
