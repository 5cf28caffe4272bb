//! Decides which store continues an open write when its client returns.

use types::{BootGeneration, InSyncReplica, StoreId};

use crate::Presence;

/// The state of a store, as far as the manager knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreStatus {
    /// Whether its node is online.
    pub presence: Presence,
    /// The boot generation of its node.
    pub boot_generation: BootGeneration,
    /// The store is removed as lost, and may disappear at any moment.
    pub is_removed_as_lost: bool,
}

/// How the open write continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reopening {
    /// The primary continues.
    Same(StoreId),
    /// This store takes over alone, once the primary is fenced. If an existing file is being changed, the other
    /// holders must be fenced too, because they could show its old bytes.
    TakeOver(InSyncReplica),
    /// All stores with every acknowledged write are away, and may return.
    Wait,
    /// No store has surely kept every acknowledged write, because the nodes have a new boot generation. The client
    /// must write the file again.
    Lost,
}

/// Decides. `in_sync` holds the in-sync replicas of the open write, the primary first. `tried` holds the stores
/// that the client could not reach.
#[must_use]
pub fn reopening(
    in_sync: &[InSyncReplica],
    tried: &[StoreId],
    standing: impl Fn(StoreId) -> Option<StoreStatus>,
) -> Reopening {
    let knows_all = |one: &InSyncReplica| {
        standing(one.store).is_some_and(|standing| standing.boot_generation == one.boot_generation)
    };
    let is_online =
        |one: &InSyncReplica| standing(one.store).is_some_and(|standing| standing.presence == Presence::Online);
    let Some(primary) = in_sync.first() else { return Reopening::Lost };
    if knows_all(primary) && is_online(primary) && !tried.contains(&primary.store) {
        return Reopening::Same(primary.store);
    }
    let can = |one: &&InSyncReplica| knows_all(one) && is_online(one);
    let is_removed_as_lost =
        |one: &InSyncReplica| standing(one.store).is_some_and(|standing| standing.is_removed_as_lost);
    // The store that takes over is then the only in-sync replica. A leaving store takes over only if no remaining
    // store has every acknowledged write.
    let somebody_stays = in_sync.iter().any(|one| knows_all(one) && !is_removed_as_lost(one));
    let takes = |one: &&InSyncReplica| can(one) && !(somebody_stays && is_removed_as_lost(one));
    let mut others = in_sync[1..].iter().filter(takes);
    if let Some(another) = others.clone().find(|one| !tried.contains(&one.store)) {
        return Reopening::TakeOver(*another);
    }
    // The client may be wrong, or its connection may work again.
    if can(&primary) {
        return Reopening::Same(primary.store);
    }
    if let Some(another) = others.next() {
        return Reopening::TakeOver(*another);
    }
    if in_sync.iter().any(knows_all) { Reopening::Wait } else { Reopening::Lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_sync(stores: &[u64]) -> Vec<InSyncReplica> {
        stores
            .iter()
            .map(|store| InSyncReplica { store: StoreId(*store), boot_generation: BootGeneration(1) })
            .collect()
    }

    fn decide(tried: &[u64], standing: &[(Presence, u32)]) -> Reopening {
        decide_where(&[], tried, standing)
    }

    fn decide_where(removed_as_lost: &[u64], tried: &[u64], standing: &[(Presence, u32)]) -> Reopening {
        let tried: Vec<StoreId> = tried.iter().copied().map(StoreId).collect();
        let known = |store: StoreId| {
            let (presence, boot_generation) = *standing.get(usize::try_from(store.0).ok()?)?;
            Some(StoreStatus {
                presence,
                boot_generation: BootGeneration(boot_generation),
                is_removed_as_lost: removed_as_lost.contains(&store.0),
            })
        };
        let stores: Vec<u64> = (0..standing.len() as u64).collect();
        reopening(&in_sync(&stores), &tried, known)
    }

    #[test]
    fn the_store_that_continues_has_everything_acknowledged() {
        use Presence::{Away, Online, Suspect};
        let two = |tried: &[u64], first, second| decide(tried, &[first, second]);
        let over = Reopening::TakeOver(InSyncReplica { store: StoreId(1), boot_generation: BootGeneration(1) });
        assert_eq!(two(&[], (Online, 1), (Online, 1)), Reopening::Same(StoreId(0)));
        assert_eq!(two(&[0], (Online, 1), (Online, 1)), over);
        assert_eq!(two(&[], (Suspect, 1), (Online, 1)), over);
        assert_eq!(two(&[], (Online, 2), (Online, 1)), over, "it has restarted");
        assert_eq!(two(&[0], (Online, 1), (Online, 2)), Reopening::Same(StoreId(0)), "nobody else can");
        assert_eq!(two(&[], (Away, 1), (Online, 2)), Reopening::Wait);
        assert_eq!(two(&[], (Online, 2), (Online, 2)), Reopening::Lost);
        assert_eq!(two(&[], (Online, 2), (Away, 1)), Reopening::Wait);
        assert_eq!(
            two(&[0, 1], (Online, 2), (Online, 1)),
            over,
            "it could not be reached once, and there is no other store"
        );
        assert_eq!(decide(&[], &[]), Reopening::Lost);
    }

    #[test]
    fn a_store_removed_as_lost_takes_over_only_if_no_other_can() {
        use Presence::{Away, Online, Suspect};
        let over = Reopening::TakeOver(InSyncReplica { store: StoreId(1), boot_generation: BootGeneration(1) });
        let second_goes = |tried: &[u64], first| decide_where(&[1], tried, &[first, (Online, 1)]);
        assert_eq!(second_goes(&[], (Suspect, 1)), Reopening::Wait);
        assert_eq!(second_goes(&[0], (Away, 1)), Reopening::Wait);
        assert_eq!(second_goes(&[0], (Online, 1)), Reopening::Same(StoreId(0)));
        assert_eq!(second_goes(&[], (Online, 2)), over, "the first one has restarted");
        assert_eq!(decide_where(&[0, 1], &[], &[(Suspect, 1), (Online, 1)]), over, "so was the first one");
        let first_goes = |tried: &[u64], second| decide_where(&[0], tried, &[(Online, 1), second]);
        assert_eq!(first_goes(&[], (Online, 1)), Reopening::Same(StoreId(0)), "both go on");
        assert_eq!(first_goes(&[0], (Online, 1)), over);
    }
}
