//! Which store replaces a lost member of a group.

use types::{ObjectId, Policy, StoreClass, StoreId};

use super::PlacementError;
use super::map::{Map, RINGS};
use super::random::{Random, mix2};

/// Returns the store that replaces `lost` in its group, whose remaining members are `members`. It shares no failure
/// domain with any of them. If fewer members of a class remain than the policy demands, it is of that class.
///
/// It follows the group's first member on one of the rings that groups come from, so that the number of different
/// groups stays small. The choice of ring also depends on the lost store, so that the groups of one store go to
/// many others. A store in `leaving` is never chosen. If such a store is used again later, it joins as a new member
/// after it has left.
///
/// # Errors
/// [`PlacementError::NoReplacement`]. If the remaining members share a failure domain because the policy has
/// changed, this function does not correct that.
pub fn replacement(
    map: &Map,
    policy: &Policy,
    members: &[StoreId],
    lost: StoreId,
    leaving: &[StoreId],
) -> Result<StoreId, PlacementError> {
    let fits = |store: StoreId| store != lost && !leaving.contains(&store);
    let (anchor, class) = (members.first().copied().unwrap_or(lost), missing_class(map, policy, members));
    let drawn = draw(map, policy, members, (anchor, class), lost.0, fits);
    drawn.ok_or_else(|| PlacementError::NoReplacement { lost, spread: policy.spread(), class: class.cloned() })
}

/// Returns a further store for an object that is on `members` and has too few replicas by `policy`, as [`replacement`] does. The choice also depends on the
/// object, so that the objects of one store go to many others. Only stores that `fits` accepts are chosen. `None`: there is none.
pub fn further_store(
    map: &Map,
    policy: &Policy,
    members: &[StoreId],
    object: ObjectId,
    fits: impl Fn(StoreId) -> bool,
) -> Option<StoreId> {
    let anchor = members.first().copied()?;
    draw(map, policy, members, (anchor, missing_class(map, policy, members)), object.0, fits)
}

fn draw(
    map: &Map,
    policy: &Policy,
    members: &[StoreId],
    (anchor, class): (StoreId, Option<&StoreClass>),
    seed: u64,
    fits: impl Fn(StoreId) -> bool,
) -> Option<StoreId> {
    let spread = policy.spread();
    let taken: Vec<u32> =
        members.iter().filter_map(|member| map.index_of(*member)).map(|at| map.domain(spread, at)).collect();
    let fits = |at: u32| {
        let info = map.info(at);
        map.weight(at) > 0
            && fits(info.store)
            && !members.contains(&info.store)
            && !taken.contains(&map.domain(spread, at))
            && class.is_none_or(|class| info.class.as_ref() == Some(class))
    };
    let mut candidates: Vec<u32> = (0..RINGS)
        .filter_map(|ring| {
            let order = map.ring(ring);
            let point = mix2(ring as u64, anchor.0);
            let start = order.partition_point(|(hash, _)| *hash <= point);
            order[start..].iter().chain(&order[..start]).map(|(_, at)| *at).find(|at| fits(*at))
        })
        .collect();
    candidates.sort_unstable();
    candidates.dedup();
    let sum = candidates.iter().map(|at| map.weight(*at)).sum();
    let mut drawn = Random::new(mix2(anchor.0, seed)).below(sum);
    for at in candidates {
        match drawn.checked_sub(map.weight(at)) {
            Some(rest) => drawn = rest,
            None => return Some(map.info(at).store),
        }
    }
    None
}

/// The class of which most members are missing, if any remains below what the policy demands.
fn missing_class<'a>(map: &Map, policy: &'a Policy, members: &[StoreId]) -> Option<&'a StoreClass> {
    let missing = |class: &StoreClass, copies: u8| {
        let infos = members.iter().filter_map(|member| map.store(*member));
        let there = infos.filter(|info| info.class.as_ref() == Some(class)).count();
        usize::from(copies).saturating_sub(there)
    };
    let classes = policy.classes().iter().map(|(class, copies)| (missing(class, *copies), class));
    classes.filter(|(missing, _)| *missing > 0).max_by_key(|(missing, _)| *missing).map(|(_, class)| class)
}
