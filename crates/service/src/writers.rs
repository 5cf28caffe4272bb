//! Who is writing what, and what becomes of a file whose writer has gone: the decisions of design 7, without I/O.
//!
//! One entry for each object in the making. Its life:
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
//! The machine is handed the time. `L` is what the shell keeps with an entry (the store's writer, the fence); the
//! machine does not look into it. What becomes of a file at the end of its grace period is `namespace::at_grace_end`'s
//! to decide.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use types::ObjectId;

/// A session's number, unique for as long as the server runs. All handles of one session on a object are one writer:
/// XrdCl, recovering, often opens the same file twice on its new connection and writes through both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Owner(pub u64);

/// Where an entry stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// A client holds it open.
    Attached(Owner),
    /// The writer has gone; the grace period runs until then.
    Detached { until: Instant },
    /// Its close is being done.
    Closing(Owner),
    /// The grace period is over and the end is being made.
    Ending,
}

struct Entry<L> {
    standing: Standing,
    lease: L,
    /// A close failed, or bytes are known to be missing: the server does not complete it by itself.
    spoiled: bool,
}

/// The answer to a re-open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TakeUp<L> {
    /// It is the caller's now. The shell fences the old owner before it lets anybody write.
    Yours(L),
    /// Its close or end is being made at this moment: ask again.
    Wait,
    /// No such entry.
    Unknown,
}

/// What [`Writers::due`] asks the shell to end.
#[derive(Debug)]
pub(crate) struct Due<L> {
    pub(crate) object: ObjectId,
    pub(crate) lease: L,
    pub(crate) spoiled: bool,
}

/// All objects in the making.
pub(crate) struct Writers<L> {
    entries: HashMap<ObjectId, Entry<L>>,
    /// Bodies that are just being opened by asking others, which takes a while.
    opening: HashSet<ObjectId>,
    grace: Duration,
}

/// Whether a object can be opened by asking others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begin<L> {
    /// It is being closed or opened at this moment: ask again.
    Wait,
    /// The caller opens it, and says when that is over.
    Yes(Option<L>),
}

impl<L: Clone> Writers<L> {
    /// From now on writers are waited for so long; those who are waited for already keep their time.
    pub(crate) fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    pub(crate) fn new(grace: Duration) -> Self {
        Self { entries: HashMap::new(), opening: HashSet::new(), grace }
    }

    /// Bodies in the making.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A file in the making found at a start: its writer gets a full grace period from `now`.
    pub(crate) fn found(&mut self, object: ObjectId, lease: L, now: Instant) {
        let standing = Standing::Detached { until: now + self.grace };
        self.entries.insert(object, Entry { standing, lease, spoiled: false });
    }

    /// `key` holds `object` open for writing, for the first time.
    pub(crate) fn attach(&mut self, object: ObjectId, key: Owner, lease: L) {
        let spoiled = self.entries.get(&object).is_some_and(|entry| entry.spoiled);
        self.entries.insert(object, Entry { standing: Standing::Attached(key), lease, spoiled });
    }

    /// `key` asks to go on with `object`.
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

    /// Somebody is about to open `object`; whoever has it is named. Two would take it from each other, and one from a close that is under way would
    /// spoil that.
    pub(crate) fn begin_opening(&mut self, object: ObjectId) -> Begin<L> {
        let lease = match self.entries.get(&object) {
            Some(Entry { standing: Standing::Closing(_) | Standing::Ending, .. }) => return Begin::Wait,
            entry => entry.map(|entry| entry.lease.clone()),
        };
        if self.opening.insert(object) { Begin::Yes(lease) } else { Begin::Wait }
    }

    /// It is opened, or cannot be.
    pub(crate) fn end_opening(&mut self, object: ObjectId) {
        self.opening.remove(&object);
    }

    /// `key` closes: `false` if it is not the holder any more.
    pub(crate) fn begin_close(&mut self, object: ObjectId, key: Owner) -> bool {
        match self.entries.get_mut(&object) {
            Some(entry) if entry.standing == Standing::Attached(key) => {
                entry.standing = Standing::Closing(key);
                true
            }
            _ => false,
        }
    }

    /// The close, the taking up or the end could not be finished: it waits a grace period more.
    pub(crate) fn failed(&mut self, object: ObjectId, spoiled: bool, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.standing = Standing::Detached { until: now + self.grace };
            entry.spoiled |= spoiled;
        }
    }

    /// It is committed, interrupted or gone.
    pub(crate) fn forget(&mut self, object: ObjectId) {
        self.entries.remove(&object);
    }

    /// `key`'s connection has gone without a close. A handle that was fenced, or is closing, changes nothing.
    pub(crate) fn detach(&mut self, object: ObjectId, key: Owner, spoiled: bool, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&object)
            && entry.standing == Standing::Attached(key)
        {
            entry.standing = Standing::Detached { until: now + self.grace };
            entry.spoiled |= spoiled;
        }
    }

    /// The same, but nobody waits for the client here: it is due at once.
    pub(crate) fn detach_for_good(&mut self, object: ObjectId, key: Owner, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&object)
            && entry.standing == Standing::Attached(key)
        {
            entry.standing = Standing::Detached { until: now };
        }
    }

    /// At most `limit` entries whose grace period is over; they are in ending standing from here on.
    pub(crate) fn due(&mut self, now: Instant, limit: usize) -> Vec<Due<L>> {
        let mut due = Vec::new();
        for (object, entry) in &mut self.entries {
            if due.len() == limit {
                break;
            }
            if let Standing::Detached { until } = entry.standing
                && now >= until
            {
                entry.standing = Standing::Ending;
                due.push(Due { object: *object, lease: entry.lease.clone(), spoiled: entry.spoiled });
            }
        }
        due
    }

    /// Ends the grace period of `object` now, if it waits for its writer; it is in ending standing from here on.
    pub(crate) fn due_at_once(&mut self, object: ObjectId) -> Option<Due<L>> {
        let entry = self.entries.get_mut(&object)?;
        let Standing::Detached { .. } = entry.standing else { return None };
        entry.standing = Standing::Ending;
        Some(Due { object, lease: entry.lease.clone(), spoiled: entry.spoiled })
    }

    /// Whether `object` is being closed by `key` at this moment.
    pub(crate) fn is_closing(&self, object: ObjectId, key: Owner) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.standing == Standing::Closing(key))
    }

    /// Whether `key` holds `object` at this moment.
    pub(crate) fn is_attached(&self, object: ObjectId, key: Owner) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.standing == Standing::Attached(key))
    }

    /// Who holds `object` open, or is closing it.
    pub(crate) fn holder(&self, object: ObjectId) -> Option<Owner> {
        match self.entries.get(&object)?.standing {
            Standing::Attached(owner) | Standing::Closing(owner) => Some(owner),
            _ => None,
        }
    }

    /// Whether `object` waits for its writer to come back.
    pub(crate) fn is_detached(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| matches!(entry.standing, Standing::Detached { .. }))
    }

    /// What is attached, and to whom.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (ObjectId, Owner)> {
        self.entries.iter().filter_map(|(object, entry)| match entry.standing {
            Standing::Attached(owner) => Some((*object, owner)),
            _ => None,
        })
    }

    /// What the shell keeps with `object`.
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
    fn a_writer_that_comes_back_goes_on() {
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
    fn who_has_to_ask_others_opens_alone_and_not_into_a_close() {
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
    fn grace_ends_once_and_not_early() {
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
    fn who_is_not_waited_for_is_due_at_once_and_by_nobody_elses_word() {
        let (mut writers, now) = world();
        writers.detach_for_good(OBJECT, key(2), now);
        assert!(writers.due(now, 10).is_empty(), "it is another one's");
        writers.detach_for_good(OBJECT, key(1), now);
        assert_eq!(writers.due(now, 10).len(), 1);
    }

    #[test]
    fn a_restart_gives_everybody_a_full_grace_period() {
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
    fn a_close_that_failed_is_kept_and_never_completed_by_the_server() {
        let (mut writers, now) = world();
        assert!(writers.begin_close(OBJECT, key(1)));
        writers.detach(OBJECT, key(1), false, now);
        assert!(writers.due(now + GRACE, 1).is_empty(), "it is closing, not detached");
        writers.failed(OBJECT, true, now);
        let due = writers.due(now + GRACE, 1);
        assert!(due[0].spoiled);
    }
}
