//! The clients that write one object through one lease. A complete file that is changed in place can have several.
//!
//! A *share* is the part of one session: its handles, and the client that it acts for. The set belongs to the lease. It changes under the lock on
//! the open writes, and then its own lock, which is the last one that anybody takes. Each write looks for its share while it holds the lease's state,
//! so a share that was taken away writes nothing more once somebody has locked that state for writing.
//!
//! - **Join.** An open for update of the same principal adds a share, or a handle to the share of its session. The server orders all writes as it
//!   receives them (in a cluster the primary).
//! - **Close.** While other shares are there, a close makes the data durable, and the share leaves. The close of the last one completes the file.
//! - **A client is lost** (killed, or its connection ends). Its share is remembered, and the others go on; nothing waits for it. If they all close, the
//!   file is complete, with everything that was acknowledged to the lost client. If the client comes back before, it has its share again; if it comes
//!   back later, its open begins a new change, or is refused if another file has the name by then.
//! - **All are lost.** The grace period begins, as for one writer.
//! - **Alone.** A client that appends or has a checkpoint shares with nobody: an open of another client is refused, and so is its own append or
//!   checkpoint while others write. While a session has a checkpoint, it does not open the file again either: the rollback would undo what it writes
//!   through the other handle.
//! - **Stock clients.** After a lost connection XrdCl opens a file once for each waiting write, and closes one of the handles only. So a share that
//!   has come back expects as many closes as there were files before, whatever the number of its handles is.

use types::ClientIdentity;

use crate::writers::Owner;

/// The most lost shares to remember. A client whose share was forgotten counts as a new one when it comes back.
const LOST_MAX: usize = 1024;

/// The number of a share, unique in its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShareId(u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sharers {
    shares: Vec<Share>,
    /// The shares whose sessions have ended, the oldest first.
    lost: Vec<Lost>,
    last: u64,
    /// A client appends.
    is_appended: bool,
    /// The share that has begun the open checkpoint. It may be gone; then the next owner of the lease rolls the checkpoint back.
    checkpoint_of: Option<ShareId>,
    /// The open write is of an earlier run, so all its clients come back.
    is_recovered: bool,
}

#[derive(Debug)]
struct Share {
    id: ShareId,
    session: Owner,
    client: ClientIdentity,
    /// Its open handles.
    handles: usize,
    /// The closes that are expected. At 0 the client has closed everything, even if the session still has handles.
    due: usize,
    /// The closes that have begun and not ended.
    closing: usize,
    has_returned: bool,
    /// Its session has ended during a close.
    is_gone: bool,
}

#[derive(Debug)]
struct Lost {
    client: ClientIdentity,
    due: usize,
}

/// Why a client shares the file with nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExclusiveUse {
    /// It appends.
    Appends,
    /// It has an open checkpoint.
    HasCheckpoint,
}

/// A session that opens the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer<'a> {
    pub(crate) session: Owner,
    pub(crate) client: &'a ClientIdentity,
    /// The client repeats an open, or says that it comes back.
    pub(crate) comes_again: bool,
}

/// What an open has added, so that it can be taken back.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) share: ShareId,
    /// The closes that are expected in addition.
    counted: usize,
    /// The share is one that was lost before.
    was_lost: bool,
}

/// What a close means for the open write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    /// It ends it.
    Last,
    /// Others go on. [`Sharers::finish_close`] or [`Sharers::stay`] must follow.
    Leaves,
}

/// The result of a close after which others could go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// Somebody still writes the file.
    pub(crate) others: bool,
    /// The client has closed all its files.
    pub(crate) is_clean: bool,
}

impl Share {
    fn is_of(&self, who: Newcomer<'_>) -> bool {
        self.session == who.session && self.client == *who.client
    }
}

impl Sharers {
    /// The clients of an open write of an earlier run.
    pub(crate) fn recovered() -> Self {
        Self { is_recovered: true, ..Self::default() }
    }

    /// The sharers of a later lease on the same open write, for the session that has just joined and will do so again. All of them were lost with the
    /// earlier one.
    pub(crate) fn succeed(&mut self, joined: &Joined) -> Self {
        // With its first handle it is new, and has lost nothing.
        if self.at(joined.share).is_some_and(|at| self.shares[at].handles == 1) {
            self.take_back(joined);
        }
        self.lose_all();
        Self { lost: std::mem::take(&mut self.lost), is_recovered: self.is_recovered, ..Self::default() }
    }

    /// A session opens the file, together with the others.
    pub(crate) fn join(&mut self, who: Newcomer<'_>) -> Joined {
        let own = self.shares.iter_mut().find(|share| share.is_of(who));
        if let Some(share) = own.filter(|share| !share.is_gone) {
            let counted = usize::from(share.due == 0 || !share.has_returned && !who.comes_again);
            share.handles += 1;
            share.due += counted;
            return Joined { share: share.id, counted, was_lost: false };
        }
        let lost = self.lost.iter().position(|lost| lost.client == *who.client).map(|at| self.lost.remove(at));
        let (was_lost, due) = (lost.is_some(), lost.map_or(1, |lost| lost.due));
        self.last += 1;
        let id = ShareId(self.last);
        self.shares.push(Share {
            id,
            session: who.session,
            client: who.client.clone(),
            handles: 1,
            due,
            closing: 0,
            has_returned: was_lost || who.comes_again || self.is_recovered,
            is_gone: false,
        });
        Joined { share: id, counted: due, was_lost }
    }

    /// A session continues the write by itself. The shares of other sessions end, and those of the same client count as lost. An open checkpoint stays
    /// until it is rolled back.
    pub(crate) fn take_over(&mut self, who: Newcomer<'_>) -> Joined {
        self.lost.retain(|lost| lost.client == *who.client);
        let (own, others) = std::mem::take(&mut self.shares).into_iter().partition(|share| share.is_of(who));
        self.shares = own;
        for Share { client, due, .. } in others {
            if client == *who.client && due > 0 {
                self.remember(Lost { client, due });
            }
        }
        self.join(who)
    }

    /// Whether the session has the file open.
    pub(crate) fn has_session(&self, who: Newcomer<'_>) -> bool {
        self.shares.iter().any(|share| share.is_of(who) && !share.is_gone)
    }

    /// The shares of other sessions end.
    pub(crate) fn end_others(&mut self, who: Newcomer<'_>) {
        self.shares.retain(|share| share.is_of(who));
    }

    /// Takes an open back whose client does not get a handle. Nothing else changes.
    pub(crate) fn take_back(&mut self, joined: &Joined) {
        let Some(at) = self.at(joined.share) else { return };
        let share = &mut self.shares[at];
        share.handles = share.handles.saturating_sub(1);
        if share.handles > 0 {
            if !joined.was_lost {
                share.due = share.due.saturating_sub(joined.counted);
            }
            return;
        }
        let Share { client, due, .. } = self.shares.remove(at);
        if joined.was_lost {
            self.remember(Lost { client, due });
        }
    }

    /// Whether a share may write.
    pub(crate) fn has(&self, share: ShareId) -> bool {
        self.at(share).is_some()
    }

    /// Whether somebody has the file open.
    pub(crate) fn are_there(&self) -> bool {
        self.shares.iter().any(|share| share.due > 0)
    }

    /// Whether no other client than this one has the file open.
    pub(crate) fn are_only(&self, client: &ClientIdentity) -> bool {
        self.shares.iter().all(|share| share.client == *client)
    }

    /// Whether a session of this client has the file open.
    pub(crate) fn has_client(&self, client: &ClientIdentity) -> bool {
        self.shares.iter().any(|share| share.client == *client)
    }

    /// Whether this client has the file open, or has lost it and may come back.
    pub(crate) fn knows(&self, client: &ClientIdentity) -> bool {
        self.has_client(client) || self.lost.iter().any(|lost| lost.client == *client)
    }

    /// Whether this client has the file open with another handle than one of this share, which it closes.
    pub(crate) fn has_another(&self, share: ShareId, client: &ClientIdentity) -> bool {
        let mut own = self.shares.iter().filter(|other| other.client == *client);
        own.any(|other| other.id != share || other.handles > 1)
    }

    /// The sessions that write the file, with their shares.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (Owner, ShareId)> {
        self.shares.iter().map(|share| (share.session, share.id))
    }

    /// A handle of a share is about to be closed.
    pub(crate) fn begin_close(&mut self, share: ShareId) -> Closing {
        let goes_on = |other: &Share| other.due > usize::from(other.id == share);
        if !self.shares.iter().any(goes_on) {
            return Closing::Last;
        }
        if let Some(at) = self.at(share) {
            self.shares[at].closing += 1;
        }
        Closing::Leaves
    }

    /// The close does not take place.
    pub(crate) fn stay(&mut self, share: ShareId) -> Left {
        self.end_close(share, 0)
    }

    /// A handle has been closed.
    pub(crate) fn finish_close(&mut self, share: ShareId) -> Left {
        self.end_close(share, 1)
    }

    fn end_close(&mut self, share: ShareId, closed: usize) -> Left {
        let mut is_clean = false;
        if let Some(at) = self.at(share) {
            let share = &mut self.shares[at];
            share.closing = share.closing.saturating_sub(1);
            share.due = share.due.saturating_sub(closed);
            share.handles = share.handles.saturating_sub(closed);
            is_clean = share.due == 0;
            let is_over = share.closing == 0 && (share.is_gone || share.handles == 0);
            if is_over {
                // The client has not opened all its files again yet.
                let Share { client, due, .. } = self.shares.remove(at);
                if due > 0 {
                    self.remember(Lost { client, due });
                }
            }
        }
        Left { others: self.are_there(), is_clean }
    }

    /// The session of a share has ended. Returns the client if it may come back for what it has open.
    pub(crate) fn lose(&mut self, share: ShareId) -> Option<ClientIdentity> {
        let at = self.at(share)?;
        if self.shares[at].closing > 0 {
            self.shares[at].is_gone = true;
            return None;
        }
        let Share { client, due, .. } = self.shares.remove(at);
        if due == 0 {
            return None;
        }
        self.remember(Lost { client: client.clone(), due });
        Some(client)
    }

    /// The sessions of all shares have ended.
    pub(crate) fn lose_all(&mut self) {
        for Share { client, due, .. } in std::mem::take(&mut self.shares) {
            if due > 0 {
                self.remember(Lost { client, due });
            }
        }
        (self.is_appended, self.checkpoint_of) = (false, None);
    }

    /// Takes the file from everybody.
    pub(crate) fn end(&mut self) {
        self.shares.clear();
        self.lost.clear();
        (self.is_appended, self.checkpoint_of) = (false, None);
    }

    /// Why nobody else may write the file.
    pub(crate) fn alone(&self) -> Option<ExclusiveUse> {
        match self.checkpoint_of {
            Some(_) => Some(ExclusiveUse::HasCheckpoint),
            None => self.is_appended.then_some(ExclusiveUse::Appends),
        }
    }

    /// Whether the session has begun the open checkpoint.
    pub(crate) fn has_checkpoint(&self, session: Owner) -> bool {
        let at = self.checkpoint_of.and_then(|share| self.at(share));
        at.is_some_and(|at| self.shares[at].session == session)
    }

    /// Nobody else may write the file from now on. Returns `false` if somebody does. A session that appends may have other handles; one with a checkpoint
    /// has none.
    pub(crate) fn be_alone(&mut self, share: ShareId, why: ExclusiveUse) -> bool {
        let may_be = |other: &Share| other.id == share && (why == ExclusiveUse::Appends || other.due <= 1);
        let is_alone = self.shares.iter().all(may_be);
        match why {
            _ if !is_alone => {}
            ExclusiveUse::Appends => self.is_appended = true,
            ExclusiveUse::HasCheckpoint => self.checkpoint_of = Some(share),
        }
        is_alone
    }

    /// The checkpoint has ended.
    pub(crate) fn end_checkpoint(&mut self) {
        self.checkpoint_of = None;
    }

    fn at(&self, share: ShareId) -> Option<usize> {
        self.shares.iter().position(|other| other.id == share)
    }

    fn remember(&mut self, lost: Lost) {
        if self.lost.len() >= LOST_MAX {
            self.lost.remove(0);
        }
        self.lost.push(lost);
    }
}

#[cfg(test)]
mod tests {
    use types::PrincipalId;

    use super::*;

    fn client(pid: u32) -> ClientIdentity {
        ClientIdentity { principal: PrincipalId(5), user: "ana".into(), pid, host: "h".into() }
    }

    /// Opens it in this session, for the client of this process.
    fn open(sharers: &mut Sharers, session: u64, pid: u32) -> Joined {
        sharers.join(Newcomer { session: Owner(session), client: &client(pid), comes_again: false })
    }

    fn close(sharers: &mut Sharers, share: ShareId) -> bool {
        match sharers.begin_close(share) {
            Closing::Last => false,
            Closing::Leaves => sharers.finish_close(share).others,
        }
    }

    #[test]
    fn the_last_handle_ends_the_write() {
        let mut sharers = Sharers::default();
        let (one, again) = (open(&mut sharers, 1, 1).share, open(&mut sharers, 1, 1).share);
        let other = open(&mut sharers, 2, 2).share;
        assert!(one == again && one != other);
        assert!(close(&mut sharers, one) && sharers.has(one));
        assert!(close(&mut sharers, one) && !sharers.has(one), "its second handle is closed, too");
        assert_eq!(sharers.begin_close(other), Closing::Last);
    }

    #[test]
    fn closes_at_the_same_time_end_the_write_once() {
        let mut sharers = Sharers::default();
        let (one, other) = (open(&mut sharers, 1, 1).share, open(&mut sharers, 2, 2).share);
        assert_eq!([sharers.begin_close(one), sharers.begin_close(other)], [Closing::Leaves; 2]);
        assert_eq!(sharers.finish_close(other), Left { others: true, is_clean: true });
        assert_eq!(sharers.finish_close(one), Left { others: false, is_clean: true });
    }

    #[test]
    fn a_client_that_comes_back_closes_each_file_once_whatever_its_handles_are() {
        let mut sharers = Sharers::default();
        let (one, other) = (open(&mut sharers, 1, 1).share, open(&mut sharers, 2, 2).share);
        open(&mut sharers, 1, 1);
        assert_eq!(sharers.lose(one), Some(client(1)));
        assert!(!sharers.has(one) && sharers.has(other));
        let back = open(&mut sharers, 3, 1).share;
        for _ in 0..3 {
            assert_eq!(open(&mut sharers, 3, 1).share, back);
        }
        assert!(close(&mut sharers, back) && close(&mut sharers, back), "it had two files");
        assert!(sharers.has(back), "its other handles may still write");
        assert_eq!(sharers.begin_close(other), Closing::Last);
    }

    #[test]
    fn a_new_client_does_not_count_as_one_that_comes_back() {
        let mut sharers = Sharers::default();
        let lost = open(&mut sharers, 1, 1).share;
        sharers.lose(lost);
        let new = open(&mut sharers, 2, 2).share;
        open(&mut sharers, 2, 2);
        assert!(close(&mut sharers, new) && sharers.begin_close(new) == Closing::Last, "it has two files");
    }

    #[test]
    fn a_repeated_open_adds_no_share() {
        let mut sharers = Sharers::default();
        let one = open(&mut sharers, 1, 1).share;
        let again = sharers.join(Newcomer { session: Owner(1), client: &client(1), comes_again: true });
        assert_eq!(again.share, one);
        assert_eq!(sharers.begin_close(one), Closing::Last);
    }

    #[test]
    fn a_failed_open_takes_back_what_it_has_added_and_no_more() {
        let mut sharers = Sharers::default();
        let one = open(&mut sharers, 1, 1);
        let failed = open(&mut sharers, 1, 1);
        sharers.take_back(&failed);
        assert!(sharers.has(one.share) && sharers.begin_close(one.share) == Closing::Last);
        let other = open(&mut sharers, 2, 2);
        sharers.take_back(&other);
        assert!(sharers.begin_close(one.share) == Closing::Last);
        // One that was lost stays lost.
        open(&mut sharers, 1, 1);
        sharers.lose(one.share);
        let back = open(&mut sharers, 3, 1);
        sharers.take_back(&back);
        assert!(!sharers.are_there());
        let back = open(&mut sharers, 4, 1).share;
        open(&mut sharers, 4, 1);
        assert!(close(&mut sharers, back) && sharers.begin_close(back) == Closing::Last);
    }

    #[test]
    fn a_session_that_ends_during_its_close_has_closed_the_file() {
        let mut sharers = Sharers::default();
        let (one, other) = (open(&mut sharers, 1, 1).share, open(&mut sharers, 2, 2).share);
        assert_eq!(sharers.begin_close(one), Closing::Leaves);
        assert_eq!(sharers.lose(one), None, "its close goes on");
        sharers.lose(other);
        assert_eq!(sharers.finish_close(one), Left { others: false, is_clean: true });
        // The same, with a second file that is not closed.
        let one = open(&mut sharers, 3, 3).share;
        open(&mut sharers, 3, 3);
        assert_eq!(sharers.begin_close(one), Closing::Leaves);
        sharers.lose(one);
        assert_eq!(sharers.finish_close(one), Left { others: false, is_clean: false });
        assert!(!sharers.has(one));
    }

    #[test]
    fn an_extra_handle_that_is_taken_back_does_not_keep_the_file_open() {
        let mut sharers = Sharers::default();
        let (one, other) = (open(&mut sharers, 1, 1).share, open(&mut sharers, 2, 2).share);
        sharers.lose(one);
        let back = open(&mut sharers, 3, 1).share;
        open(&mut sharers, 3, 1);
        assert!(close(&mut sharers, back) && sharers.has(back), "it has closed its file, and has a handle left");
        let failed = open(&mut sharers, 3, 1);
        sharers.take_back(&failed);
        assert_eq!(sharers.begin_close(other), Closing::Last);
    }

    #[test]
    fn a_newcomer_does_not_count_as_one_that_comes_back_under_a_later_lease() {
        let mut sharers = Sharers::default();
        open(&mut sharers, 1, 1);
        let new = open(&mut sharers, 2, 2);
        let mut later = sharers.succeed(&new);
        let new = open(&mut later, 2, 2).share;
        open(&mut later, 2, 2);
        assert!(close(&mut later, new) && later.begin_close(new) == Closing::Last, "it has two files");
        // One that had a file before has another one now, and opens the first one again.
        let another = open(&mut later, 2, 2);
        let mut last = later.succeed(&another);
        let back = open(&mut last, 2, 2).share;
        open(&mut last, 2, 2);
        assert!(close(&mut last, back) && last.begin_close(back) == Closing::Last, "it has two files");
        let one = open(&mut last, 3, 1).share;
        open(&mut last, 3, 1);
        assert!(close(&mut last, back) && last.begin_close(one) == Closing::Last, "the first client has come back");
    }

    #[test]
    fn a_client_that_takes_the_file_from_its_lost_session_comes_back() {
        let mut sharers = Sharers::default();
        let old = open(&mut sharers, 1, 1).share;
        assert!(sharers.be_alone(old, ExclusiveUse::Appends));
        let who = Newcomer { session: Owner(2), client: &client(1), comes_again: false };
        let back = sharers.take_over(who).share;
        open(&mut sharers, 2, 1);
        assert!(!sharers.has(old) && sharers.alone() == Some(ExclusiveUse::Appends));
        assert_eq!(sharers.begin_close(back), Closing::Last, "it has one file, whatever its handles are");
    }

    #[test]
    fn a_client_has_another_handle_in_its_share_or_in_another_session() {
        let mut sharers = Sharers::default();
        let one = open(&mut sharers, 1, 1).share;
        open(&mut sharers, 2, 2);
        assert!(!sharers.has_another(one, &client(1)));
        let again = open(&mut sharers, 1, 1);
        assert!(sharers.has_another(one, &client(1)));
        sharers.take_back(&again);
        open(&mut sharers, 3, 1);
        assert!(sharers.has_another(one, &client(1)));
    }

    #[test]
    fn a_checkpoint_stays_until_it_has_ended() {
        let mut sharers = Sharers::default();
        let one = open(&mut sharers, 1, 1).share;
        assert!(sharers.be_alone(one, ExclusiveUse::HasCheckpoint));
        assert!(sharers.has_checkpoint(Owner(1)) && !sharers.has_checkpoint(Owner(2)));
        let who = Newcomer { session: Owner(2), client: &client(1), comes_again: false };
        sharers.take_over(who);
        assert_eq!(sharers.alone(), Some(ExclusiveUse::HasCheckpoint), "it is not rolled back yet");
        assert!(!sharers.has_checkpoint(Owner(2)), "the new session may open the file again");
        sharers.end_checkpoint();
        assert_eq!(sharers.alone(), None);
    }

    #[test]
    fn a_checkpoint_needs_a_writer_that_is_alone() {
        let mut sharers = Sharers::default();
        let one = open(&mut sharers, 1, 1).share;
        assert!(sharers.be_alone(one, ExclusiveUse::HasCheckpoint));
        assert_eq!(sharers.alone(), Some(ExclusiveUse::HasCheckpoint));
        sharers.end_checkpoint();
        open(&mut sharers, 1, 1);
        assert!(!sharers.be_alone(one, ExclusiveUse::HasCheckpoint), "it has another handle");
        assert!(close(&mut sharers, one));
        let other = open(&mut sharers, 2, 2).share;
        assert!(!sharers.be_alone(one, ExclusiveUse::HasCheckpoint) && sharers.alone().is_none());
        assert!(close(&mut sharers, other));
        assert!(sharers.be_alone(one, ExclusiveUse::Appends) && sharers.be_alone(one, ExclusiveUse::HasCheckpoint));
        sharers.end_checkpoint();
        assert_eq!(sharers.alone(), Some(ExclusiveUse::Appends));
    }
}
