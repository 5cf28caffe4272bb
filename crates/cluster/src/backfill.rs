//! A store that is gone for good is replaced in its groups: another one joins in its place, is given what was there before, and the lost one leaves
//! when the others have all that it had. Where a group stands is in the namespace, so that this remembers nothing.

use types::{Group, StoreId};

use crate::placement::PlacementError;

/// Contents of one group that are owed at a time: more are taken on when fewer are left. What was lost is not counted.
pub const MISSING_AT_A_TIME: usize = 256;

/// What is done next in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing is to be done.
    Nothing,
    /// This store takes the place of that member.
    Join {
        /// Who joins.
        store: StoreId,
        /// Whose place it takes.
        in_place_of: StoreId,
    },
    /// This member is owed some more of what was there before.
    Fill(StoreId),
    /// This member leaves.
    Leave(StoreId),
    /// Copies have to be made first.
    Copies,
    /// No store can take the place of this member.
    NoLocation(StoreId, PlacementError),
}

/// What is known of the members of a group.
#[derive(Clone, Copy)]
pub struct MemberStates<'a> {
    /// A store that is to leave: it was given up, or is being emptied.
    pub is_to_leave: &'a dyn Fn(StoreId) -> bool,
    /// One that is gone for good.
    pub is_removed_as_lost: &'a dyn Fn(StoreId) -> bool,
    /// One that has to stay for now: something is to be copied first, or would be gone without it.
    pub is_kept: &'a dyn Fn(StoreId) -> bool,
}

impl std::fmt::Debug for MemberStates<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Going")
    }
}

/// Decides what is done next in `group`. `missing`: contents of which somebody who stays is owed a copy, and can be given one, counted up to
/// [`MISSING_AT_A_TIME`]. `choose` is asked for who takes a lost member's place beside those that remain.
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
        // One that leaves is not taken in again before it has left.
        let is_new = |store: &StoreId| members.iter().all(|member| member.store != *store);
        match choose(&stay, lost.store) {
            // Who takes the place of one that never had all has to wait until what it was the first to have is on others.
            Ok(_) if !lost.is_current() && (member_states.is_kept)(lost.store) => {}
            Ok(store) if is_new(&store) => return Next::Join { store, in_place_of: lost.store },
            Ok(_) => {}
            Err(error) => without_location = Some(Next::NoLocation(lost.store, error)),
        }
    }
    // Of one that is being emptied, or was given up, nobody else may have something: it is owed the rest first, and its place is taken then.
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

    /// Store 2 was given up.
    const LOST: MemberStates<'_> =
        MemberStates { is_to_leave: &is_two, is_removed_as_lost: &is_two, is_kept: &|_| false };

    fn member_states(members: Vec<Member>, member_states: &MemberStates<'_>, missing: usize) -> Next {
        next(&group(members), member_states, missing, |stay, lost| {
            assert!(!stay.contains(&lost));
            Ok(StoreId(3))
        })
    }

    /// With store 2 lost, and store 3 to take its place.
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
        // All is owed, and not all is there.
        assert_eq!(decide(backfill(99), 1), Next::Copies);
        assert_eq!(decide(backfill(99), 0), Next::Leave(StoreId(2)));
        assert_eq!(decide(vec![all, member(3, 100, 99)], 0), Next::Nothing);
        assert_eq!(decide(vec![all, member(3, 100, 99)], 5), Next::Nothing, "other missing replicas can wait");
    }

    #[test]
    fn what_was_lost_with_one_keeps_no_other() {
        // On store 2, which was given up, is something that nobody else has. Store 4 is being emptied.
        let both = MemberStates { is_to_leave: &|store| [2, 4].contains(&store.0), is_kept: &is_two, ..LOST };
        let members =
            |through| vec![member(2, 1, LEAVES), member(3, 100, 99), member(4, 1, LEAVES), member(5, 100, through)];
        assert_eq!(member_states(members(40), &both, 0), Next::Fill(StoreId(5)));
        assert_eq!(member_states(members(99), &both, 0), Next::Leave(StoreId(4)));
    }

    #[test]
    fn who_takes_a_place_and_is_lost_itself_is_replaced_when_nothing_is_on_it_alone() {
        let members = || vec![member(1, 1, 0), member(4, 1, LEAVES), member(2, 100, 40)];
        assert_eq!(decide(members(), 0), Next::Join { store: StoreId(3), in_place_of: StoreId(2) });
        // What it has alone is not forgotten: it is as one that was there from the beginning, and is owed nearly all.
        assert_eq!(decide(members(), 1), Next::Fill(StoreId(2)));
        let filled = vec![member(1, 1, 0), member(4, 1, LEAVES), member(2, 100, 99)];
        assert_eq!(decide(filled, 1), Next::Join { store: StoreId(3), in_place_of: StoreId(2) });
    }

    #[test]
    fn without_a_place_all_stays_as_it_is() {
        let error = PlacementError::NoReplacement { lost: StoreId(2), spread: Spread::Host, class: None };
        let none = |members: Vec<Member>, member_states: &MemberStates<'_>| {
            next(&group(members), member_states, 0, |_, _| Err(error.clone()))
        };
        let stuck = Next::NoLocation(StoreId(2), error.clone());
        assert_eq!(none(vec![member(1, 1, 0), member(2, 1, 0)], &LOST), stuck);
        // But what can be done is done.
        assert_eq!(none(vec![member(2, 1, 0), member(4, 1, LEAVES), member(3, 9, 0)], &LOST), Next::Fill(StoreId(3)));
        assert_eq!(none(vec![member(1, 1, 0), member(3, 1, 0)], &LOST), Next::Nothing);
        // Its place was taken by one that is to go itself: it stays as long as something is on it alone.
        let members = || vec![member(4, 1, LEAVES), member(2, 100, 99)];
        assert_eq!(none(members(), &MemberStates { is_kept: &|store| store == StoreId(4), ..LOST }), stuck);
        assert_eq!(none(members(), &LOST), Next::Leave(StoreId(4)));
    }

    #[test]
    fn one_that_is_emptied_before_it_was_given_all_is_replaced_at_once_unless_something_is_on_it_alone() {
        let emptied = MemberStates { is_removed_as_lost: &|_| false, ..LOST };
        let members = || vec![member(4, 1, LEAVES), member(2, 100, 40)];
        assert_eq!(member_states(members(), &emptied, 0), Next::Join { store: StoreId(3), in_place_of: StoreId(2) });
        assert_eq!(member_states(members(), &MemberStates { is_kept: &is_two, ..emptied }, 0), Next::Fill(StoreId(2)));
    }
}
