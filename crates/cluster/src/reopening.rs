//! A client comes back for a file that it was writing: who is to go on?

use types::{Era, Participant, StoreId};

use crate::Presence;

/// How a store stands, as far as the manager knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Its node.
    pub presence: Presence,
    /// Its node's era.
    pub era: Era,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reopening {
    /// The primary goes on.
    Same(StoreId),
    /// This one takes over, alone, once the primary is fenced; and all the others, too, where what is changed is a file that they hold and could show as it was.
    TakeOver(Participant),
    /// Those who know all that was answered are away; they may come back.
    Wait,
    /// Nobody has surely kept all that was answered: the machines have begun anew. The client has to write again.
    Lost,
}

/// Decides. `participants`: of the writing, its primary first. `tried`: those that the client could not reach.
#[must_use]
pub fn reopening(
    participants: &[Participant],
    tried: &[StoreId],
    standing: impl Fn(StoreId) -> Option<Standing>,
) -> Reopening {
    let knows_all = |one: &Participant| standing(one.store).is_some_and(|standing| standing.era == one.era);
    let is_online =
        |one: &Participant| standing(one.store).is_some_and(|standing| standing.presence == Presence::Online);
    let Some(primary) = participants.first() else { return Reopening::Lost };
    if knows_all(primary) && is_online(primary) && !tried.contains(&primary.store) {
        return Reopening::Same(primary.store);
    }
    let can = |one: &&Participant| knows_all(one) && is_online(one);
    let mut others = participants[1..].iter().filter(can);
    if let Some(another) = others.clone().find(|one| !tried.contains(&one.store)) {
        return Reopening::TakeOver(*another);
    }
    // The client may be wrong, or its way may be mended by now.
    if can(&primary) {
        return Reopening::Same(primary.store);
    }
    if let Some(another) = others.next() {
        return Reopening::TakeOver(*another);
    }
    if participants.iter().any(knows_all) { Reopening::Wait } else { Reopening::Lost }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn participants(stores: &[u64]) -> Vec<Participant> {
        stores.iter().map(|store| Participant { store: StoreId(*store), era: Era(1) }).collect()
    }

    fn decide(tried: &[u64], standing: &[(Presence, u32)]) -> Reopening {
        let tried: Vec<StoreId> = tried.iter().copied().map(StoreId).collect();
        let known = |store: StoreId| {
            let (presence, era) = *standing.get(usize::try_from(store.0).ok()?)?;
            Some(Standing { presence, era: Era(era) })
        };
        let stores: Vec<u64> = (0..standing.len() as u64).collect();
        reopening(&participants(&stores), &tried, known)
    }

    #[test]
    fn who_goes_on_has_all_that_was_answered() {
        use Presence::{Away, Online, Suspect};
        let two = |tried: &[u64], first, second| decide(tried, &[first, second]);
        let over = Reopening::TakeOver(Participant { store: StoreId(1), era: Era(1) });
        assert_eq!(two(&[], (Online, 1), (Online, 1)), Reopening::Same(StoreId(0)));
        assert_eq!(two(&[0], (Online, 1), (Online, 1)), over);
        assert_eq!(two(&[], (Suspect, 1), (Online, 1)), over);
        assert_eq!(two(&[], (Online, 2), (Online, 1)), over, "it has begun anew");
        assert_eq!(two(&[0], (Online, 1), (Online, 2)), Reopening::Same(StoreId(0)), "nobody else can");
        assert_eq!(two(&[], (Away, 1), (Online, 2)), Reopening::Wait);
        assert_eq!(two(&[], (Online, 2), (Online, 2)), Reopening::Lost);
        assert_eq!(two(&[], (Online, 2), (Away, 1)), Reopening::Wait);
        assert_eq!(
            two(&[0, 1], (Online, 2), (Online, 1)),
            over,
            "it could not be reached once, and there is nobody else"
        );
        assert_eq!(decide(&[], &[]), Reopening::Lost);
    }
}
