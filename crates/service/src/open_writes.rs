//! All open writes and their owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use namespace::{WriterKind, WriterRecord};
use parking_lot::{Mutex, MutexGuard};
use types::{ClientIdentity, ErrorCode, NsPath, ObjectId};

use crate::caller::Caller;
use crate::error::Error;
use crate::lease::{Lease, WriteAccess};
use crate::names::Names;
use crate::sharers::{Closing, ExclusiveUse, Joined, Newcomer};
use crate::writers::{Owner, TakeUp, WriterPresence, Writers};

/// The open writes of a node.
pub(crate) struct OpenWrites {
    writers: Mutex<Writers<Arc<Lease>>>,
    /// A writer of an earlier boot may still return.
    old_boots: AtomicBool,
}

/// How an open for writing wants the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// Together with other clients of its principal, if they change a complete file in place.
    Shares,
    /// For itself: it appends.
    Appends,
    /// For itself: it truncates the file by its name, and nobody gets a handle.
    Truncates,
}

/// The file that an open for writing asks for.
pub(crate) struct Wanted<'a> {
    pub(crate) object: ObjectId,
    pub(crate) path: &'a NsPath,
    pub(crate) manner: Manner,
    /// The lease that the caller has found, which must still be the one of the object. `None`: whichever there is.
    pub(crate) of: Option<&'a Arc<Lease>>,
    /// The lease is for an earlier open write, which the namespace has ended.
    pub(crate) is_over: bool,
}

/// A lease that a session may use. Before it writes, [`Lease::hand_over`] must be called: it waits for the writes of shares that have ended.
pub(crate) struct Entered {
    pub(crate) lease: Arc<Lease>,
    /// The owner of the lease.
    pub(crate) key: Owner,
    pub(crate) joined: Joined,
}

/// How a close went on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// The open write is in the state `Closing`, and must be ended.
    Last,
    /// Others go on.
    Leaves,
    /// The handle has nothing open any more.
    Nothing,
}

impl OpenWrites {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { writers: Mutex::new(Writers::new(grace)), old_boots: AtomicBool::new(false) }
    }

    /// Locks the state machine of the writers. The caller must not block while it holds the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Writers<Arc<Lease>>> {
        self.writers.lock()
    }

    /// Whether a writer of an earlier boot may still return.
    pub(crate) fn has_old_boots(&self) -> bool {
        self.old_boots.load(Ordering::Relaxed)
    }

    pub(crate) fn set_old_boots(&self) {
        self.old_boots.store(true, Ordering::Relaxed);
    }

    /// The open writes of `caller` for `path` in the namespace. A writer of another principal never counts, even with
    /// the same client name.
    pub(crate) fn of_caller(
        &self,
        names: &Names,
        caller: &Caller,
        path: &NsPath,
    ) -> Result<Vec<WriterRecord>, namespace::NsError> {
        names.read(|read| namespace::find_writer(read, &caller.client, path))
    }

    /// Whether `caller` has an open write for `path`.
    pub(crate) fn writes(&self, names: &Names, caller: &Caller, path: &NsPath) -> bool {
        self.of_caller(names, caller, path).is_ok_and(|found| !found.is_empty())
    }

    /// The uploads of `caller` for `path` that wait for their writer to return.
    pub(crate) fn own_detached_uploads(&self, names: &Names, caller: &Caller, path: &NsPath) -> Vec<ObjectId> {
        let mut found = self.of_caller(names, caller, path).unwrap_or_default();
        let writers = self.lock();
        found.retain(|record| matches!(record.kind, WriterKind::Upload(_)) && writers.is_detached(record.object));
        found.into_iter().map(|record| record.object).collect()
    }
}

impl OpenWrites {
    /// A session opens an object for writing. `None`: nobody has it open, and nobody is expected.
    ///
    /// # Errors
    /// It must wait, or somebody has the file open and does not share it.
    pub(crate) fn enter(&self, who: Newcomer<'_>, wanted: &Wanted<'_>) -> Result<Option<Entered>, Error> {
        let mut writers = self.lock();
        let Wanted { object, path, manner, .. } = *wanted;
        let Some((lease, presence)) = writers.open_write(object) else { return Ok(None) };
        let wait = || Error::Wait { seconds: 1, text: format!("{path} is being opened or closed at this moment") };
        if wanted.of.is_some_and(|of| !Arc::ptr_eq(of, &lease)) {
            return Err(wait());
        }
        if lease.is_discarded() {
            return Err(Error::being_discarded(path));
        }
        let mut sharers = lease.sharers.lock();
        let joins = match (presence, writers.attached_to(object)) {
            (WriterPresence::Attached, Some(owner)) => {
                let can_be_shared = lease.can_be_shared() && !wanted.is_over;
                if !wanted.is_over && sharers.has_checkpoint(who.session) {
                    return Err(not_shared(&lease, Some(ExclusiveUse::HasCheckpoint), manner, path));
                }
                if can_be_shared && sharers.alone().is_none() && manner == Manner::Shares {
                    Some(owner)
                } else if can_be_shared && sharers.are_only(who.client) && sharers.has_session(who) {
                    // Another key would fence the handles that the session has.
                    sharers.end_others(who);
                    Some(owner)
                } else if !can_be_shared || sharers.are_only(who.client) {
                    // The namespace lets only the client of a new object come here. For a stripe unit that is any server.
                    None
                } else {
                    return Err(not_shared(&lease, sharers.alone(), manner, path));
                }
            }
            // Nobody is there, so nobody is fenced.
            (WriterPresence::Detached { .. }, _) => {
                sharers.lose_all();
                None
            }
            // It must wait. The close may not take place, and then its client goes on.
            _ => None,
        };
        let (key, joined) = match joins {
            Some(owner) => (owner, sharers.join(who)),
            None => {
                let is_back = presence != WriterPresence::Attached && lease.can_be_shared() && !wanted.is_over;
                match writers.take_up(object, who.session) {
                    TakeUp::Yours(_) if is_back => (who.session, sharers.join(who)),
                    TakeUp::Yours(_) => (who.session, sharers.take_over(who)),
                    TakeUp::Wait | TakeUp::Unknown => return Err(wait()),
                }
            }
        };
        if manner == Manner::Appends {
            sharers.be_alone(joined.share, ExclusiveUse::Appends);
        }
        drop(sharers);
        Ok(Some(Entered { lease, key, joined }))
    }

    /// Whether the session may still use what it has entered.
    pub(crate) fn is_in(&self, entered: &Entered) -> bool {
        let Entered { lease, key, joined } = entered;
        self.lock().is_attached(lease.object, *key) && lease.sharers.lock().has(joined.share)
    }

    /// Takes an open back whose client does not get a handle. If nobody else has the file open, it waits for its client.
    pub(crate) fn take_back(&self, entered: &Entered, now: Instant) {
        let mut writers = self.lock();
        if take_back(&writers, entered) {
            writers.detach(entered.lease.object, entered.key, false, now);
        }
    }

    /// The same for an open write that this server does not lead any more: nobody comes back to it here, so clients that were lost are forgotten.
    pub(crate) fn withdraw(&self, entered: &Entered) {
        let mut writers = self.lock();
        if take_back(&writers, entered) {
            writers.forget(entered.lease.object);
        }
    }

    /// A handle is closed, or its open write discarded.
    pub(crate) fn begin_close(&self, access: &WriteAccess) -> Ends {
        let mut writers = self.lock();
        let lease = &access.lease;
        if !is_of(&writers, lease) || !writers.is_attached(lease.object, access.key) {
            return Ends::Nothing;
        }
        let mut sharers = lease.sharers.lock();
        if !sharers.has(access.share) {
            return Ends::Nothing;
        }
        // One that appends may have other handles, too.
        if lease.can_be_shared() && sharers.begin_close(access.share) == Closing::Leaves {
            return Ends::Leaves;
        }
        if writers.begin_close(lease.object, access.key) { Ends::Last } else { Ends::Nothing }
    }

    /// The end of a close after which others could go on: [`Ends::Last`] if they have all closed meanwhile. `is_closed`: it has taken place.
    pub(crate) fn finish_close(&self, access: &WriteAccess, is_closed: bool, now: Instant) -> Ends {
        let mut writers = self.lock();
        let lease = &access.lease;
        let left = {
            let mut sharers = lease.sharers.lock();
            if is_closed { sharers.finish_close(access.share) } else { sharers.stay(access.share) }
        };
        if left.others || !is_of(&writers, lease) {
            return Ends::Leaves;
        }
        if left.is_clean {
            return if writers.begin_close(lease.object, access.key) { Ends::Last } else { Ends::Leaves };
        }
        writers.detach(lease.object, access.key, false, now);
        Ends::Leaves
    }

    /// A handle is gone without a close, with its session: all handles of its share are. If nobody else has the file open, it waits for its client.
    /// Returns the client if it may come back to a file that others write.
    pub(crate) fn lose(&self, access: &WriteAccess, waits: bool, now: Instant) -> Option<ClientIdentity> {
        let mut writers = self.lock();
        let lease = &access.lease;
        if !is_of(&writers, lease) || !writers.is_attached(lease.object, access.key) {
            return None;
        }
        let (lost, is_there) = {
            let mut sharers = lease.sharers.lock();
            if !sharers.has(access.share) {
                return None;
            }
            let lost = sharers.lose(access.share);
            (lost, sharers.are_there())
        };
        match (is_there, waits) {
            (true, _) => {}
            (false, true) => writers.detach(lease.object, access.key, false, now),
            (false, false) => writers.detach_for_good(lease.object, access.key, now),
        }
        lost
    }
}

/// The session is gone, and has left its handles behind.
pub(crate) fn lose_session(writers: &mut Writers<Arc<Lease>>, object: ObjectId, session: Owner, now: Instant) {
    let (Some(lease), Some(key)) = (writers.lease(object), writers.attached_to(object)) else { return };
    let is_there = {
        let mut sharers = lease.sharers.lock();
        let lost: Vec<_> = sharers.sessions().filter(|(other, _)| *other == session).map(|(_, share)| share).collect();
        lost.into_iter().for_each(|share| drop(sharers.lose(share)));
        sharers.are_there()
    };
    if !is_there {
        writers.detach(object, key, false, now);
    }
}

/// Takes an open back. Returns whether nobody has the file open now.
fn take_back(writers: &Writers<Arc<Lease>>, Entered { lease, joined, .. }: &Entered) -> bool {
    let mut sharers = lease.sharers.lock();
    sharers.take_back(joined);
    !sharers.are_there() && is_of(writers, lease)
}

fn is_of(writers: &Writers<Arc<Lease>>, lease: &Arc<Lease>) -> bool {
    writers.lease(lease.object).is_some_and(|other| Arc::ptr_eq(&other, lease))
}

/// Why an open for writing may not have the file together with those who have it open.
fn not_shared(lease: &Lease, alone: Option<ExclusiveUse>, manner: Manner, path: &NsPath) -> Error {
    let who = &lease.caller;
    let text = match (alone, manner) {
        (Some(ExclusiveUse::Appends), _) => {
            format!("Cannot open {path} for update: {who} is appending to it; wait until it has closed the file")
        }
        (Some(ExclusiveUse::HasCheckpoint), _) => format!(
            "Cannot open {path} for update: {who} has an open checkpoint on it; wait until it has closed the file"
        ),
        (None, Manner::Appends) => format!(
            "Cannot open {path} to append: others have it open for writing; wait until they have closed it, or open it for update"
        ),
        (None, Manner::Truncates) => {
            format!(
                "Cannot truncate {path}: it is open for writing; truncate the open file, or wait until it is closed"
            )
        }
        (None, Manner::Shares) => {
            format!("Cannot open {path} for update: {who} is writing it, and only complete files have several writers")
        }
    };
    Error::new(ErrorCode::Busy, text)
}

#[cfg(test)]
mod tests {
    use namespace::WriterToken;
    use types::{BootId, Ino, Timestamp, WriterKey};

    use super::*;
    use crate::caller::Principal;
    use crate::lease::{LeaseFacts, LeaseState};

    const OBJECT: ObjectId = ObjectId(7);

    fn path() -> NsPath {
        NsPath::parse(b"/a").unwrap()
    }

    fn client(pid: u32) -> ClientIdentity {
        ClientIdentity { user: "ana".into(), pid, host: "h".into(), ..ClientIdentity::default() }
    }

    /// A complete file that this session of client 1 has opened for update.
    fn opened(session: u64) -> (OpenWrites, WriteAccess) {
        let writes = OpenWrites::new(Duration::from_secs(60));
        let caller = Caller::new(&Principal::admin(), ([127, 0, 0, 1], 1).into(), "root");
        let facts = LeaseFacts {
            path: path(),
            caller: Arc::new(caller.with_client(client(1))),
            fresh: false,
            begun: true,
            expected_len: None,
            boot: BootId(1),
            opened: Timestamp(0),
            room: None,
            may_reach: crate::growth::MayReach::any(),
        };
        let (key, token) = (Owner(session), WriterToken { key: WriterKey(1), object: OBJECT, epoch: 1 });
        let lease = Lease::new((Ino(2), OBJECT), facts, LeaseState { owner: Some(key), token, writer: None });
        let joined = lease.sharers.lock().join(Newcomer { session: key, client: &client(1), comes_again: false });
        writes.lock().attach(OBJECT, key, Arc::clone(&lease));
        (writes, WriteAccess::new((key, joined.share), lease, false))
    }

    fn enter(writes: &OpenWrites, session: u64, pid: u32, manner: Manner) -> Result<WriteAccess, Error> {
        let who = Newcomer { session: Owner(session), client: &client(pid), comes_again: false };
        let wanted = Wanted { object: OBJECT, path: &path(), manner, of: None, is_over: false };
        let Entered { lease, key, joined } = writes.enter(who, &wanted)?.unwrap();
        Ok(WriteAccess::new((key, joined.share), lease, false))
    }

    #[test]
    fn an_open_during_a_close_takes_nothing_from_the_client_that_closes() {
        let (writes, one) = opened(1);
        assert_eq!(writes.begin_close(&one), Ends::Last);
        assert!(matches!(enter(&writes, 2, 2, Manner::Shares), Err(Error::Wait { .. })));
        // The close is refused, so the file stays open.
        writes.lock().stays_open(OBJECT, one.key);
        assert!(one.lease.sharers.lock().has(one.share));
        assert_eq!(writes.begin_close(&one), Ends::Last);
    }

    #[test]
    fn a_session_that_has_joined_keeps_its_handles_when_it_appends() {
        let (writes, one) = opened(1);
        let joined = enter(&writes, 2, 2, Manner::Shares).unwrap();
        assert_eq!(writes.begin_close(&one), Ends::Leaves);
        assert_eq!(writes.finish_close(&one, true, Instant::now()), Ends::Leaves);
        let appends = enter(&writes, 2, 2, Manner::Appends).unwrap();
        assert_eq!((appends.key, appends.share), (joined.key, joined.share));
        assert!(enter(&writes, 3, 3, Manner::Shares).is_err(), "it appends");
        assert_eq!(writes.begin_close(&joined), Ends::Leaves);
        assert_eq!(writes.finish_close(&joined, true, Instant::now()), Ends::Leaves);
        assert_eq!(writes.begin_close(&appends), Ends::Last);
    }

    #[test]
    fn a_checkpoint_is_not_shared_with_another_handle_of_its_session() {
        let (writes, one) = opened(1);
        assert!(one.lease.sharers.lock().be_alone(one.share, ExclusiveUse::HasCheckpoint));
        for manner in [Manner::Shares, Manner::Appends] {
            assert!(enter(&writes, 1, 1, manner).is_err());
            assert!(enter(&writes, 2, 2, manner).is_err());
        }
        // In a new session its client takes the file over. Nobody else may come before the checkpoint is rolled back.
        let back = enter(&writes, 3, 1, Manner::Shares).unwrap();
        assert_eq!(back.key, Owner(3));
        assert!(enter(&writes, 2, 2, Manner::Shares).is_err());
        back.lease.sharers.lock().end_checkpoint();
        assert_eq!(enter(&writes, 2, 2, Manner::Shares).unwrap().key, Owner(3));
    }
}
