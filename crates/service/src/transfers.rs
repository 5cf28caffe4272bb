//! Transfer slots: a limited number of blocks (up to a few MiB each) move between clients and the disk at a time.
//! When more want to move, [`crate::fair`] decides who is next.
//!
//! A transfer holds a slot while the server works: on disk access, checksums, and copies to and from ready sockets.
//! It never holds one while it waits for a client, so a slow client blocks nobody. As long as nobody waits, a slot
//! costs two atomic operations.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Instant;

use parking_lot::Mutex;
use types::PrincipalId;

use crate::config::SMALL_TRANSFER_BYTES;
use crate::fair::{Class, Fair, Piece};

/// The user of a transfer: the principal, and within it the client's user name and its machine.
pub type UserKey = (PrincipalId, (String, IpAddr));

/// A user of transfer slots.
pub trait Sharer {
    /// The user with whom slots are shared. Called only if others compete for the slots.
    fn key(&self) -> UserKey;
}

/// One waiting transfer in [`Transfers::state`]. The running ones are in the bits below.
const ONE_WAITS: u64 = 1 << 32;

/// The transfer slots of a node.
pub struct Transfers {
    /// The number of running (low half) and waiting (high half) transfers. The high half changes only under the lock.
    state: AtomicU64,
    most: AtomicUsize,
    line: Mutex<Line>,
}

/// Who waits for a slot: by principal, then by user and machine, then by connection.
type Line = Fair<PrincipalId, (String, IpAddr), u64, Arc<Ticket>>;

/// A waiting transfer.
struct Ticket {
    thread: Thread,
    granted: AtomicBool,
}

fn running(state: u64) -> usize {
    usize::try_from(state & (ONE_WAITS - 1)).unwrap_or(usize::MAX)
}

fn waiting(state: u64) -> usize {
    usize::try_from(state / ONE_WAITS).unwrap_or(usize::MAX)
}

impl Transfers {
    /// `most` slots, at least one.
    pub fn new(most: usize) -> Self {
        Self { state: AtomicU64::new(0), most: AtomicUsize::new(most.max(1)), line: Mutex::new(Fair::new()) }
    }

    /// The number of running transfers, of waiting transfers, and of slots.
    pub fn counts(&self) -> (usize, usize, usize) {
        let state = self.state.load(Ordering::Relaxed);
        (running(state), waiting(state), self.most.load(Ordering::Relaxed))
    }

    /// Sets the number of slots.
    pub fn set_most(&self, most: usize) {
        let mut line = self.line.lock();
        self.most.store(most.max(1), Ordering::Relaxed);
        self.grant(&mut line);
    }

    /// The slot of `session` for the connection number `connection`, to move `total` bytes. The slot is not yet
    /// taken. Small transfers need no slot: it would cost them more than it is worth, and the disk is fastest with
    /// many small reads at a time.
    pub fn of<'a>(&'a self, session: &'a dyn Sharer, connection: u64, class: Class, total: usize) -> TransferSlot<'a> {
        self.slot(SlotOwner::Session(session), connection, class, total)
    }

    /// The same for work for `user` that has no connection; `number` distinguishes it from others.
    pub(crate) fn of_user(&self, user: UserKey, number: u64, class: Class, total: usize) -> TransferSlot<'_> {
        self.slot(SlotOwner::User(user), number, class, total)
    }

    fn slot<'a>(&'a self, whose: SlotOwner<'a>, connection: u64, class: Class, total: usize) -> TransferSlot<'a> {
        let exempt = total <= SMALL_TRANSFER_BYTES;
        TransferSlot { transfers: self, whose, connection, class, exempt, held: false, moved: 0, from_line: None }
    }

    /// Takes a slot if one is free and nobody waits.
    fn try_take(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (waiting(state) == 0 && running(state) < most).then(|| state + 1)
            })
            .is_ok()
    }

    /// Waits in the queue for a slot.
    fn take(&self, user: &UserKey, piece: Piece<u64>) {
        let ticket = Arc::new(Ticket { thread: std::thread::current(), granted: AtomicBool::new(false) });
        let mut line = self.line.lock();
        line.ask(user, piece, Arc::clone(&ticket));
        self.state.fetch_add(ONE_WAITS, Ordering::AcqRel);
        self.grant(&mut line);
        drop(line);
        while !ticket.granted.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Returns a slot. `from_line` is set if it was granted from the queue; it is then passed to [`Fair::end`].
    fn give_back(&self, from_line: Option<(&UserKey, Piece<u64>)>) {
        let nobody_waits = from_line.is_none()
            && self
                .state
                .fetch_update(Ordering::Release, Ordering::Relaxed, |state| (waiting(state) == 0).then(|| state - 1))
                .is_ok();
        if nobody_waits {
            return;
        }
        let mut line = self.line.lock();
        if let Some((user, piece)) = from_line {
            line.end(user, piece, Instant::now());
        }
        self.state.fetch_sub(1, Ordering::Release);
        self.grant(&mut line);
    }

    /// Grants free slots to the next transfers in the queue.
    fn grant(&self, line: &mut Fair<PrincipalId, (String, IpAddr), u64, Arc<Ticket>>) {
        let most = self.most.load(Ordering::Relaxed);
        let mut state = self.state.load(Ordering::Acquire);
        while waiting(state) > 0 && running(state) < most {
            let Some(ticket) = line.next(Instant::now()) else { return };
            // Nobody else takes a slot while a transfer waits.
            state = self.state.fetch_sub(ONE_WAITS - 1, Ordering::AcqRel) - (ONE_WAITS - 1);
            ticket.granted.store(true, Ordering::Release);
            ticket.thread.unpark();
        }
    }
}

/// The slot of a connection. It may be taken and returned several times, and is returned when dropped.
pub struct TransferSlot<'a> {
    transfers: &'a Transfers,
    whose: SlotOwner<'a>,
    connection: u64,
    class: Class,
    exempt: bool,
    held: bool,
    /// Bytes moved since the slot was taken.
    moved: u64,
    /// The user and the requested block, if the slot was granted from the queue.
    from_line: Option<(UserKey, Piece<u64>)>,
}

/// The user for whom data moves.
enum SlotOwner<'a> {
    Session(&'a dyn Sharer),
    User(UserKey),
}

impl TransferSlot<'_> {
    /// Waits for the slot, unless it is already held. Returns whether it had to wait. `bytes` gives the length of the
    /// next block; it is called only if others compete for the slots.
    pub fn take(&mut self, bytes: impl FnOnce() -> u64) -> bool {
        if self.held || self.exempt {
            return false;
        }
        self.held = true;
        if self.transfers.try_take() {
            return false;
        }
        let user = match &self.whose {
            SlotOwner::Session(session) => session.key(),
            SlotOwner::User(user) => user.clone(),
        };
        let piece = Piece { connection: self.connection, class: self.class, bytes: bytes() };
        self.transfers.take(&user, piece);
        self.from_line = Some((user, piece));
        true
    }

    /// Counts bytes that were moved. A user that moves more than it requested waits correspondingly longer next time.
    pub fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Between two blocks: returns the slot if others wait.
    pub fn let_others(&mut self) {
        if self.held && waiting(self.transfers.state.load(Ordering::Relaxed)) > 0 {
            self.end();
        }
    }

    /// Returns the slot, at the end or before waiting for something else.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.held) {
            let moved = std::mem::take(&mut self.moved);
            let from_line = self.from_line.take();
            let from_line = from_line.as_ref().map(|(user, asked)| {
                let more = moved.saturating_sub(asked.bytes);
                (user, Piece { bytes: more, ..*asked })
            });
            self.transfers.give_back(from_line);
        }
    }
}

impl Drop for TransferSlot<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn user(name: &str) -> UserKey {
        (PrincipalId(0), (name.into(), IpAddr::from([127, 0, 0, 1])))
    }

    fn piece(connection: u64) -> Piece<u64> {
        Piece { connection, class: Class::Record, bytes: 0 }
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < end, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_number_of_slots_is_never_exceeded_and_everybody_gets_one() {
        let transfers = Transfers::new(3);
        let most = AtomicUsize::new(0);
        let now = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..16u64 {
                let (transfers, most, now) = (&transfers, &most, &now);
                scope.spawn(move || {
                    let name = user(if number < 12 { "crowd" } else { "few" });
                    for _ in 0..2000 {
                        let at_once = transfers.try_take();
                        if !at_once {
                            transfers.take(&name, piece(number));
                        }
                        let running = now.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(running, Ordering::SeqCst);
                        std::hint::spin_loop();
                        now.fetch_sub(1, Ordering::SeqCst);
                        transfers.give_back((!at_once).then_some((&name, piece(number))));
                    }
                });
            }
        });
        assert_eq!(transfers.counts(), (0, 0, 3));
        assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
    }

    #[test]
    fn nobody_overtakes_the_queue_and_additional_slots_are_granted_to_it() {
        let transfers = Transfers::new(1);
        assert!(transfers.try_take());
        std::thread::scope(|scope| {
            for number in 0..2 {
                let transfers = &transfers;
                scope.spawn(move || transfers.take(&user("x"), piece(number)));
            }
            until("two wait", || transfers.counts() == (1, 2, 1));
            transfers.set_most(2);
            until("one of them goes", || transfers.counts() == (2, 1, 2));
            transfers.set_most(1);
            transfers.give_back(None);
            until("fewer may run", || transfers.counts() == (1, 1, 1));
            assert!(!transfers.try_take(), "it would pass who waits");
            transfers.give_back(Some((&user("x"), piece(0))));
            until("the last one goes", || transfers.counts() == (1, 0, 1));
        });
        transfers.give_back(Some((&user("x"), piece(1))));
        assert!(transfers.try_take());
    }
}
