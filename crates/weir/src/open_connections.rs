//! How many connections of administrators and of people a manager has at a time, and whose they are: a revocation or a reload ends them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::Person;
use link::AuthoritySet;
use link::admin::{AdminId, StreamCutter};
use parking_lot::Mutex;

/// Simultaneous connections of administrators with certificates; a further one is told to try again.
pub(crate) const WITH_CERTIFICATE_MAX: usize = 16;
/// Those of one administrator.
pub(crate) const OF_ONE_MAX: usize = 8;
/// The same for people to whom the settings give a role. A group of viewers may be large, and takes nobody's place who has a certificate.
pub(crate) const WITH_ROLE_MAX: usize = 16;
/// Those of one person with a role.
pub(crate) const OF_ONE_WITH_ROLE_MAX: usize = 4;
/// The same for people without a role, who may own trees.
pub(crate) const WITHOUT_ROLE_MAX: usize = 8;
/// Those of one person without a role.
pub(crate) const OF_ONE_WITHOUT_ROLE_MAX: usize = 2;

/// The connections that are open.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections(pub(crate) Mutex<(u64, Vec<OpenConnection>)>);

/// Whose connection it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// An administrator with a certificate.
    Administrator(AdminId),
    /// A principal, and whether it has a role.
    Person(String, bool),
}

impl Holder {
    pub(crate) fn of(person: &Person) -> Self {
        Self::Person(person.who.name.to_string(), person.role.is_ok())
    }

    /// The most connections of all who are alike, and of this one.
    fn places(&self) -> (usize, usize) {
        match self {
            Self::Administrator(_) => (WITH_CERTIFICATE_MAX, OF_ONE_MAX),
            Self::Person(_, true) => (WITH_ROLE_MAX, OF_ONE_WITH_ROLE_MAX),
            Self::Person(_, false) => (WITHOUT_ROLE_MAX, OF_ONE_WITHOUT_ROLE_MAX),
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Administrator(_), Self::Administrator(_)) => true,
            (Self::Person(_, ours), Self::Person(_, theirs)) => ours == theirs,
            _ => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct OpenConnection {
    number: u64,
    holder: Holder,
    pub(crate) cutter: StreamCutter,
}

impl OpenConnections {
    /// Counts a connection until the guard is dropped; `None` if there is no room for it.
    pub(crate) fn enter(self: &Arc<Self>, holder: Holder, cutter: StreamCutter) -> Option<ConnectionGuard> {
        let mut open = self.0.lock();
        let (counted, connections) = &mut *open;
        let of_one = connections.iter().filter(|one| one.holder == holder).count();
        let alike = connections.iter().filter(|one| one.holder.is_like(&holder)).count();
        let (alike_max, of_one_max) = holder.places();
        if alike >= alike_max || of_one >= of_one_max {
            return None;
        }
        *counted += 1;
        connections.push(OpenConnection { number: *counted, holder, cutter });
        Some(ConnectionGuard { open: Arc::clone(self), number: *counted })
    }

    /// Ends the connections of these administrators.
    pub(crate) fn cut(&self, ids: &[AdminId]) {
        let is_of = |one: &&OpenConnection| matches!(&one.holder, Holder::Administrator(id) if ids.contains(id));
        self.0.lock().1.iter().filter(is_of).for_each(|one| one.cutter.cut());
    }

    /// Ends the connections of administrators that were opened with certificates of an authority that is not one of `trusted`, except that from the
    /// address `spared`.
    pub(crate) fn cut_strangers(&self, trusted: &AuthoritySet, spared: Option<SocketAddr>) {
        let is_stranger =
            |one: &&OpenConnection| !one.cutter.is_trusted_by(trusted) && Some(one.cutter.address()) != spared;
        self.0.lock().1.iter().filter(is_stranger).for_each(|one| one.cutter.cut());
    }

    /// Ends the connections of all people with tokens and certificates of the grid. Whoever may still act can ask again.
    pub(crate) fn cut_people(&self) {
        let is_person = |one: &&OpenConnection| matches!(one.holder, Holder::Person(..));
        self.0.lock().1.iter().filter(is_person).for_each(|one| one.cutter.cut());
    }

    /// Ends all connections, and waits until nobody answers a request any more, but not longer than `patience`.
    pub(crate) fn end_all(&self, patience: Duration) {
        self.0.lock().1.iter().for_each(|one| one.cutter.cut());
        let began = Instant::now();
        while !self.0.lock().1.is_empty() && began.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub(crate) struct ConnectionGuard {
    open: Arc<OpenConnections>,
    number: u64,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.open.0.lock().1.retain(|one| one.number != self.number);
    }
}
