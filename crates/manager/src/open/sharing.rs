//! Clients of one principal that change a complete file in place together. They share the open write and its epoch, and the primary orders their
//! changes.
//!
//! An epoch belongs to one run of a primary: two runs would number their changes alike. So a client joins an epoch only if the primary's session is
//! the one in which the epoch began. Otherwise the epoch is raised, as for a client that comes back alone; the others find that their server does not
//! know their capability any more, come here, and join the new epoch.

use std::collections::HashMap;

use namespace::{Sharing, WriterKind, WriterRecord};
use types::{ObjectId, SessionId};

use super::OpenService;
use crate::tracked::Tracked;

/// The most open writes to remember. If there are more, all are forgotten, and the next client to join raises the epoch.
const REMEMBERED_MAX: usize = 1 << 16;

/// The epoch of an open write, and the session of its primary in which it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    pub(super) epoch: u32,
    pub(super) session: SessionId,
}

/// The sessions in which the epochs of changes in place began. They are in memory: after a start of the manager the epochs are raised.
#[derive(Debug, Default)]
pub(super) struct Primaries(Tracked<Known>);

#[derive(Debug, Default)]
struct Known {
    terms: HashMap<ObjectId, Terms>,
    /// Some were forgotten.
    is_partial: bool,
}

impl Primaries {
    /// Whether the epoch began in this session. `began_now`: it began in this run of the manager. Then the first capability for it may just be on
    /// its way, and whoever comes first decides the session. The terms of an earlier open write, which is about to be forgotten, say nothing about it.
    fn has(&self, object: ObjectId, terms: Terms, began_now: bool) -> bool {
        let known = self.0.lock();
        match known.terms.get(&object) {
            Some(found) if found.epoch >= terms.epoch => *found == terms,
            Some(_) | None => began_now && !known.is_partial,
        }
    }

    /// A client is about to get a capability on these terms. `joins`: it joins the epoch, and does not begin it. Returns whether it may have the
    /// capability. No epoch is in two sessions.
    pub(super) fn begin(&self, object: ObjectId, terms: Option<Terms>, joins: bool) -> bool {
        let Some(terms) = terms else { return false };
        let mut known = self.0.lock();
        match known.terms.get(&object) {
            Some(found) if found.epoch == terms.epoch => return found.session == terms.session,
            Some(found) if found.epoch > terms.epoch => return false,
            None if joins && known.is_partial => return false,
            Some(_) | None => {}
        }
        if known.terms.len() >= REMEMBERED_MAX {
            known.terms.clear();
            known.is_partial = true;
        }
        known.terms.insert(object, terms);
        true
    }

    /// The open write has ended in this epoch. A primary may report that again when a later open write of the object has begun: its terms stay.
    pub(super) fn end(&self, object: ObjectId, epoch: u32) {
        let mut known = self.0.lock();
        if known.terms.get(&object).is_some_and(|found| found.epoch <= epoch) {
            known.terms.remove(&object);
        }
    }
}

impl OpenService {
    /// How a client may share this open write at its present primary. `None`: it is no change in place. `came_with`: the object and the epoch that the
    /// client had before; its server has sent it here, so nobody can write in that epoch any more.
    pub(super) fn sharing(&self, writer: &WriterRecord, came_with: Option<(ObjectId, u64)>) -> Option<Sharing> {
        if writer.kind != WriterKind::Update {
            return None;
        }
        let (view, now) = (self.view.get(), self.world.now());
        let node = writer.primary().and_then(|primary| view.node_of(primary.store));
        let terms = node.and_then(|node| view.sessions.session(now, node));
        let terms = terms.map(|session| Terms { epoch: writer.epoch, session });
        let began_now = writer.session == self.names.namespace().session();
        let is_left = came_with == Some((writer.object, u64::from(writer.epoch)));
        let is_alive = !is_left && terms.is_some_and(|terms| self.primaries.has(writer.object, terms, began_now));
        Some(if is_alive { Sharing::Keeps(Some(writer.epoch)) } else { Sharing::Raises(writer.epoch) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_joined_only_in_the_session_in_which_it_began() {
        let primaries = Primaries::default();
        let (object, terms) = (ObjectId(7), Terms { epoch: 3, session: SessionId(40) });
        assert!(!primaries.has(object, terms, false), "it may have begun in any session");
        assert!(primaries.has(object, terms, true), "its first client may be on its way");
        assert!(primaries.begin(object, Some(terms), false));
        assert!(primaries.has(object, terms, true) && primaries.begin(object, Some(terms), true));
        let restarted = Terms { session: SessionId(41), ..terms };
        assert!(!primaries.has(object, restarted, true));
        assert!(!primaries.begin(object, Some(restarted), true) && !primaries.begin(object, Some(restarted), false));
        assert!(!primaries.begin(object, None, true), "its primary is away");
        let raised = Terms { epoch: 4, ..restarted };
        assert!(primaries.begin(object, Some(raised), false) && primaries.has(object, raised, true));
        assert!(!primaries.begin(object, Some(terms), true), "that one is over");
        primaries.end(object, 4);
        assert!(!primaries.has(object, raised, false));
    }

    #[test]
    fn an_open_write_that_has_just_ended_does_not_raise_the_epoch_of_the_next_one() {
        let primaries = Primaries::default();
        let (object, terms) = (ObjectId(7), Terms { epoch: 3, session: SessionId(40) });
        assert!(primaries.begin(object, Some(terms), false));
        let next = Terms { epoch: 4, ..terms };
        assert!(primaries.has(object, next, true), "the capability of its first client is on its way");
        assert!(!primaries.has(object, next, false), "it may have begun in any session");
        assert!(primaries.begin(object, Some(next), true));
        assert!(!primaries.has(object, terms, true), "that one is over");
    }

    #[test]
    fn a_repeated_end_does_not_forget_the_terms_of_a_later_open_write() {
        let primaries = Primaries::default();
        let (object, terms) = (ObjectId(7), Terms { epoch: 4, session: SessionId(40) });
        assert!(primaries.begin(object, Some(terms), false));
        primaries.end(object, 3);
        let restarted = Terms { session: SessionId(41), ..terms };
        assert!(!primaries.begin(object, Some(restarted), true), "the epoch began in another session");
        assert!(primaries.has(object, terms, false));
    }
}
