//! The namespace, where this node has it. Elsewhere each request on it is refused with [`NsError::Elsewhere`].

use std::sync::Arc;
use std::time::SystemTime;

use namespace::{Actor, Context, Durability, Namespace, NsError, Operation};
use types::{Incarnation, Timestamp};

use crate::caller::Caller;
use crate::service::Role;

/// For whom a change is made.
pub(crate) trait OnBehalf {
    /// Whom the change is made as.
    fn as_actor(&self) -> Actor;
}

impl OnBehalf for Caller {
    fn as_actor(&self) -> Actor {
        self.actor()
    }
}

impl OnBehalf for Arc<Caller> {
    fn as_actor(&self) -> Actor {
        self.actor()
    }
}

/// The service itself: house-keeping, which no rule stops.
pub(crate) struct Own;

impl OnBehalf for Own {
    fn as_actor(&self) -> Actor {
        Actor::admin()
    }
}

/// The names that this node keeps, if it does.
#[derive(Clone)]
pub(crate) struct Names {
    namespace: Option<Arc<Namespace>>,
}

impl Names {
    /// Those of a node that is for `role`.
    pub(crate) fn of(role: &Role) -> Self {
        let namespace = match role {
            Role::Alone { namespace, .. } => Some(Arc::clone(namespace)),
            Role::Manager(manager) => Some(Arc::clone(manager.namespace())),
            Role::Disk(_) => None,
        };
        Self { namespace }
    }

    fn here(&self) -> Result<&Arc<Namespace>, NsError> {
        self.namespace.as_ref().ok_or(NsError::Elsewhere)
    }

    /// See [`Namespace::read`].
    pub(crate) fn read<T>(
        &self,
        reading: impl FnOnce(&dyn namespace::Read) -> Result<T, NsError>,
    ) -> Result<T, NsError> {
        self.here()?.read(reading)
    }

    /// See [`Namespace::change`].
    pub(crate) fn change<O: Operation + Send + 'static>(
        &self,
        whose: &dyn OnBehalf,
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        match self.here() {
            Ok(namespace) => namespace.change(durability, context(namespace, whose), op, done),
            Err(error) => done(Err(error)),
        }
    }

    /// See [`Namespace::change_urgent`].
    pub(crate) fn change_urgent<O: Operation + Send + 'static>(
        &self,
        whose: &dyn OnBehalf,
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        match self.here() {
            Ok(namespace) => namespace.change_urgent(durability, context(namespace, whose), op, done),
            Err(error) => done(Err(error)),
        }
    }

    /// See [`Namespace::change_wait`]. For the service itself.
    pub(crate) fn change_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
    ) -> Result<O::Reply, NsError> {
        let namespace = self.here()?;
        namespace.change_wait(durability, context(namespace, &Own), op)
    }

    /// See [`Namespace::change_urgent_wait`]. For the service itself.
    pub(crate) fn change_urgent_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
    ) -> Result<O::Reply, NsError> {
        let namespace = self.here()?;
        namespace.change_urgent_wait(durability, context(namespace, &Own), op)
    }

    /// This life of the namespace.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.namespace.as_ref().map_or(Incarnation(0), |namespace| namespace.incarnation())
    }
}

/// What an operation is handed, at this moment.
fn context(namespace: &Namespace, whose: &dyn OnBehalf) -> Context {
    namespace.context(wall_clock(), &whose.as_actor(), None)
}

/// The time of day, read here and handed down.
pub(crate) fn wall_clock() -> Timestamp {
    SystemTime::now().into()
}
