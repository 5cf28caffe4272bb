//! How readers know entries without the database while another process commits: that process tells what it has committed.
//!
//! A reader first has the other process asked, once for all readers that wait for it. What that process had acknowledged when it was asked, and with that
//! all that it had acknowledged when the reader came, is in the cache then. So readers need its lease no less than its own readers do: it answers only
//! under that. If it does not answer, they read in the database.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::cache::{Cache, RecentChanges, Seen};
use crate::session::Acknowledged;

/// Asks the process that commits what has changed since a fence and a batch. `None`: it does not answer, or has no lease.
pub type AskChanges = Box<dyn Fn(i64, i64) -> Option<RecentChanges> + Send + Sync>;

/// How often a reader asks for a batch that is in the database already.
const AGAIN: Duration = Duration::from_micros(200);

/// See the module.
#[derive(Default)]
pub(crate) struct Following {
    ask: RwLock<Option<AskChanges>>,
    rounds: Mutex<Rounds>,
    ended: Condvar,
}

/// The questions to the process that commits. One is asked at a time.
#[derive(Default)]
struct Rounds {
    begun: u64,
    ended: u64,
    /// The last one that was answered.
    answered: u64,
}

impl Following {
    /// Sets how the process that commits is asked.
    pub(crate) fn ask_with(&self, ask: AskChanges) {
        *self.ask.write() = Some(ask);
    }

    /// Waits until everything that was acknowledged before this call is in `cache`. Returns whether it is; otherwise the process that commits does not answer.
    pub(crate) fn refresh(&self, cache: &Cache, acknowledged: &Acknowledged) -> bool {
        let ask = self.ask.read();
        let Some(ask) = &*ask else { return false };
        let mut rounds = self.rounds.lock();
        // A question that was asked before this call does not count.
        let own = rounds.begun + 1;
        while rounds.ended < own {
            if rounds.begun > rounds.ended {
                self.ended.wait(&mut rounds);
                continue;
            }
            rounds.begun += 1;
            let mut round = Round { following: self, number: rounds.begun, is_answered: false };
            drop(rounds);
            round.is_answered = one_round(ask, cache, acknowledged);
            drop(round);
            rounds = self.rounds.lock();
        }
        rounds.answered >= own
    }

    /// Waits until `batch`, which a reader sees in the database, is acknowledged and in `cache`, but at most for `patience`. Returns whether it is.
    pub(crate) fn wait_for(
        &self,
        at: Seen,
        (cache, acknowledged): (&Cache, &Acknowledged),
        patience: Duration,
    ) -> bool {
        let until = Instant::now() + patience;
        loop {
            let known = cache.at();
            if known.fence != at.fence || known.batch >= at.batch {
                return known.fence == at.fence;
            }
            if !self.refresh(cache, acknowledged) || Instant::now() >= until {
                return false;
            }
            if cache.at().batch < at.batch {
                std::thread::sleep(AGAIN);
            }
        }
    }
}

/// A question. It ends when this is dropped, also by a panic: others wait for it.
struct Round<'a> {
    following: &'a Following,
    number: u64,
    is_answered: bool,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut rounds = self.following.rounds.lock();
        rounds.ended = self.number;
        if self.is_answered {
            rounds.answered = self.number;
        }
        self.following.ended.notify_all();
    }
}

fn one_round(ask: &AskChanges, cache: &Cache, acknowledged: &Acknowledged) -> bool {
    let since = cache.at();
    let Some(changes) = ask(since.fence, since.batch) else { return false };
    let at = Seen { batch: changes.batch, fence: changes.fence };
    // No server is read from that lacks some of it.
    acknowledged.note(at);
    cache.follow(since, changes)
}
