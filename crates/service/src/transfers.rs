//! Turns for moving data: so many pieces (of up to a few MiB) are moved between clients and the disk at a time, and who is next is
//! decided fairly when more want to ([`crate::fair`]).
//!
//! A turn is held while the server works (disk, checksums, copies to and from sockets that are ready), never while it waits for a
//! client: who is slow keeps nobody else from moving. While nobody has to wait a turn costs two atomic operations.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Instant;

use parking_lot::Mutex;
use types::PrincipalId;

use crate::config::SMALL_TRANSFER_BYTES;
use crate::fair::{Class, Fair, Piece};

/// Whose data it is: the principal, the name that the client goes by, and its machine.
pub type UserKey = (PrincipalId, String, IpAddr);

/// Who shares transfer slots with others.
pub trait Sharer {
    /// Who it is, as far as sharing goes. Asked only if others are in the way.
    fn key(&self) -> UserKey;
}

/// The place of the waiting in [`Transfers::state`]; the running are below.
const ONE_WAITS: u64 = 1 << 32;

/// The turns of a node.
pub struct Transfers {
    /// How many are running (the low half) and waiting (the high half). The waiting change under the lock only.
    state: AtomicU64,
    most: AtomicUsize,
    line: Mutex<Fair<UserKey, u64, Arc<Ticket>>>,
}

/// Somebody who waits.
struct Ticket {
    thread: Thread,
    verified: AtomicBool,
}

fn running(state: u64) -> usize {
    usize::try_from(state & (ONE_WAITS - 1)).unwrap_or(usize::MAX)
}

fn waiting(state: u64) -> usize {
    usize::try_from(state / ONE_WAITS).unwrap_or(usize::MAX)
}

impl Transfers {
    /// `most` at a time, at least one.
    pub fn new(most: usize) -> Self {
        Self { state: AtomicU64::new(0), most: AtomicUsize::new(most.max(1)), line: Mutex::new(Fair::new()) }
    }

    /// How many are running and waiting now, and how many may run.
    pub fn counts(&self) -> (usize, usize, usize) {
        let state = self.state.load(Ordering::Relaxed);
        (running(state), waiting(state), self.most.load(Ordering::Relaxed))
    }

    /// From now on `most` at a time.
    pub fn set_most(&self, most: usize) {
        let mut line = self.line.lock();
        self.most.store(most.max(1), Ordering::Relaxed);
        self.grant(&mut line);
    }

    /// Turns of `session` for the connection number `connection`, to move `total` bytes; none is taken yet. Who moves little goes
    /// at once: turns would cost it more than they are worth, and the disk does best with many small reads at a time.
    pub fn of<'a>(&'a self, session: &'a dyn Sharer, connection: u64, class: Class, total: usize) -> TransferSlot<'a> {
        self.turns(SlotOwner::Session(session), connection, class, total)
    }

    /// The same for what is done for `user` without a connection of its own; `number` tells it from others.
    pub(crate) fn of_user(&self, user: UserKey, number: u64, class: Class, total: usize) -> TransferSlot<'_> {
        self.turns(SlotOwner::User(user), number, class, total)
    }

    fn turns<'a>(&'a self, whose: SlotOwner<'a>, connection: u64, class: Class, total: usize) -> TransferSlot<'a> {
        let exempt = total <= SMALL_TRANSFER_BYTES;
        TransferSlot { transfers: self, whose, connection, class, exempt, held: false, moved: 0, from_line: None }
    }

    /// Takes one if nobody waits and there is one.
    fn try_take(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        self.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                (waiting(state) == 0 && running(state) < most).then(|| state + 1)
            })
            .is_ok()
    }

    /// Waits for one in the line.
    fn take(&self, user: &UserKey, piece: Piece<u64>) {
        let ticket = Arc::new(Ticket { thread: std::thread::current(), verified: AtomicBool::new(false) });
        let mut line = self.line.lock();
        line.ask(user, piece, Arc::clone(&ticket));
        self.state.fetch_add(ONE_WAITS, Ordering::AcqRel);
        self.grant(&mut line);
        drop(line);
        while !ticket.verified.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Gives one back that was taken by [`Transfers::try_take`], or by a user in the line (then as [`Fair::end`] wants it).
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

    /// Lets those go on whose turn it is.
    fn grant(&self, line: &mut Fair<UserKey, u64, Arc<Ticket>>) {
        let most = self.most.load(Ordering::Relaxed);
        let mut state = self.state.load(Ordering::Acquire);
        while waiting(state) > 0 && running(state) < most {
            let Some(ticket) = line.next(Instant::now()) else { return };
            // Nobody else takes one while somebody waits.
            state = self.state.fetch_sub(ONE_WAITS - 1, Ordering::AcqRel) - (ONE_WAITS - 1);
            ticket.verified.store(true, Ordering::Release);
            ticket.thread.unpark();
        }
    }
}

/// A connection's turns, one after the other; the last one ends when this is dropped.
pub struct TransferSlot<'a> {
    transfers: &'a Transfers,
    whose: SlotOwner<'a>,
    connection: u64,
    class: Class,
    exempt: bool,
    held: bool,
    /// Bytes in this turn.
    moved: u64,
    /// Whose it is in the line, and what it was asked for there, if it was.
    from_line: Option<(UserKey, Piece<u64>)>,
}

/// For whom data is moved.
enum SlotOwner<'a> {
    Session(&'a dyn Sharer),
    User(UserKey),
}

impl TransferSlot<'_> {
    /// Waits for a turn, unless this is one already; whether it had to wait. `bytes` says how much is going to be moved; it is asked
    /// only if others are in the way.
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

    /// So many bytes came in it: who takes more than it has asked for is next so much later.
    pub fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// Between two pieces: if others wait, the turn is over.
    pub fn let_others(&mut self) {
        if self.held && waiting(self.transfers.state.load(Ordering::Relaxed)) > 0 {
            self.end();
        }
    }

    /// The turn is over, or pauses: something else is waited for now.
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
        (PrincipalId(0), name.into(), IpAddr::from([127, 0, 0, 1]))
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
    fn no_more_run_than_may_and_all_come_to_their_turn() {
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
    fn nobody_passes_those_who_wait_and_more_turns_let_them_go() {
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
