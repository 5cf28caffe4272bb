//! Chooses the stores of a new object.

use std::ops::Range;

use types::{Location, Policy, Shared, Spread, StoreId};

use super::map::Map;
use super::random::Random;
use super::table::Table;
use super::{PlacementError, StoreState};

/// The number of random draws before all stores of a range are examined.
const DRAWS: usize = 24;

/// Why the first replica is where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum First {
    /// `near=client`. The value says what the client's location and the chosen range have in common.
    NearClient(Shared),
    /// The policy prefers this location.
    Preferred,
    /// The policy has no preference, or none of its preferences was possible.
    Anywhere,
}

/// Where a new object goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The group of each stripe unit (one, if the file is not striped). The primary comes first, then the members
    /// that the policy's classes demand, then the others. A close waits for the first `sync` members.
    pub groups: Vec<Vec<StoreId>>,
    /// Why the first unit's first replica is where it is.
    pub first: First,
}

/// Chooses the stores of a new object of about `expected_len` bytes (0: unknown) for a client at `client`. The same
/// arguments give the same stores. Random seeds give each store its share.
///
/// The units of a stripe get different primaries as long as there are enough, on different hosts first. If the
/// client's host or rack has fewer stores than the stripe has units, they come from the next larger range.
///
/// # Errors
/// [`PlacementError`]: the policy's demands cannot be met, or there is no room.
pub fn choose_stores(
    map: &Map,
    policy: &Policy,
    client: Option<&Location>,
    expected_len: u64,
    seed: u64,
) -> Result<Placed, PlacementError> {
    choose_other_stores(map, policy, client, expected_len, &[], seed)
}

/// The same, without the stores of `full`: their servers have told the client that they have no room.
///
/// # Errors
/// The same as those of [`choose_stores`].
pub fn choose_other_stores(
    map: &Map,
    policy: &Policy,
    client: Option<&Location>,
    expected_len: u64,
    full: &[StoreId],
    seed: u64,
) -> Result<Placed, PlacementError> {
    let table = map.table(policy)?;
    let units = usize::from(policy.layout().units());
    let bytes = expected_len.div_ceil(units as u64);
    let mut random = Random::new(seed);
    for (first, range) in ranges(map, policy, client) {
        let enough = if matches!(first, First::NearClient(Shared::Host | Shared::Rack)) { units } else { 1 };
        if table.usable(&range) < enough {
            continue;
        }
        let mut drawing = Drawing { map, table: &table, range, bytes, full, used: Vec::with_capacity(units) };
        let groups: Option<Vec<_>> = (0..units).map(|_| drawing.draw(&mut random)).collect();
        if let Some(groups) = groups {
            return Ok(Placed { groups, first });
        }
    }
    Err(PlacementError::NoRoom { bytes })
}

/// Checks whether the policy's demands can be met now. An administrator needs that before setting a policy.
///
/// # Errors
/// The same as those of [`choose_stores`], except for lack of room.
pub fn can_be_met(map: &Map, policy: &Policy) -> Result<(), PlacementError> {
    map.table(policy).map(drop)
}

/// Returns all groups that [`choose_stores`] can choose from, sorted and without duplicates. In each, the primary
/// comes first.
///
/// # Errors
/// The same as those of [`choose_stores`], except for lack of room.
pub fn groups(map: &Map, policy: &Policy) -> Result<Vec<Vec<StoreId>>, PlacementError> {
    let table = map.table(policy)?;
    let usable = (0u32..).take(map.stores().len()).filter(|at| table.is_usable(*at as usize));
    let choices = usable.flat_map(|primary| (0..table.choices()).map(move |choice| (primary, choice)));
    let mut groups: Vec<_> = choices.map(|(primary, choice)| group(map, &table, primary, choice)).collect();
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

fn group(map: &Map, table: &Table, primary: u32, choice: usize) -> Vec<StoreId> {
    let others = table.others(primary, choice).iter().copied();
    std::iter::once(primary).chain(others).map(|at| map.info(at).store).collect()
}

/// Where the first replica may go, best first.
fn ranges(map: &Map, policy: &Policy, client: Option<&Location>) -> Vec<(First, Range<usize>)> {
    let mut ranges = Vec::with_capacity(5);
    if let Some(client) = client.filter(|_| policy.near_client()) {
        for (depth, shared) in [(3, Shared::Host), (2, Shared::Rack), (1, Shared::Site)] {
            ranges.push((First::NearClient(shared), map.range_of(&client.prefix(depth))));
        }
    }
    if let Some(prefer) = policy.prefer() {
        ranges.push((First::Preferred, map.range_of(prefer)));
    }
    ranges.push((First::Anywhere, 0..map.stores().len()));
    ranges
}

/// The stripe units of one object.
struct Drawing<'a> {
    map: &'a Map,
    table: &'a Table,
    range: Range<usize>,
    /// The room that each member must have, in bytes.
    bytes: u64,
    /// Stores that have no room, whatever they have reported.
    full: &'a [StoreId],
    /// The primaries of the units so far.
    used: Vec<u32>,
}

impl Drawing<'_> {
    fn draw(&mut self, random: &mut Random) -> Option<Vec<StoreId>> {
        let (primary, choice) = self.by_weight(random).or_else(|| self.by_looking(random))?;
        self.used.push(primary);
        Some(group(self.map, self.table, primary, choice))
    }

    /// Draws a group by its weight, on a host that has no unit yet. If no draw finds one, takes the first group
    /// drawn whose primary has no unit.
    fn by_weight(&self, random: &mut Random) -> Option<(u32, usize)> {
        let host = |at| self.map.domain(Spread::Host, at);
        let mut on_used_host = None;
        for _ in 0..DRAWS {
            let primary = self.table.draw_primary(&self.range, random)?;
            let choice = self.table.draw_choice(primary, random);
            if self.used.contains(&primary) || !self.has_room(primary, choice) {
                continue;
            }
            if !self.used.iter().any(|used| host(*used) == host(primary)) {
                return Some((primary, choice));
            }
            on_used_host.get_or_insert((primary, choice));
        }
        on_used_host
    }

    /// Returns the group with room whose primary has the fewest units so far. The search starts at a random store.
    fn by_looking(&self, random: &mut Random) -> Option<(u32, usize)> {
        let len = self.range.len();
        let (start, turn) = (random.index(len), random.index(self.table.choices()));
        let mut best: Option<(usize, u32, usize)> = None;
        for step in 0..len {
            let at = self.range.start + (start + step) % len;
            let Ok(primary) = u32::try_from(at) else { continue };
            let uses = self.used.iter().filter(|used| **used == primary).count();
            if !self.table.is_usable(at) || best.is_some_and(|(fewest, ..)| fewest <= uses) {
                continue;
            }
            let choices = self.table.choices();
            let choice = (0..choices).map(|n| (n + turn) % choices).find(|choice| self.has_room(primary, *choice));
            if let Some(choice) = choice {
                if uses == 0 {
                    return Some((primary, choice));
                }
                best = Some((uses, primary, choice));
            }
        }
        best.map(|(_, primary, choice)| (primary, choice))
    }

    fn has_room(&self, primary: u32, choice: usize) -> bool {
        let others = self.table.others(primary, choice).iter().copied();
        std::iter::once(primary).chain(others).all(|at| {
            let info = self.map.info(at);
            debug_assert_eq!(info.state, StoreState::Online);
            info.room() >= self.bytes && !self.full.contains(&info.store)
        })
    }
}
