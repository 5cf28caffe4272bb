//! Who takes a lost member's place in a group.

use types::{Policy, StoreClass, StoreId};

use super::PlacementError;
use super::map::{Map, RINGS};
use super::random::{Random, mix2};

/// The store that takes the place of `lost` in the group of which `members` remain: as far from each of them as the
/// policy's spread says, and of a class that the policy demands more of than remains. It follows the first one on one
/// of the rings that groups come from, so that sets of stores stay few; on which depends on the lost store too, so that
/// one store's groups go to many. Of those that are to leave the group too (`leaving`) nobody takes it: one that is to
/// be used again comes back as a new member, after it has left.
///
/// # Errors
/// [`PlacementError::NoReplacement`]. Where remaining members are nearer to each other than the policy says now (it was
/// changed), that is not mended here.
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

/// A class of which fewer remain than the policy demands: the one that lacks most.
fn missing_class<'a>(map: &Map, policy: &'a Policy, members: &[StoreId]) -> Option<&'a StoreClass> {
    let lacks = |class: &StoreClass, copies: u8| {
        let infos = members.iter().filter_map(|member| map.store(*member));
        let there = infos.filter(|info| info.class.as_ref() == Some(class)).count();
        usize::from(copies).saturating_sub(there)
    };
    let stale_replicas = policy.classes().iter().map(|(class, copies)| (lacks(class, *copies), class));
    stale_replicas.filter(|(lacks, _)| *lacks > 0).max_by_key(|(lacks, _)| *lacks).map(|(_, class)| class)
}
