//! What answers requests.

use std::sync::Arc;

use crate::denials::Denials;
use crate::{Caller, ControlRequest, Person, Reply};

/// Answers requests of callers who have the role for them. It may block; several threads may call it at once.
pub type Answerer = dyn Fn(&Caller, ControlRequest) -> Reply + Send + Sync;

/// Answers requests of people who have not the role for them, but may own the tree that the request is about. Whether they do is decided where the
/// request is carried out, in the same transaction.
pub type OwnerAnswerer = dyn Fn(&Person, ControlRequest) -> Reply + Send + Sync;

/// Says who the user of this machine with this number is, or why nobody.
pub type LocalUsers = dyn Fn(u32) -> Result<Person, String> + Send + Sync;

/// The addresses of all managers of the cluster for commands, `host:port`. None if there can be only one: then whoever asks has its address.
pub type Managers = dyn Fn() -> Vec<String> + Send + Sync;

/// What answers the requests to a node. Cheap to clone.
#[derive(Clone)]
pub struct Answers {
    pub(crate) by_role: Arc<Answerer>,
    pub(crate) by_owner: Arc<OwnerAnswerer>,
    pub(crate) users: Arc<LocalUsers>,
    pub(crate) managers: Arc<Managers>,
    /// Those that the log has lines about.
    pub(crate) denials: Arc<Denials>,
}

impl Answers {
    /// Answers callers who have the role. Nobody else is answered.
    #[must_use]
    pub fn new(by_role: impl Fn(&Caller, ControlRequest) -> Reply + Send + Sync + 'static) -> Self {
        let nobody = |_: u32| -> Result<Person, String> {
            Err("only root and the user that weir runs as may do this here".to_owned())
        };
        Self {
            by_role: Arc::new(by_role),
            by_owner: Arc::new(nobody_owns),
            users: Arc::new(nobody),
            managers: Arc::new(Vec::new),
            denials: Arc::default(),
        }
    }

    /// Also answers owners of trees.
    #[must_use]
    pub fn with_owners(self, by_owner: impl Fn(&Person, ControlRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self { by_owner: Arc::new(by_owner), ..self }
    }

    /// Also answers users of this machine who do not own the node: `users` says who they are.
    #[must_use]
    pub fn with_users(self, users: impl Fn(u32) -> Result<Person, String> + Send + Sync + 'static) -> Self {
        Self { users: Arc::new(users), ..self }
    }

    /// Tells callers the addresses of all managers with each answer.
    #[must_use]
    pub fn with_managers(self, managers: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { managers: Arc::new(managers), ..self }
    }

    /// Who the user of this machine with this number is.
    pub(crate) fn user(&self, uid: u32) -> Result<Caller, String> {
        match Caller::owner_of_node(uid) {
            Some(owner) => Ok(owner),
            None => (self.users)(uid).map(|person| Caller::Person(Box::new(person))),
        }
    }
}

/// The answer of a node without trees.
pub(crate) fn nobody_owns(person: &Person, _: ControlRequest) -> Reply {
    Reply::Denied(format!("{} has no role for this, and this node has no trees that people own", person.who.name))
}
