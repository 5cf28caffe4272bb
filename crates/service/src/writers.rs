//! The state machine of open writes, without I/O: which session writes which object, and for how long the server waits
//! for a writer that has disconnected (design 7).
//!
//! Each object that is being written has one entry. Its states:
//!
//! ```text
//!            open                    connection lost              grace over
//! (nothing) ──────▶ attached ──────────────────────────▶ detached ──────────▶ ending ─▶ (nothing)
//!                   │  ▲ ▲                                  │
//!                   │  │ └───────── re-open: takes it up ───┘
//!             close │  └─ re-open from another session: fences the old handle
//!                   ▼
//!                 closing ─▶ (nothing), or detached again if the commit failed
//! ```
//!
//! Several clients may have a complete file open to change it in place. Then all of them have joined the session that took it last, and the object is
//! open until the last of them has gone (`sharers`, in the lease).
//!
//! The caller passes the time. `L` is the lease that the caller keeps with an entry; this module does not look into it.
//! `namespace::at_grace_end` decides what happens to a file at the end of its grace period.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use types::ObjectId;

/// The number of a session, unique while the server runs. All handles of one session on a new object count as one
/// writer. XrdCl often opens the same file twice on its new connection after an error, and writes through both
/// handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Owner(pub u64);

/// The state of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// A client has the file open.
    Attached(Owner),
    /// The writer has disconnected; the grace period runs until then.
    Detached { since: Instant, until: Instant },
    /// The file is being closed.
    Closing(Owner),
    /// The grace period is over, and the file is being completed or marked as interrupted.
    Ending,
}

/// Whether the writer of an object is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriterPresence {
    /// It has the file open.
    Attached,
    /// Its connection is gone. The server waits for it until then.
    Detached { since: Instant, until: Instant },
    /// The file is being closed or ended.
    Ending,
}

struct Entry<L> {
    standing: Standing,
    lease: L,
    /// A close failed, or bytes are known to be missing: the server does not complete the file by itself.
    spoiled: bool,
}

/// The answer to a reopen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TakeUp<L> {
    /// The file belongs to the caller now. The caller must fence the old owner before anybody writes.
    Yours(L),
    /// The file is being closed or ended; try again later.
    Wait,
    /// No such entry.
    Unknown,
}

/// An entry that the caller of [`Writers::due`] must end.
#[derive(Debug)]
pub(crate) struct Due<L> {
    pub(crate) object: ObjectId,
    pub(crate) lease: L,
    pub(crate) spoiled: bool,
}

/// All open writes.
pub(crate) struct Writers<L> {
    entries: HashMap<ObjectId, Entry<L>>,
    /// Objects that a session is opening with the help of other servers, which takes time.
    opening: HashSet<ObjectId>,
    grace: Duration,
}

/// Whether a session may open an object with the help of other servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begin<L> {
    /// The object is being closed or opened; try again later.
    Wait,
    /// The caller may open it, and must then call [`Writers::end_opening`].
    Yes(Option<L>),
}

impl<L: Clone> Writers<L> {
    /// Sets the grace period for writers that disconnect later.
    pub(crate) fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    pub(crate) fn new(grace: Duration) -> Self {
        Self { entries: HashMap::new(), opening: HashSet::new(), grace }
    }

    /// The state of an open write whose writer disconnects now.
    fn detached(&self, now: Instant) -> Standing {
        Standing::Detached { since: now, until: now + self.grace }
    }

    /// The number of open writes.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an open write found at a start. Its writer gets a full grace period from `now`.
    pub(crate) fn found(&mut self, object: ObjectId, lease: L, now: Instant) {
        let standing = self.detached(now);
        self.entries.insert(object, Entry { standing, lease, spoiled: false });
    }

    /// `key` opens `object` for writing, for the first time.
    pub(crate) fn attach(&mut self, object: ObjectId, key: Owner, lease: L) {
        let spoiled = self.entries.get(&object).is_some_and(|entry| entry.spoiled);
        self.entries.insert(object, Entry { standing: Standing::Attached(key), lease, spoiled });
    }

    /// `key` wants to continue to write `object`.
    pub(crate) fn take_up(&mut self, object: ObjectId, key: Owner) -> TakeUp<L> {
        let Some(entry) = self.entries.get_mut(&object) else { return TakeUp::Unknown };
        match entry.standing {
            Standing::Attached(_) | Standing::Detached { .. } => {
                entry.standing = Standing::Attached(key);
                TakeUp::Yours(entry.lease.clone())
            }
            Standing::Closing(_) | Standing::Ending => TakeUp::Wait,
        }
    }

    /// Begins to open `object`; returns its present lease. Only one session may do so at a time, and not during a
    /// close: each would take the stripe units from the other.
    pub(crate) fn begin_opening(&mut self, object: ObjectId) -> Begin<L> {
        let lease = match self.entries.get(&object) {
            Some(Entry { standing: Standing::Closing(_) | Standing::Ending, .. }) => return Begin::Wait,
            entry => entry.map(|entry| entry.lease.clone()),
        };
        if self.opening.insert(object) { Begin::Yes(lease) } else { Begin::Wait }
    }

    /// The open has ended or failed.
    pub(crate) fn end_opening(&mut self, object: ObjectId) {
        self.opening.remove(&object);
    }

    /// Whether a session is opening `object` at this moment.
    pub(crate) fn is_opening(&self, object: ObjectId) -> bool {
        self.opening.contains(&object)
    }

    /// Begins the close by `key`. `false`: `key` no longer has the file.
    pub(crate) fn begin_close(&mut self, object: ObjectId, key: Owner) -> bool {
        match self.entries.get_mut(&object) {
            Some(entry) if entry.standing == Standing::Attached(key) => {
                entry.standing = Standing::Closing(key);
                true
            }
            _ => false,
        }
    }

    /// The close by `key` does not take place: the file stays open for it.
    pub(crate) fn stays_open(&mut self, object: ObjectId, key: Owner) {
        if let Some(entry) = self.entries.get_mut(&object)
            && entry.standing == Standing::Closing(key)
        {
            entry.standing = Standing::Attached(key);
        }
    }

    /// A close, takeover or end has failed: the file waits for another grace period.
    pub(crate) fn failed(&mut self, object: ObjectId, spoiled: bool, now: Instant) {
        let standing = self.detached(now);
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.standing = standing;
            entry.spoiled |= spoiled;
        }
    }

    /// Removes an object that is committed, interrupted or deleted.
    pub(crate) fn forget(&mut self, object: ObjectId) {
        self.entries.remove(&object);
    }

    /// `key` has disconnected without a close. A handle that is fenced or closing changes nothing.
    pub(crate) fn detach(&mut self, object: ObjectId, key: Owner, spoiled: bool, now: Instant) {
        let standing = self.detached(now);
        if let Some(entry) = self.entries.get_mut(&object)
            && entry.standing == Standing::Attached(key)
        {
            entry.standing = standing;
            entry.spoiled |= spoiled;
        }
    }

    /// The same, but this server does not wait for the client: the entry is due at once.
    pub(crate) fn detach_for_good(&mut self, object: ObjectId, key: Owner, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&object)
            && entry.standing == Standing::Attached(key)
        {
            entry.standing = Standing::Detached { since: now, until: now };
        }
    }

    /// Returns at most `limit` entries whose grace period is over, and sets their state to [`Standing::Ending`].
    pub(crate) fn due(&mut self, now: Instant, limit: usize) -> Vec<Due<L>> {
        let mut due = Vec::new();
        for (object, entry) in &mut self.entries {
            if due.len() == limit {
                break;
            }
            if let Standing::Detached { until, .. } = entry.standing
                && now >= until
            {
                entry.standing = Standing::Ending;
                due.push(Due { object: *object, lease: entry.lease.clone(), spoiled: entry.spoiled });
            }
        }
        due
    }

    /// Ends the grace period of `object` now, if it waits for its writer. Its state becomes [`Standing::Ending`].
    pub(crate) fn due_at_once(&mut self, object: ObjectId) -> Option<Due<L>> {
        let entry = self.entries.get_mut(&object)?;
        let Standing::Detached { .. } = entry.standing else { return None };
        entry.standing = Standing::Ending;
        Some(Due { object, lease: entry.lease.clone(), spoiled: entry.spoiled })
    }

    /// Whether `key` is closing `object`.
    pub(crate) fn is_closing(&self, object: ObjectId, key: Owner) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.standing == Standing::Closing(key))
    }

    /// Whether `key` has `object` open.
    pub(crate) fn is_attached(&self, object: ObjectId, key: Owner) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.standing == Standing::Attached(key))
    }

    /// The session that has `object` open or is closing it.
    pub(crate) fn holder(&self, object: ObjectId) -> Option<Owner> {
        match self.entries.get(&object)?.standing {
            Standing::Attached(owner) | Standing::Closing(owner) => Some(owner),
            _ => None,
        }
    }

    /// The session that took `object` last, if clients have it open.
    pub(crate) fn attached_to(&self, object: ObjectId) -> Option<Owner> {
        match self.entries.get(&object)?.standing {
            Standing::Attached(owner) => Some(owner),
            _ => None,
        }
    }

    /// Whether `object` waits for its writer to return.
    pub(crate) fn is_detached(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| matches!(entry.standing, Standing::Detached { .. }))
    }

    /// The lease of `object`, and whether its writer is there. `None`: it has no open write here.
    pub(crate) fn open_write(&self, object: ObjectId) -> Option<(L, WriterPresence)> {
        let entry = self.entries.get(&object)?;
        let presence = match entry.standing {
            Standing::Attached(_) => WriterPresence::Attached,
            Standing::Detached { since, until } => WriterPresence::Detached { since, until },
            Standing::Closing(_) | Standing::Ending => WriterPresence::Ending,
        };
        Some((entry.lease.clone(), presence))
    }

    /// All objects that are open, with the sessions that took them last, and their leases.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (ObjectId, Owner, &L)> {
        self.entries.iter().filter_map(|(object, entry)| match entry.standing {
            Standing::Attached(owner) => Some((*object, owner, &entry.lease)),
            _ => None,
        })
    }

    /// All leases.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &L> {
        self.entries.values().map(|entry| &entry.lease)
    }

    /// The lease of `object`.
    pub(crate) fn lease(&self, object: ObjectId) -> Option<L> {
        self.entries.get(&object).map(|entry| entry.lease.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);
    const OBJECT: ObjectId = ObjectId(7);

    fn key(session: u64) -> Owner {
        Owner(session)
    }

    fn world() -> (Writers<u32>, Instant) {
        let mut writers = Writers::new(GRACE);
        writers.attach(OBJECT, key(1), 5);
        (writers, Instant::now())
    }

    #[test]
    fn a_writer_that_returns_continues() {
        let (mut writers, now) = world();
        writers.detach(OBJECT, key(1), false, now);
        assert_eq!(writers.take_up(OBJECT, key(2)), TakeUp::Yours(5));
        assert_eq!(writers.take_up(OBJECT, key(2)), TakeUp::Yours(5), "XrdCl asks twice");
        assert!(writers.due(now + GRACE * 2, 10).is_empty());
        assert!(writers.begin_close(OBJECT, key(2)));
        writers.forget(OBJECT);
        assert_eq!(writers.len(), 0);
    }

    #[test]
    fn only_one_session_opens_an_object_at_a_time_and_not_during_its_close() {
        let (mut writers, _) = world();
        assert_eq!(writers.begin_opening(OBJECT), Begin::Yes(Some(5)));
        assert_eq!(writers.begin_opening(OBJECT), Begin::Wait);
        writers.end_opening(OBJECT);
        assert_eq!(writers.begin_opening(ObjectId(99)), Begin::Yes(None));
        assert!(writers.begin_close(OBJECT, key(1)));
        assert_eq!(writers.begin_opening(OBJECT), Begin::Wait, "it would take the stripe units from the close");
    }

    #[test]
    fn a_reopen_fences_the_old_handle() {
        let (mut writers, now) = world();
        assert_eq!(writers.take_up(OBJECT, key(2)), TakeUp::Yours(5));
        assert!(writers.is_attached(OBJECT, key(2)) && !writers.is_attached(OBJECT, key(1)));
        assert!(!writers.begin_close(OBJECT, key(1)), "the old handle must not commit");
        writers.detach(OBJECT, key(1), false, now);
        assert!(writers.due(now + GRACE, 10).is_empty(), "the old connection's end must not detach the new handle");
        assert!(writers.begin_close(OBJECT, key(2)));
    }

    #[test]
    fn a_grace_period_ends_once_and_not_early() {
        let (mut writers, now) = world();
        writers.detach(OBJECT, key(1), true, now);
        assert!(writers.due(now + GRACE - Duration::from_millis(1), 10).is_empty());
        let due = writers.due(now + GRACE, 10);
        assert_eq!(due.iter().map(|d| (d.object, d.spoiled)).collect::<Vec<_>>(), [(OBJECT, true)]);
        assert!(writers.due(now + GRACE, 10).is_empty(), "each end is made once");
        assert_eq!(writers.take_up(OBJECT, key(2)), TakeUp::Wait);
        writers.failed(OBJECT, false, now + GRACE);
        assert!(writers.due(now + GRACE, 10).is_empty());
        assert_eq!(writers.due(now + GRACE * 2, 10).len(), 1);
    }

    #[test]
    fn detach_for_good_makes_only_its_own_writer_due_at_once() {
        let (mut writers, now) = world();
        writers.detach_for_good(OBJECT, key(2), now);
        assert!(writers.due(now, 10).is_empty(), "it is another one's");
        writers.detach_for_good(OBJECT, key(1), now);
        assert_eq!(writers.due(now, 10).len(), 1);
    }

    #[test]
    fn after_a_restart_every_writer_gets_a_full_grace_period() {
        let mut writers: Writers<u32> = Writers::new(GRACE);
        let now = Instant::now();
        writers.found(OBJECT, 1, now);
        writers.found(ObjectId(8), 2, now);
        assert!(writers.due(now + GRACE / 2, 10).is_empty());
        assert_eq!(writers.take_up(OBJECT, key(1)), TakeUp::Yours(1));
        assert_eq!(writers.due(now + GRACE, 1).len(), 1);
        assert_eq!(writers.due(now + GRACE, 1).len(), 0);
        assert_eq!(writers.take_up(ObjectId(9), key(1)), TakeUp::Unknown);
    }

    #[test]
    fn a_file_whose_close_failed_is_never_completed_by_the_server() {
        let (mut writers, now) = world();
        assert!(writers.begin_close(OBJECT, key(1)));
        writers.detach(OBJECT, key(1), false, now);
        assert!(writers.due(now + GRACE, 1).is_empty(), "it is closing, not detached");
        writers.failed(OBJECT, true, now);
        let due = writers.due(now + GRACE, 1);
        assert!(due[0].spoiled);
    }
}
