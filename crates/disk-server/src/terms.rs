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
    /// The server says that it has made a copy, whatever its disk has.
    CopyNotMade,
    /// The server says that a content is complete before the log is synced.
    CompleteBeforeSync,
    /// Connections with other disk servers outlive the session, so that messages of the session before arrive in the next.
    OldSessionHeard,
    /// A job does not wait for its turn on a replica: of two changes, the second is made first.
    TurnSkipped,
}
