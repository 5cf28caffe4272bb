//! The namespace, on nodes that have it. On other nodes every request fails with [`NsError::Elsewhere`].

use std::sync::Arc;
use std::time::SystemTime;

use namespace::{Actor, Context, Durability, Namespace, NsError, Operation};
use types::{ClientIdentity, Incarnation, RequestNumber, Timestamp};

use crate::caller::Caller;
use crate::quotas::TreeActor;
use crate::service::Role;

/// The party that makes a change, and how.
pub(crate) struct By {
    actor: Actor,
    request: Option<RequestNumber>,
    is_urgent: bool,
}

impl By {
    /// The service itself, for housekeeping. It passes all permission checks.
    pub(crate) fn service() -> Self {
        Self { actor: Actor::admin(), request: None, is_urgent: false }
    }

    /// Somebody who decides about a tree.
    pub(crate) fn tree_actor(who: &TreeActor) -> Self {
        Self { actor: who.actor().clone(), ..Self::service() }
    }

    /// A caller.
    pub(crate) fn caller(caller: &Caller) -> Self {
        Self { actor: caller.actor(), ..Self::service() }
    }

    /// The change is what this request asks for. It is made once, however often the request is repeated.
    pub(crate) fn numbered(self, request: Option<RequestNumber>) -> Self {
        Self { request, ..self }
    }

    /// The change frees space or ends an open write, so it is allowed on a full disk.
    pub(crate) fn urgently(self) -> Self {
        Self { is_urgent: true, ..self }
    }
}

/// The namespace of this node, if it has one.
#[derive(Clone)]
pub(crate) struct Names {
    namespace: Option<Arc<Namespace>>,
    /// Another node makes the changes.
    is_read_only: bool,
}

impl Names {
    /// The namespace of a node with this role.
    pub(crate) fn of(role: &Role) -> Self {
        let namespace = match role {
            Role::Alone { namespace, .. } => Some(Arc::clone(namespace)),
            Role::Manager(manager) => Some(Arc::clone(manager.namespace())),
            Role::Standby(standby) => Some(Arc::clone(standby.namespace())),
            Role::Disk(_) => None,
        };
        Self { namespace, is_read_only: matches!(role, Role::Standby(_)) }
    }

    fn here(&self) -> Result<&Arc<Namespace>, NsError> {
        self.namespace.as_ref().ok_or(NsError::Elsewhere)
    }

    /// The namespace, if this node changes it.
    fn changed_here(&self) -> Result<&Arc<Namespace>, NsError> {
        if self.is_read_only { Err(NsError::Elsewhere) } else { self.here() }
    }

    /// See [`Namespace::read_cached`].
    pub(crate) fn read<T>(&self, reading: impl Fn(&dyn namespace::Read) -> Result<T, NsError>) -> Result<T, NsError> {
        self.here()?.read_cached(reading)
    }

    /// See [`Namespace::read`].
    pub(crate) fn read_once<T>(
        &self,
        reading: impl FnOnce(&dyn namespace::Read) -> Result<T, NsError>,
    ) -> Result<T, NsError> {
        self.here()?.read(reading)
    }

    /// See [`Namespace::has_room_for_session`].
    pub(crate) fn has_room_for_session(&self, now: Timestamp, client: &ClientIdentity) -> Result<(), NsError> {
        self.here()?.has_room_for_session(now, client)
    }

    /// See [`Namespace::rehearse`].
    pub(crate) fn rehearse<O: Operation + Send + 'static>(&self, actor: &Actor, op: O) -> Result<(), NsError> {
        let namespace = self.changed_here()?;
        namespace.rehearse(namespace.context(wall_clock(), actor, None), op)
    }

    /// See [`Namespace::change`] and [`Namespace::change_urgent`].
    pub(crate) fn change<O: Operation + Send + 'static>(
        &self,
        by: By,
        durability: Durability,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        match self.changed_here() {
            Ok(namespace) if by.is_urgent => namespace.change_urgent(durability, context(namespace, &by), op, done),
            Ok(namespace) => namespace.change(durability, context(namespace, &by), op, done),
            Err(error) => done(Err(error)),
        }
    }

    /// See [`Namespace::change_wait`] and [`Namespace::change_urgent_wait`].
    pub(crate) fn change_wait<O: Operation + Send + 'static>(
        &self,
        by: By,
        durability: Durability,
        op: O,
    ) -> Result<O::Reply, NsError> {
        let namespace = self.changed_here()?;
        if by.is_urgent {
            namespace.change_urgent_wait(durability, context(namespace, &by), op)
        } else {
            namespace.change_wait(durability, context(namespace, &by), op)
        }
    }

    /// The incarnation of the namespace.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.namespace.as_ref().map_or(Incarnation(0), |namespace| namespace.incarnation())
    }
}

/// The context of an operation at this moment.
fn context(namespace: &Namespace, by: &By) -> Context {
    namespace.context(wall_clock(), &by.actor, by.request)
}

/// The current time. Lower layers never read the clock themselves.
pub(crate) fn wall_clock() -> Timestamp {
    SystemTime::now().into()
}
