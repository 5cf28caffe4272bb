//! The sessions that write one object through one lease. A complete file that is changed in place can have several:
//! then the last close ends the write.

use std::collections::BTreeMap;

use crate::writers::Owner;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sharers {
    sessions: BTreeMap<Owner, Share>,
    /// Why nobody else may write the file, if that is so.
    alone: Option<Alone>,
}

/// A session's part in the write.
#[derive(Debug, Default)]
struct Share {
    handles: usize,
    /// The session has come back to the write. XrdCl then opens the file once for each waiting write, and closes one of
    /// the handles only.
    has_returned: bool,
}

/// Why a writer does not share its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alone {
    /// It appends.
    Appends,
    /// It has an open checkpoint.
    HasCheckpoint,
}

impl Sharers {
    /// `session` has opened one more handle.
    pub(crate) fn add(&mut self, session: Owner) {
        self.sessions.entry(session).or_default().handles += 1;
    }

    /// `session` continues the write, and all others are fenced.
    pub(crate) fn take_over(&mut self, session: Owner) {
        self.sessions.retain(|other, _| *other == session);
        let share = self.sessions.entry(session).or_default();
        share.handles += 1;
        share.has_returned = true;
        self.alone = self.alone.filter(|alone| *alone == Alone::Appends);
    }

    /// A handle of `session` is closed or gone. Returns whether the file is open for writing elsewhere.
    pub(crate) fn leave(&mut self, session: Owner) -> bool {
        if let Some(share) = self.sessions.get_mut(&session) {
            share.handles -= 1;
            if share.handles == 0 || share.has_returned {
                self.sessions.remove(&session);
            }
        }
        !self.sessions.is_empty()
    }

    /// Whether `session` writes the file.
    pub(crate) fn has(&self, session: Owner) -> bool {
        self.sessions.contains_key(&session)
    }

    /// The sessions that write the file.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = Owner> {
        self.sessions.keys().copied()
    }

    /// Why nobody else may write the file.
    pub(crate) fn alone(&self) -> Option<Alone> {
        self.alone
    }

    /// Nobody else may write the file from now on. Returns `false` if somebody does.
    pub(crate) fn be_alone(&mut self, why: Alone) -> bool {
        let is_one = |share: &Share| share.handles <= 1 || share.has_returned;
        let is_alone = self.sessions.len() <= 1 && self.sessions.values().all(is_one);
        if is_alone {
            self.alone.get_or_insert(why);
        }
        is_alone
    }

    /// The checkpoint has ended.
    pub(crate) fn end_checkpoint(&mut self) {
        self.alone = self.alone.filter(|alone| *alone != Alone::HasCheckpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Owner = Owner(1);
    const OTHER: Owner = Owner(2);

    #[test]
    fn the_last_handle_ends_the_write() {
        let mut sharers = Sharers::default();
        for session in [ONE, ONE, OTHER] {
            sharers.add(session);
        }
        assert!(sharers.leave(ONE) && sharers.has(ONE));
        assert!(sharers.leave(ONE) && !sharers.has(ONE));
        assert!(sharers.leave(ONE), "it has no handle any more");
        assert!(!sharers.leave(OTHER));
    }

    #[test]
    fn the_handles_of_a_returned_session_count_as_one() {
        let mut sharers = Sharers::default();
        sharers.add(ONE);
        sharers.take_over(OTHER);
        assert!(!sharers.has(ONE));
        sharers.add(OTHER);
        assert!(!sharers.leave(OTHER) && !sharers.leave(OTHER));
    }

    #[test]
    fn a_checkpoint_needs_a_writer_that_is_alone() {
        let mut sharers = Sharers::default();
        sharers.add(ONE);
        assert!(sharers.be_alone(Alone::HasCheckpoint));
        assert_eq!(sharers.alone(), Some(Alone::HasCheckpoint));
        sharers.end_checkpoint();
        sharers.add(ONE);
        assert!(!sharers.be_alone(Alone::HasCheckpoint), "it has another handle");
        assert!(sharers.leave(ONE));
        sharers.add(OTHER);
        assert!(!sharers.be_alone(Alone::HasCheckpoint) && sharers.alone().is_none());
    }

    #[test]
    fn an_appending_writer_stays_alone_after_its_checkpoint() {
        let mut sharers = Sharers::default();
        sharers.add(ONE);
        assert!(sharers.be_alone(Alone::Appends) && sharers.be_alone(Alone::HasCheckpoint));
        sharers.end_checkpoint();
        assert_eq!(sharers.alone(), Some(Alone::Appends));
    }
}
