//! What follows when a batch was not committed, as decisions without a connection and without a clock.

use std::time::Instant;

use crate::PostgresConfig;
use crate::own_place::LastBatch;

/// How often a batch is tried on a new connection at least, however long it takes.
const RETURNS_MIN: u32 = 3;
/// Collisions after which a batch is split.
const SPLIT_AFTER: u32 = 3;

/// The attempts at a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    /// When it was begun.
    pub(crate) began: Instant,
    /// How often it collided with others.
    pub(crate) collisions: u32,
    /// How often it was tried on a new connection.
    returns: u32,
}

/// What follows a collision with another transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collided {
    /// Its operations fail.
    GiveUp,
    /// It is tried again after a pause, in two parts.
    Split,
    /// It is tried again after a pause.
    Again,
}

/// How a connection broke at a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broke {
    /// Before the commit was sent, or the answer said that nothing was committed.
    BeforeCommit,
    /// Nobody knows whether it was committed.
    AtCommit,
}

/// What follows when the committer has connected again, or has given up to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Returned {
    /// The batch is tried again, if it may be ([`Attempts::may_try_again`]). If not, it fails with the error at which the connection broke.
    TryAgain,
    /// It was committed: its operations are answered.
    Committed,
    /// Nothing was committed, and it fails with the error of the attempt to connect.
    Fails,
    /// It may have been committed, and nobody could look.
    MaybeCommitted,
}

/// See [`Returned`]. `last`: what the row says of the batch; `None`: the committer could not connect.
pub(crate) fn after_return(broke: Broke, last: Option<LastBatch>) -> Returned {
    match (broke, last) {
        // Nothing was sent that could have been committed.
        (Broke::BeforeCommit, Some(_)) | (Broke::AtCommit, Some(LastBatch::NotCommitted)) => Returned::TryAgain,
        (Broke::AtCommit, Some(LastBatch::Committed)) => Returned::Committed,
        (Broke::BeforeCommit, None) => Returned::Fails,
        (Broke::AtCommit, None) => Returned::MaybeCommitted,
    }
}

impl Attempts {
    pub(crate) fn begin(now: Instant) -> Self {
        Self { began: now, collisions: 0, returns: 0 }
    }

    /// The batch has collided. `is_lock`: it waited for a lock that somebody holds, which is no collision between operations.
    pub(crate) fn collided(&mut self, now: Instant, is_lock: bool, config: &PostgresConfig) -> Collided {
        self.collisions += 1;
        if self.collisions >= config.retries_max || now.saturating_duration_since(self.began) >= config.patience {
            Collided::GiveUp
        } else if self.collisions >= SPLIT_AFTER && !is_lock {
            Collided::Split
        } else {
            Collided::Again
        }
    }

    /// The committer has connected again. Returns whether the batch may be tried at once: if each connection breaks at it, somebody must be told.
    pub(crate) fn returned(&mut self) -> bool {
        self.returns += 1;
        self.returns <= RETURNS_MIN
    }

    /// Whether it may be tried after a wait.
    pub(crate) fn may_try_again(&self, now: Instant, config: &PostgresConfig) -> bool {
        now.saturating_duration_since(self.began) < config.patience
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_batch_is_answered_by_what_its_row_says() {
        assert_eq!(after_return(Broke::AtCommit, Some(LastBatch::Committed)), Returned::Committed);
        assert_eq!(after_return(Broke::AtCommit, Some(LastBatch::NotCommitted)), Returned::TryAgain);
        assert_eq!(after_return(Broke::AtCommit, None), Returned::MaybeCommitted);
        assert_eq!(after_return(Broke::BeforeCommit, Some(LastBatch::NotCommitted)), Returned::TryAgain);
        assert_eq!(after_return(Broke::BeforeCommit, None), Returned::Fails);
    }

    #[test]
    fn attempts_are_bounded() {
        let config = PostgresConfig { retries_max: 5, ..PostgresConfig::default() };
        let start = Instant::now();
        let mut attempts = Attempts::begin(start);
        let mut next = |is_lock| attempts.collided(start, is_lock, &config);
        assert_eq!([next(false), next(false), next(true), next(false), next(false)], {
            use Collided::*;
            [Again, Again, Again, Split, GiveUp]
        });
        let mut late = Attempts::begin(start);
        assert_eq!(late.collided(start + config.patience, false, &config), Collided::GiveUp);
        let mut attempts = Attempts::begin(start);
        assert_eq!(
            [attempts.returned(), attempts.returned(), attempts.returned(), attempts.returned()],
            [true, true, true, false]
        );
        assert!(attempts.may_try_again(start + config.patience - Duration::from_nanos(1), &config));
        assert!(!attempts.may_try_again(start + config.patience, &config));
    }
}
