//! All parts of the manager reach the namespace through this module. **No lock of the manager is held while the namespace is read or changed.** Debug
//! builds check that here, so every test of a manager also tests this rule.

use std::sync::Arc;

use namespace::{Actor, Durability, Namespace, NsError, Operation, Read};
use types::{ErrorCode, Incarnation, ObjectId, RequestNumber, SessionId, Timestamp};

use crate::tracked::assert_none_held;

/// The namespace, as the manager reads and changes it.
#[derive(Clone)]
pub(crate) struct Names(Arc<Namespace>);

impl Names {
    pub(crate) fn new(namespace: Arc<Namespace>) -> Self {
        Self(namespace)
    }

    /// The namespace, for callers outside the manager.
    pub(crate) fn namespace(&self) -> &Arc<Namespace> {
        &self.0
    }

    /// Reads a consistent view of committed state ([`Namespace::read_cached`]).
    pub(crate) fn read<T>(&self, reading: impl Fn(&dyn Read) -> Result<T, NsError>) -> Result<T, NsError> {
        assert_none_held("the namespace is read");
        self.0.read_cached(reading)
    }

    /// Like [`Names::read`], for what can be read only once ([`Namespace::read`]).
    pub(crate) fn read_once<T>(&self, reading: impl FnOnce(&dyn Read) -> Result<T, NsError>) -> Result<T, NsError> {
        assert_none_held("the namespace is read");
        self.0.read(reading)
    }

    /// Queues a change ([`Namespace::change`]).
    pub(crate) fn change<O: Operation + Send + 'static>(
        &self,
        (now, actor, number): (Timestamp, &Actor, Option<RequestNumber>),
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        // The queue is bounded, so this may wait, and `done` may be called at once.
        assert_none_held("the namespace is changed");
        self.0.change(durability, self.0.context(now, actor, number), op, done);
    }

    /// The same, for changes that free space ([`Namespace::change_urgent`]).
    pub(crate) fn change_urgently<O: Operation + Send + 'static>(
        &self,
        (now, actor): (Timestamp, &Actor),
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        assert_none_held("the namespace is changed");
        self.0.change_urgent(durability, self.0.context(now, actor, None), op, done);
    }

    /// Queues a change that the manager makes of its own accord.
    pub(crate) fn change_as_manager<O: Operation + Send + 'static>(
        &self,
        now: Timestamp,
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        self.change((now, &Actor::admin(), None), durability, op, done);
    }

    /// Makes a change and waits for it ([`Namespace::change_wait`]).
    pub(crate) fn change_wait<O: Operation + Send + 'static>(
        &self,
        (now, actor): (Timestamp, &Actor),
        durability: Durability,
        op: O,
    ) -> Result<O::Reply, NsError> {
        assert_none_held("the namespace is changed");
        self.0.change_wait(durability, self.0.context(now, actor, None), op)
    }

    /// See [`Namespace::is_older_than`].
    pub(crate) fn is_older_than(&self, object: ObjectId, passed_over: impl FnOnce() -> u64) -> bool {
        assert_none_held("numbers are taken from the namespace");
        self.0.is_older_than(object, passed_over)
    }

    /// Whether the namespace could have assigned this object number.
    pub(crate) fn is_plausible(&self, object: ObjectId) -> bool {
        self.0.ids().is_plausible(object)
    }

    /// The namespace's incarnation.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.0.incarnation()
    }

    /// This manager's session.
    pub(crate) fn session(&self) -> SessionId {
        self.0.session()
    }
}

/// The answer to a server's change. `None` if the outcome is unknown; the server asks again.
pub(crate) fn answer_to<T>(result: Result<T, NsError>) -> Option<Result<T, ErrorCode>> {
    match result {
        Ok(done) => Some(Ok(done)),
        Err(NsError::Kv(_)) => None,
        Err(error) => Some(Err(error.code())),
    }
}

// Release builds do not count locks.
#[cfg(all(test, debug_assertions))]
mod tests {
    use kv::MemoryKv;
    use namespace::NamespaceConfig;

    use super::*;
    use crate::tracked::Tracked;

    /// A deliberate violation: reading the namespace under a lock panics.
    #[test]
    fn a_read_under_a_lock_is_noticed() {
        let namespace = Namespace::open(Arc::new(MemoryKv::new()), Timestamp(0), NamespaceConfig::default()).unwrap();
        let (names, state) = (Names::new(namespace), Tracked::new(()));
        assert!(names.read(namespace::stores).is_ok());
        let under_a_lock = || {
            let _state = state.lock();
            names.read(namespace::stores)
        };
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(under_a_lock)).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.contains("the namespace is read while this thread holds a lock of the manager"), "{said}");
        assert!(names.read(namespace::stores).is_ok(), "the lock was let go of");
    }
}
