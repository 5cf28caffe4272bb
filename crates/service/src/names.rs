//! The namespace, on nodes that have it. On other nodes every request fails with [`NsError::Elsewhere`].

use std::sync::Arc;
use std::time::SystemTime;

use namespace::{Actor, Context, Durability, Namespace, NsError, Operation};
use types::{Incarnation, Timestamp};

use crate::caller::Caller;
use crate::service::Role;

/// The identity for which a change is made.
pub(crate) trait OnBehalf {
    /// The actor that the namespace checks permissions for.
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

/// The service itself, for housekeeping. It passes all permission checks.
pub(crate) struct Own;

impl OnBehalf for Own {
    fn as_actor(&self) -> Actor {
        Actor::admin()
    }
}

/// The namespace of this node, if it has one.
#[derive(Clone)]
pub(crate) struct Names {
    namespace: Option<Arc<Namespace>>,
}

impl Names {
    /// The namespace of a node with this role.
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

    /// See [`Namespace::change_wait`]. The service makes the change itself.
    pub(crate) fn change_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
    ) -> Result<O::Reply, NsError> {
        let namespace = self.here()?;
        namespace.change_wait(durability, context(namespace, &Own), op)
    }

    /// See [`Namespace::change_urgent_wait`]. The service makes the change itself.
    pub(crate) fn change_urgent_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        op: O,
    ) -> Result<O::Reply, NsError> {
        let namespace = self.here()?;
        namespace.change_urgent_wait(durability, context(namespace, &Own), op)
    }

    /// The incarnation of the namespace.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.namespace.as_ref().map_or(Incarnation(0), |namespace| namespace.incarnation())
    }
}

/// The context of an operation at this moment.
fn context(namespace: &Namespace, whose: &dyn OnBehalf) -> Context {
    namespace.context(wall_clock(), &whose.as_actor(), None)
}

/// The current time. Lower layers never read the clock themselves.
pub(crate) fn wall_clock() -> Timestamp {
    SystemTime::now().into()
}
