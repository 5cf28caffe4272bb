//! The order in which a reader tries the holders of a replica.

use types::{Location, Shared, StoreId};

use super::map::{Load, Map, StoreInfo, StoreState};
use super::random::Random;

/// From this load on, in thousandths, a store comes after less busy ones, however near it is.
const BUSY_PERMILLE: u16 = 900;

/// Sorts the holders of a replica into the order in which a reader at `client` should try them. Healthy stores come
/// before busy and draining ones, those before suspect ones, and those before returned ones. Among these the nearest
/// comes first. Equals are drawn at random, less loaded ones more often. Stores that are offline, and stores that the
/// map does not know, are left out. Each inner list has the stores that are equally good.
#[must_use]
pub fn rank_readers(map: &Map, holders: &[StoreId], client: Option<&Location>, seed: u64) -> Vec<Vec<StoreId>> {
    let mut known: Vec<_> = holders
        .iter()
        .filter_map(|holder| map.store(*holder))
        .filter_map(|info| Some((trouble(info)?, info)))
        .map(|(trouble, info)| (trouble, std::cmp::Reverse(shared(info, client)), info))
        .collect();
    // Equals are sorted by number, so that the order of `holders` does not matter.
    known.sort_by_key(|(trouble, shared, info)| (*trouble, *shared, info.store));
    known.dedup_by_key(|(.., info)| info.store);
    let random = &mut Random::new(seed);
    let mut shuffled = |equals: &[(_, _, &StoreInfo)]| {
        let mut left: Vec<(StoreId, Load)> = equals.iter().map(|(.., info)| (info.store, info.load)).collect();
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let drawn = draw(&left, random);
            order.push(left.remove(drawn).0);
        }
        order
    };
    known.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).map(&mut shuffled).collect()
}

/// How undesirable it is to read from this store; `None`: impossible.
fn trouble(info: &StoreInfo) -> Option<u8> {
    match info.state {
        StoreState::Offline | StoreState::Removed | StoreState::Replaced => None,
        StoreState::Returned => Some(3),
        StoreState::Suspect => Some(2),
        StoreState::Draining => Some(1),
        StoreState::Online | StoreState::ReadOnly | StoreState::Full => {
            Some(u8::from(info.load.permille() >= BUSY_PERMILLE))
        }
    }
}

fn shared(info: &StoreInfo, client: Option<&Location>) -> Shared {
    client.map_or(Shared::Nothing, |client| info.location.shared_with(client))
}

/// Draws one store by its readiness.
fn draw(left: &[(StoreId, Load)], random: &mut Random) -> usize {
    let sum = left.iter().map(|(_, load)| load.readiness()).sum();
    let mut drawn = random.below(sum);
    for (at, (_, load)) in left.iter().enumerate() {
        match drawn.checked_sub(load.readiness()) {
            Some(rest) => drawn = rest,
            None => return at,
        }
    }
    0
}
