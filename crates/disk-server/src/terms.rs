//! The terms of a disk server's machines, and planted bugs.

use cluster::LeaseTerms;
use cluster::server::PartTerms;

/// The terms of a disk server. The default is what every real one has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskTerms {
    /// The terms of leases until the manager sends its own.
    pub leases: LeaseTerms,
    /// The terms of each store.
    pub part: PartTerms,
    /// A planted bug.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<Planted>,
}

/// Bugs on purpose, which the simulator has to find.
#[cfg(any(test, feature = "planted"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The server confirms a copy, whatever its disk has.
    CopyNotMade,
    /// The server says that an object is complete before the journal is synced.
    CompleteBeforeSync,
    /// Connections with other disk servers outlive the session, so messages of the previous session arrive in the next.
    OldSessionHeard,
    /// A job does not wait for its turn on a replica: of two changes, the second is applied first.
    TurnSkipped,
}
