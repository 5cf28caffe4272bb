//! Which store replaces a lost member of a group.

use types::{Policy, StoreClass, StoreId};

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
    let spread = policy.spread();
    let taken: Vec<u32> =
        members.iter().filter_map(|member| map.index_of(*member)).map(|at| map.domain(spread, at)).collect();
    let class = missing_class(map, policy, members);
    let fits = |at: u32| {
        let info = map.info(at);
        map.weight(at) > 0
            && info.store != lost
            && !members.contains(&info.store)
            && !leaving.contains(&info.store)
            && !taken.contains(&map.domain(spread, at))
            && class.is_none_or(|class| info.class.as_ref() == Some(class))
    };
    let anchor = members.first().copied().unwrap_or(lost);
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
    let mut drawn = Random::new(mix2(anchor.0, lost.0)).below(sum);
    for at in candidates {
        match drawn.checked_sub(map.weight(at)) {
            Some(rest) => drawn = rest,
            None => return Ok(map.info(at).store),
        }
    }
    Err(PlacementError::NoReplacement { lost, spread, class: class.cloned() })
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
