//! What a disk server goes by: the terms of its machines, and bugs on purpose.

use cluster::LeaseTerms;
use cluster::server::PartTerms;

/// What a disk server goes by. The default is what every real one has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskTerms {
    /// What leases are, until the manager says it.
    pub leases: LeaseTerms,
    /// Of each of its stores.
    pub part: PartTerms,
    /// A bug on purpose.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<Planted>,
}

/// Bugs on purpose, which the simulator has to find.
#[cfg(any(test, feature = "planted"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// A copy is said to be there, whatever the disk has.
    CopyNotMade,
    /// A content is said to be complete before the log is synced.
    CompleteBeforeSync,
    /// Connections with other disk servers outlive the session: what was sent in the session before is heard in the next.
    OldSessionHeard,
    /// Who does a piece's works does not wait for its turn: of two changes that are waiting the second is made first.
    TurnSkipped,
}
