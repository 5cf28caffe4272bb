//! How readers know entries without the database while another process commits: that process tells what it has committed.
//!
//! A reader first has the other process asked, once for all readers that wait for it. What that process had acknowledged when it was asked, and with that
//! all that it had acknowledged when the reader came, is in the cache then. So readers need its lease no less than its own readers do: it answers only
//! under that. If it does not answer, they read in the database.
//!
//! A reader of the database may see a change that is not acknowledged yet. Before anybody learns of that, the other process is told: from then on, it and
//! all who ask it read in the database, until the change is acknowledged. So nobody sees an earlier state after a later one.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::cache::{Cache, RecentChanges, Seen};
use crate::session::Acknowledged;

/// A question to the process that commits. Fences and batches are those of its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// What has changed since this fence and batch?
    pub since: (i64, i64),
    /// Readers have seen this fence and batch in the database.
    pub seen: (i64, i64),
}

/// The answer to a [`Question`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// What has changed.
    Changes(RecentChanges),
    /// Somebody has seen more in the database than is acknowledged. Until it is, readers read there.
    Later,
}

/// Asks the process that commits. `None`: it does not answer, or has no lease.
pub type AskChanges = Box<dyn Fn(Question) -> Option<Told> + Send + Sync>;

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
    /// The last one after which the cache had everything.
    current: u64,
    /// What readers have seen in the database.
    seen: Seen,
    /// What of that the other process knows.
    told: Seen,
}

impl Following {
    /// Sets how the process that commits is asked.
    pub(crate) fn ask_with(&self, ask: AskChanges) {
        *self.ask.write() = Some(ask);
    }

    /// Waits until everything that was acknowledged before this call is in `cache`. Returns whether it is; otherwise readers must read in the database.
    pub(crate) fn refresh(&self, cache: &Cache, acknowledged: &Acknowledged) -> bool {
        let own = self.round(cache, acknowledged);
        own.is_some_and(|own| self.rounds.lock().current >= own)
    }

    /// Has the process that commits told that a reader here sees `at` in the database, unless it knows that, or has acknowledged so much.
    pub(crate) fn tell(&self, at: Seen, cache: &Cache, acknowledged: &Acknowledged) {
        if cache.at() >= at {
            return;
        }
        {
            let mut rounds = self.rounds.lock();
            if rounds.told >= at {
                return;
            }
            rounds.seen = rounds.seen.max(at);
        }
        self.round(cache, acknowledged);
    }

    /// Asks the process that commits, or waits for a question of somebody else that begins after this call. Returns its number; `None`: nobody is asked.
    fn round(&self, cache: &Cache, acknowledged: &Acknowledged) -> Option<u64> {
        let ask = self.ask.read();
        let ask = ask.as_ref()?;
        let mut rounds = self.rounds.lock();
        // A question that was asked before this call does not count.
        let own = rounds.begun + 1;
        while rounds.ended < own {
            if rounds.begun > rounds.ended {
                self.ended.wait(&mut rounds);
                continue;
            }
            rounds.begun += 1;
            let mut round = Round { following: self, number: rounds.begun, seen: rounds.seen, told: None };
            drop(rounds);
            round.told = one_round(ask, round.seen, cache, acknowledged);
            drop(round);
            rounds = self.rounds.lock();
        }
        Some(own)
    }

    /// Waits until `batch`, which a reader sees in the database, is acknowledged and in `cache`, but at most for `patience`. Returns whether it is.
    pub(crate) fn wait_for(
        &self,
        at: Seen,
        (cache, acknowledged): (&Cache, &Acknowledged),
        patience: Duration,
    ) -> bool {
        let until = Instant::now() + patience;
        while cache.at() < at && Instant::now() < until {
            if !self.refresh(cache, acknowledged) {
                if self.rounds.lock().told < at {
                    return false;
                }
                std::thread::sleep(AGAIN);
            }
        }
        let known = cache.at();
        known >= at && known.fence == at.fence
    }
}

/// A question. It ends when this is dropped, also by a panic: others wait for it.
struct Round<'a> {
    following: &'a Following,
    number: u64,
    seen: Seen,
    /// Whether the cache has everything; `None` without an answer.
    told: Option<bool>,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut rounds = self.following.rounds.lock();
        rounds.ended = self.number;
        if let Some(is_current) = self.told {
            rounds.told = rounds.told.max(self.seen);
            if is_current {
                rounds.current = self.number;
            }
        }
        self.following.ended.notify_all();
    }
}

fn one_round(ask: &AskChanges, seen: Seen, cache: &Cache, acknowledged: &Acknowledged) -> Option<bool> {
    let since = cache.at();
    let pair = |at: Seen| (at.fence, at.batch);
    let Told::Changes(changes) = ask(Question { since: pair(since), seen: pair(seen) })? else { return Some(false) };
    // No server is read from that lacks some of it.
    acknowledged.note(Seen { batch: changes.batch, fence: changes.fence });
    Some(cache.follow(since, changes))
}
