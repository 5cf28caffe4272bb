//! For each store, the groups of which it can be the primary, and how often each is used.
//!
//! Groups: all stores are in several random orders (rings). On each ring a store's group consists of the stores that
//! follow it, except those that the policy's spread and classes exclude. On each ring every store follows about one
//! other store, so all stores have about the same number of partners. Adding or removing a store changes only the
//! groups of its neighbours.
//!
//! Frequencies: the table fits the chances of groups, so that each store gets its proportion of the further replicas
//! too, if locations allow it. The method is Sinkhorn's scaling of a matrix's rows and columns.

use std::ops::Range;

use types::{Policy, Spread, StoreClass};

use super::map::{Map, RINGS};
use super::random::{Random, mix2};
use super::{PlacementError, StoreState};

/// The number of fitting rounds, and the deviation that is small enough.
const FITTING_ROUNDS: usize = 32;
const CLOSE_ENOUGH: f64 = 0.01;

/// What a policy demands of a group. Policies that differ in other points share a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    spread: Spread,
    replicas: u8,
    classes: Vec<(StoreClass, u8)>,
}

impl Shape {
    pub(super) fn of(policy: &Policy) -> Self {
        let classes = policy.classes().iter().map(|(class, copies)| (class.clone(), *copies)).collect();
        Self { spread: policy.spread(), replicas: policy.layout().replicas(), classes }
    }

    pub(super) fn is_of(&self, policy: &Policy) -> bool {
        self.spread == policy.spread()
            && self.replicas == policy.layout().replicas()
            && self.classes.iter().map(|(class, copies)| (class, copies)).eq(policy.classes())
    }

    fn others(&self) -> usize {
        usize::from(self.replicas) - 1
    }
}

/// The groups of all primaries, and their chances. See the module.
#[derive(Debug)]
pub(super) struct Table {
    /// The number of groups of one primary.
    choices: usize,
    /// The number of members of a group beside its primary.
    others: usize,
    /// These members, group after group, primary after primary. A primary without a group has no entries.
    members: Vec<u32>,
    /// For each group, the chance that it or an earlier one is chosen, in units of 2^-32.
    chances: Vec<u64>,
    /// For each store, the sum of the weights before it; the last entry is the total. Stores without groups weigh
    /// nothing.
    weight_before: Vec<u64>,
    /// The same, counting the stores with a weight.
    usable_before: Vec<u32>,
}

impl Table {
    pub(super) fn build(map: &Map, shape: &Shape) -> Result<Self, PlacementError> {
        let others = shape.others();
        // A store gets about ten partners, whatever the number of replicas.
        let choices = if others == 0 { 1 } else { RINGS.div_ceil(others).max(2) };
        let finders: Vec<Finder<'_>> = (0..choices).map(|ring| Finder::new(map, shape, ring)).collect();
        let stores = map.stores().len();
        let mut members = vec![0; stores * choices * others];
        let (mut weight_before, mut usable_before) = (vec![0], vec![0]);
        let (mut weight_sum, mut usable) = (0, 0);
        let mut group = Vec::new();
        for primary in (0u32..).take(stores) {
            let mut can = map.weight(primary) > 0;
            for (choice, finder) in finders.iter().enumerate() {
                // Whether a group exists at all is the same on each ring.
                can = can && finder.group(primary, &mut group);
                if !can {
                    break;
                }
                let start = (primary as usize * choices + choice) * others;
                members[start..start + others].copy_from_slice(&group);
            }
            if can {
                weight_sum += map.weight(primary);
                usable += 1;
            }
            weight_before.push(weight_sum);
            usable_before.push(usable);
        }
        if usable == 0 {
            return Err(why_not(map, shape));
        }
        let mut table = Self { choices, others, members, chances: Vec::new(), weight_before, usable_before };
        table.fit(map);
        Ok(table)
    }

    /// Whether a store can be a primary.
    pub(super) fn is_usable(&self, primary: usize) -> bool {
        self.usable_before[primary + 1] > self.usable_before[primary]
    }

    /// The number of stores of a range that can be primaries.
    pub(super) fn usable(&self, range: &Range<usize>) -> usize {
        (self.usable_before[range.end] - self.usable_before[range.start]) as usize
    }

    /// The number of groups of each primary.
    pub(super) fn choices(&self) -> usize {
        self.choices
    }

    /// The members of a group beside its primary.
    pub(super) fn others(&self, primary: u32, choice: usize) -> &[u32] {
        let start = (primary as usize * self.choices + choice) * self.others;
        &self.members[start..start + self.others]
    }

    /// Draws a store of a range by its weight; `None` if none can be a primary.
    pub(super) fn draw_primary(&self, range: &Range<usize>, random: &mut Random) -> Option<u32> {
        let (from, to) = (self.weight_before[range.start], self.weight_before[range.end]);
        if from == to {
            return None;
        }
        let drawn = from + random.below(to - from);
        let at = self.weight_before.partition_point(|before| *before <= drawn);
        u32::try_from(at - 1).ok()
    }

    /// Draws one of a primary's groups by its fitted chance.
    pub(super) fn draw_choice(&self, primary: u32, random: &mut Random) -> usize {
        let start = primary as usize * self.choices;
        let drawn = random.next() >> 32;
        let chances = &self.chances[start..start + self.choices];
        chances.partition_point(|chance| *chance <= drawn).min(self.choices - 1)
    }

    /// Fits a factor for each store. Primaries use their groups in proportion to their members' factors. Then all
    /// stores get further replicas in proportion to their weight, if locations allow it.
    fn fit(&mut self, map: &Map) {
        let stores = map.stores().len();
        let mut factors = vec![1.0_f64; stores];
        let mut shares = vec![0.0; self.choices];
        let total: f64 = (0u32..).take(stores).map(|at| as_f64(map.weight(at))).sum();
        for _ in 0..FITTING_ROUNDS {
            if self.others == 0 {
                break;
            }
            let mut got = vec![0.0_f64; stores];
            for primary in (0u32..).take(stores).filter(|at| self.is_usable(*at as usize)) {
                self.shares(primary, &factors, &mut shares);
                for (choice, share) in shares.iter().enumerate() {
                    for member in self.others(primary, choice) {
                        got[*member as usize] += share * as_f64(map.weight(primary));
                    }
                }
            }
            // The replicas to distribute are those of the usable primaries.
            let given: f64 = got.iter().sum();
            let mut off = 0.0_f64;
            for (at, factor) in (0u32..).zip(&mut factors) {
                let got = got[at as usize];
                if got > 0.0 {
                    let wanted = as_f64(map.weight(at)) / total * given;
                    let ratio = (wanted / got).clamp(0.25, 4.0);
                    // A group's chance has one factor for each member. With more members, each factor makes a
                    // smaller step.
                    *factor *= 1.0 + (ratio - 1.0) / as_f64(self.others as u64);
                    off = off.max((ratio - 1.0).abs());
                }
            }
            if off < CLOSE_ENOUGH {
                break;
            }
        }
        self.chances = Vec::with_capacity(stores * self.choices);
        for primary in (0u32..).take(stores) {
            self.shares(primary, &factors, &mut shares);
            let mut sum = 0.0;
            self.chances.extend(shares.iter().map(|share| {
                sum += share;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 2^32
                let chance = (sum * 4_294_967_296.0) as u64;
                chance
            }));
        }
    }

    /// The shares of a primary's groups; their sum is 1.
    fn shares(&self, primary: u32, factors: &[f64], shares: &mut [f64]) {
        let mut sum = 0.0;
        for (choice, share) in shares.iter_mut().enumerate() {
            *share = self.others(primary, choice).iter().map(|member| factors[*member as usize]).product();
            sum += *share;
        }
        shares.iter_mut().for_each(|share| *share /= sum);
    }
}

#[allow(clippy::cast_precision_loss)] // proportions
fn as_f64(n: u64) -> f64 {
    n as f64
}

/// Finds groups on one ring.
struct Finder<'a> {
    map: &'a Map,
    shape: &'a Shape,
    ring: usize,
    /// Stores of any class.
    any: Filtered,
    /// The stores of each demanded class.
    of_class: Vec<Filtered>,
}

/// A candidate for one slot of a group: a domain, and a store in it.
type Candidate = (u32, u32);

impl<'a> Finder<'a> {
    fn new(map: &'a Map, shape: &'a Shape, ring: usize) -> Self {
        let any = Filtered::new(map, shape.spread, ring, |at| map.weight(at) > 0);
        let of_class = |(class, _): &(StoreClass, u8)| {
            let fits = |at| map.weight(at) > 0 && map.info(at).class.as_ref() == Some(class);
            Filtered::new(map, shape.spread, ring, fits)
        };
        Self { map, shape, ring, any, of_class: shape.classes.iter().map(of_class).collect() }
    }

    /// Writes the other members of this primary's group into `group`, those of demanded classes first. Returns
    /// whether there is such a group.
    fn group(&self, primary: u32, group: &mut Vec<u32>) -> bool {
        group.clear();
        let wanted = self.shape.others();
        let mut slots: Vec<Vec<Candidate>> = Vec::with_capacity(wanted);
        let domain = self.map.domain(self.shape.spread, primary);
        let point = mix2(self.ring as u64, self.map.info(primary).store.0);
        // `wanted` different domains are enough for each slot: the other slots can take only `wanted` - 1 of them.
        for ((class, copies), filtered) in self.shape.classes.iter().zip(&self.of_class) {
            let has_one = self.map.info(primary).class.as_ref() == Some(class);
            for _ in 0..copies - u8::from(has_one) {
                if slots.len() == wanted {
                    return false;
                }
                slots.push(filtered.after(point, domain, wanted, |at| self.map.domain(self.shape.spread, at)));
            }
        }
        while slots.len() < wanted {
            slots.push(self.any.after(point, domain, wanted, |at| self.map.domain(self.shape.spread, at)));
        }
        match assign(&slots) {
            Some(assigned) => group.extend(assigned),
            None => return false,
        }
        true
    }
}

/// Assigns a candidate to each slot, with no domain used twice, if that is possible. Free first candidates are
/// preferred (Kuhn's matching).
fn assign(slots: &[Vec<Candidate>]) -> Option<Vec<u32>> {
    let mut taken: Vec<(u32, usize)> = Vec::with_capacity(slots.len()); // domain, slot
    let mut choice: Vec<u32> = vec![0; slots.len()];
    for slot in 0..slots.len() {
        let mut seen = Vec::new();
        if !settle(slots, slot, &mut taken, &mut choice, &mut seen) {
            return None;
        }
    }
    Some(choice)
}

fn settle(
    slots: &[Vec<Candidate>],
    slot: usize,
    taken: &mut Vec<(u32, usize)>,
    choice: &mut [u32],
    seen: &mut Vec<u32>,
) -> bool {
    let free = slots[slot].iter().find(|(domain, _)| !taken.iter().any(|(there, _)| there == domain));
    if let Some((domain, store)) = free {
        taken.push((*domain, slot));
        choice[slot] = *store;
        return true;
    }
    for (domain, store) in &slots[slot] {
        if seen.contains(domain) {
            continue;
        }
        seen.push(*domain);
        let Some(holder) = taken.iter().position(|(there, _)| there == domain) else { continue };
        let other = taken[holder].1;
        // The other slot takes another candidate, if it can. Meanwhile the domain stays taken.
        if settle(slots, other, taken, choice, seen) {
            taken[holder].1 = slot;
            choice[slot] = *store;
            return true;
        }
    }
    false
}

/// A selection of the stores on one ring.
struct Filtered {
    /// In the ring's order.
    stores: Vec<(u64, u32)>,
    /// For each store, the distance to the next one of another domain.
    skip: Vec<usize>,
    /// By domain, in the ring's order within each.
    by_domain: Vec<(u32, u64, u32)>,
    /// The domains in a separate random order.
    domains: Vec<(u64, u32)>,
}

impl Filtered {
    fn new(map: &Map, spread: Spread, ring: usize, fits: impl Fn(u32) -> bool) -> Self {
        let stores: Vec<_> = map.ring(ring).iter().copied().filter(|(_, at)| fits(*at)).collect();
        let domain = |at: usize| map.domain(spread, stores[at % stores.len()].1);
        let mut skip = vec![1; stores.len()];
        // From the end and twice around, so that a run over the end is seen as one.
        for at in (0..stores.len() * 2).rev() {
            if domain(at) == domain(at + 1) {
                skip[at % stores.len()] = (skip[(at + 1) % stores.len()] + 1).min(stores.len());
            } else {
                skip[at % stores.len()] = 1;
            }
        }
        let mut by_domain: Vec<_> = stores.iter().map(|(hash, at)| (map.domain(spread, *at), *hash, *at)).collect();
        by_domain.sort_unstable();
        // A domain's number changes when others are added or removed. Its first store on the ring stays the same.
        let mut domains: Vec<_> =
            by_domain.chunk_by(|a, b| a.0 == b.0).map(|stores| (mix2(stores[0].1, ring as u64), stores[0].0)).collect();
        domains.sort_unstable();
        Self { stores, skip, by_domain, domains }
    }

    /// Returns up to `wanted` stores of different domains, other than the domain `avoid`: those that follow `point`
    /// on the ring.
    fn after(&self, point: u64, avoid: u32, wanted: usize, domain_of: impl Fn(u32) -> u32) -> Vec<Candidate> {
        let there = self.by_domain.binary_search_by_key(&avoid, |(domain, ..)| *domain).is_ok();
        let wanted = wanted.min(self.domains.len() - usize::from(there));
        let mut found: Vec<Candidate> = Vec::with_capacity(wanted);
        let mut at = self.stores.partition_point(|(hash, _)| *hash <= point);
        for _ in 0..16 + 8 * wanted {
            if found.len() >= wanted {
                return found;
            }
            let location = at % self.stores.len();
            let store = self.stores[location].1;
            let domain = domain_of(store);
            if domain != avoid && !found.iter().any(|(there, _)| *there == domain) {
                found.push((domain, store));
            }
            at += self.skip[location];
        }
        // With a few large domains and some small ones, this avoids a long walk to the small ones.
        let start = self.domains.partition_point(|(hash, _)| *hash <= point);
        for (_, domain) in self.domains[start..].iter().chain(&self.domains[..start]) {
            if found.len() >= wanted {
                break;
            }
            if *domain != avoid && !found.iter().any(|(there, _)| there == domain) {
                let first = self.by_domain.partition_point(|(there, ..)| there < domain);
                let next = self.by_domain.partition_point(|(there, hash, _)| (*there, *hash) <= (*domain, point));
                let next = self.by_domain.get(next).filter(|(there, ..)| there == domain);
                found.push((*domain, next.unwrap_or(&self.by_domain[first]).2));
            }
        }
        found
    }
}

/// The reason why no store can be a primary.
fn why_not(map: &Map, shape: &Shape) -> PlacementError {
    let stores = map.stores();
    if stores.is_empty() {
        return PlacementError::NoStores;
    }
    let of = |states: &[StoreState]| stores.iter().filter(|info| states.contains(&info.state)).count();
    let out_of_reach = stores.iter().filter(|info| info.state.is_out_of_reach()).count();
    let closed = of(&[StoreState::Draining, StoreState::ReadOnly]);
    let usable = || (0u32..).zip(stores).filter(|(at, _)| map.weight(*at) > 0);
    if usable().next().is_none() {
        let full = stores.len() - out_of_reach - closed;
        return PlacementError::NoneTakesNew { stores: stores.len(), out_of_reach, closed, full };
    }
    let spread = shape.spread;
    let locations = |class: Option<&StoreClass>| {
        let fitting = usable().filter(|(_, info)| class.is_none() || info.class.as_ref() == class);
        fitting.map(|(at, _)| map.domain(spread, at)).collect::<std::collections::BTreeSet<_>>().len()
    };
    let (needed, found) = (usize::from(shape.replicas), locations(None));
    if found < needed {
        return PlacementError::TooFewLocations { spread, needed, found };
    }
    for (class, copies) in &shape.classes {
        let (needed, found) = (usize::from(*copies), locations(Some(class)));
        if found < needed {
            return PlacementError::TooFewOfClass { class: class.clone(), spread, needed, found };
        }
    }
    PlacementError::Together { spread, replicas: needed }
}
