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
    pub planted: Option<PlantedBug>,
}

/// Bugs on purpose, which the simulator has to find.
#[cfg(any(test, feature = "planted"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// The server confirms a copy, whatever its disk has.
    CopyNotMade,
    /// The server says that an object is complete before the journal is synced.
    CompleteBeforeSync,
    /// Connections with other disk servers outlive the session, so messages of the previous session arrive in the next.
    OldSessionHeard,
    /// A job does not wait for its turn on a replica: of two changes, the second is applied first.
    TurnSkipped,
    /// Who has a damaged replica open reads the unfinished copy that replaces it.
    CopyShown,
}

#[cfg(test)]
mod tests {
    use cluster::CopyRate;
    use cluster::server::PartTerms;
    use link::Settings;

    /// A connection drops a message for which its queue has no room. With parts of 4 MiB, the third of three copies between two servers
    /// waited in vain until it failed.
    #[test]
    fn the_parts_of_all_copies_fit_into_half_of_one_connections_queue() {
        let copies = CopyRate::default().at_once as u64;
        let parts = copies * u64::from(PartTerms::default().fetch);
        let queue = Settings::default().one_way_bytes_max;
        assert!(parts <= queue / 2, "{copies} copies need {parts} bytes of a queue of {queue}");
    }
}
