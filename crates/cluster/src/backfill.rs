//! How a group replaces a store that leaves it. Another store joins in its place, and receives the group's existing
//! objects. The old store leaves when the other members have replicas of all its objects.
//!
//! The namespace records a group's progress, so this module keeps no state.

use types::{Group, StoreId};

use crate::placement::PlacementError;

/// The number of missing replicas that a group has at a time. The group gets more when fewer are left. Lost files
/// are not counted.
pub const MISSING_AT_A_TIME: usize = 256;

/// The next step for a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The group needs no change.
    Nothing,
    /// A store joins in place of a member.
    Join {
        /// The store that joins.
        store: StoreId,
        /// The member that it replaces.
        in_place_of: StoreId,
    },
    /// This member gets more missing replicas, of objects that the group had before the member joined.
    Fill(StoreId),
    /// This member leaves.
    Leave(StoreId),
    /// Repair must make replicas first.
    Copies,
    /// No store can replace this member.
    NoLocation(StoreId, PlacementError),
}

/// The states of a group's members.
#[derive(Clone, Copy)]
pub struct MemberStates<'a> {
    /// Whether a store must leave: it is removed as lost, or draining.
    pub is_to_leave: &'a dyn Fn(StoreId) -> bool,
    /// Whether a store is removed as lost.
    pub is_removed_as_lost: &'a dyn Fn(StoreId) -> bool,
    /// Whether a store must stay for now, because it has objects that must be copied first, or that would be lost
    /// without it.
    pub is_kept: &'a dyn Fn(StoreId) -> bool,
}

impl std::fmt::Debug for MemberStates<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Going")
    }
}

/// Decides the next step for `group`. `missing` is the number of objects of which a remaining member lacks a
/// replica and can get one, counted up to [`MISSING_AT_A_TIME`]. `choose` returns the store that replaces a lost
/// member beside the given remaining ones.
pub fn next(
    group: &Group,
    member_states: &MemberStates<'_>,
    missing: usize,
    choose: impl FnOnce(&[StoreId], StoreId) -> Result<StoreId, PlacementError>,
) -> Next {
    let (members, goes) = (&group.members, member_states.is_to_leave);
    let mut without_location = None;
    if let Some(lost) = members.iter().find(|member| goes(member.store) && !member.is_leaving()) {
        let stay = members.iter().filter(|member| !member.is_leaving() && !goes(member.store));
        let stay: Vec<StoreId> = stay.map(|member| member.store).collect();
        // A store that leaves cannot join again before it has left.
        let is_new = |store: &StoreId| members.iter().all(|member| member.store != *store);
        match choose(&stay, lost.store) {
            // This member never had all objects. Its replacement waits until other stores have the objects of which it
            // was the first holder.
            Ok(_) if !lost.is_current() && (member_states.is_kept)(lost.store) => {}
            Ok(store) if is_new(&store) => return Next::Join { store, in_place_of: lost.store },
            Ok(_) => {}
            Err(error) => without_location = Some(Next::NoLocation(lost.store, error)),
        }
    }
    // A draining store, or one removed as lost, may have objects that no other store has. It first receives the
    // remaining objects, and is replaced after that.
    let is_filled = |store: StoreId| !(member_states.is_removed_as_lost)(store) || (member_states.is_kept)(store);
    let backfill = members.iter().find(|member| !member.is_current() && is_filled(member.store));
    let mut leaving = members.iter().filter(|member| member.is_leaving()).peekable();
    let next = match (backfill, leaving.peek().is_some()) {
        (Some(member), _) if missing < MISSING_AT_A_TIME => Next::Fill(member.store),
        (Some(_), _) => Next::Copies,
        (None, true) if members.iter().any(|member| !member.is_current()) => Next::Copies,
        (None, true) => leaving
            .find(|member| !(member_states.is_kept)(member.store))
            .map_or(Next::Copies, |member| Next::Leave(member.store)),
        (None, false) => Next::Nothing,
    };
    match next {
        Next::Nothing | Next::Copies => without_location.unwrap_or(next),
        next => next,
    }
}

#[cfg(test)]
mod tests {
    use types::{GroupId, Member, ObjectId, Spread};

    use super::*;

    fn member(store: u64, since: u64, through: u64) -> Member {
        Member { store: StoreId(store), since: ObjectId(since), through: ObjectId(through) }
    }

    fn group(members: Vec<Member>) -> Group {
        Group { group: GroupId(2), epoch: 1, members }
    }

    fn is_two(store: StoreId) -> bool {
        store == StoreId(2)
    }

    /// Store 2 is removed as lost.
    const LOST: MemberStates<'_> =
        MemberStates { is_to_leave: &is_two, is_removed_as_lost: &is_two, is_kept: &|_| false };

    fn member_states(members: Vec<Member>, member_states: &MemberStates<'_>, missing: usize) -> Next {
        next(&group(members), member_states, missing, |stay, lost| {
            assert!(!stay.contains(&lost));
            Ok(StoreId(3))
        })
    }

    /// Store 2 is lost, and store 3 can replace it.
    fn decide(members: Vec<Member>, missing: usize) -> Next {
        member_states(members, &MemberStates { is_kept: &|_| missing > 0, ..LOST }, missing)
    }

    const LEAVES: u64 = Member::LEAVES.0;

    #[test]
    fn a_lost_store_is_replaced_step_by_step_and_leaves_last() {
        let all = member(1, 1, 0);
        let join = Next::Join { store: StoreId(3), in_place_of: StoreId(2) };
        assert_eq!(decide(vec![all, member(2, 1, 0)], 0), join);
        assert_eq!(decide(vec![all, member(2, 1, 0)], 9), join, "missing replicas of other stores");
        let backfill = |through| vec![all, member(2, 1, LEAVES), member(3, 100, through)];
        assert_eq!(decide(backfill(0), 0), Next::Fill(StoreId(3)));
        assert_eq!(decide(backfill(40), MISSING_AT_A_TIME - 1), Next::Fill(StoreId(3)));
        assert_eq!(decide(backfill(40), MISSING_AT_A_TIME), Next::Copies);
        // All replicas are recorded as missing, and some are not made yet.
        assert_eq!(decide(backfill(99), 1), Next::Copies);
        assert_eq!(decide(backfill(99), 0), Next::Leave(StoreId(2)));
        assert_eq!(decide(vec![all, member(3, 100, 99)], 0), Next::Nothing);
        assert_eq!(decide(vec![all, member(3, 100, 99)], 5), Next::Nothing, "other missing replicas can wait");
    }

    #[test]
    fn objects_lost_with_one_store_do_not_keep_another() {
        // Store 2 is removed as lost and has an object that no other store has. Store 4 is draining.
        let both = MemberStates { is_to_leave: &|store| [2, 4].contains(&store.0), is_kept: &is_two, ..LOST };
        let members =
            |through| vec![member(2, 1, LEAVES), member(3, 100, 99), member(4, 1, LEAVES), member(5, 100, through)];
        assert_eq!(member_states(members(40), &both, 0), Next::Fill(StoreId(5)));
        assert_eq!(member_states(members(99), &both, 0), Next::Leave(StoreId(4)));
    }

    #[test]
    fn a_lost_replacement_is_replaced_when_it_alone_has_nothing() {
        let members = || vec![member(1, 1, 0), member(4, 1, LEAVES), member(2, 100, 40)];
        assert_eq!(decide(members(), 0), Next::Join { store: StoreId(3), in_place_of: StoreId(2) });
        // It has an object that no other store has, so it is treated like an original member and gets nearly all
        // objects.
        assert_eq!(decide(members(), 1), Next::Fill(StoreId(2)));
        let filled = vec![member(1, 1, 0), member(4, 1, LEAVES), member(2, 100, 99)];
        assert_eq!(decide(filled, 1), Next::Join { store: StoreId(3), in_place_of: StoreId(2) });
    }

    #[test]
    fn without_a_replacement_the_group_stays_as_it_is() {
        let error = PlacementError::NoReplacement { lost: StoreId(2), spread: Spread::Host, class: None };
        let none = |members: Vec<Member>, member_states: &MemberStates<'_>| {
            next(&group(members), member_states, 0, |_, _| Err(error.clone()))
        };
        let stuck = Next::NoLocation(StoreId(2), error.clone());
        assert_eq!(none(vec![member(1, 1, 0), member(2, 1, 0)], &LOST), stuck);
        // The steps that are possible are still taken.
        assert_eq!(none(vec![member(2, 1, 0), member(4, 1, LEAVES), member(3, 9, 0)], &LOST), Next::Fill(StoreId(3)));
        assert_eq!(none(vec![member(1, 1, 0), member(3, 1, 0)], &LOST), Next::Nothing);
        // The store that replaced this one must leave, too. The old store stays as long as it alone has some object.
        let members = || vec![member(4, 1, LEAVES), member(2, 100, 99)];
        assert_eq!(none(members(), &MemberStates { is_kept: &|store| store == StoreId(4), ..LOST }), stuck);
        assert_eq!(none(members(), &LOST), Next::Leave(StoreId(4)));
    }

    #[test]
    fn a_store_drained_during_backfill_is_replaced_at_once_unless_it_alone_has_something() {
        let drained = MemberStates { is_removed_as_lost: &|_| false, ..LOST };
        let members = || vec![member(4, 1, LEAVES), member(2, 100, 40)];
        assert_eq!(member_states(members(), &drained, 0), Next::Join { store: StoreId(3), in_place_of: StoreId(2) });
        assert_eq!(member_states(members(), &MemberStates { is_kept: &is_two, ..drained }, 0), Next::Fill(StoreId(2)));
    }
}
