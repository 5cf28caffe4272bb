//! Who may do what, and by which rule. The operation itself decides: it runs on the present state for an actor with a
//! witness, and what it changes is taken back.

use std::sync::Arc;

use identity::TokenRights;
use namespace::{
    AclEdit, Actor, Chmod, Chown, Link, Mkdir, NsError, OpenWrite, Operation, RemoveAny, Rename, SetAcl, SetXattr,
    Step, Symlink, Utimes, Witness, WriteMode, XattrMode,
};
use types::{ClientIdentity, ErrorCode, NsPath, PrincipalId, PrincipalKind};

use crate::error::Error;
use crate::names::wall_clock;
use crate::principals::limits_of;
use crate::service::Service;

/// What somebody wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    /// See the attributes.
    Stat,
    /// Read a file.
    Read,
    /// List a directory, with attributes.
    List,
    /// Write an existing file in place.
    Write,
    /// Make a new file.
    Create,
    /// Make a file, or replace the one that is there.
    Replace,
    /// Make a directory.
    Mkdir,
    /// Remove a file, a link or an empty directory.
    Remove,
    /// Rename to another name.
    Rename,
    /// Give a file another name.
    Link,
    /// Make a symbolic link.
    Symlink,
    /// Change the mode.
    Chmod,
    /// Change the owner.
    Chown,
    /// Change the ACL.
    SetAcl,
    /// Set an extended attribute.
    SetAttribute,
    /// Set the times.
    Touch,
}

impl Doing {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 16] = [
        ("stat", Self::Stat),
        ("read", Self::Read),
        ("list", Self::List),
        ("write", Self::Write),
        ("create", Self::Create),
        ("replace", Self::Replace),
        ("mkdir", Self::Mkdir),
        ("remove", Self::Remove),
        ("rename", Self::Rename),
        ("link", Self::Link),
        ("symlink", Self::Symlink),
        ("chmod", Self::Chmod),
        ("chown", Self::Chown),
        ("set-acl", Self::SetAcl),
        ("set-attribute", Self::SetAttribute),
        ("touch", Self::Touch),
    ];

    /// The operation with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, doing)| *doing)
    }

    /// Whether it is about two names.
    #[must_use]
    pub fn has_two_names(self) -> bool {
        matches!(self, Self::Rename | Self::Link)
    }
}

/// A question: may somebody do something?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// The user, by name or number.
    pub who: String,
    /// The groups of the user, by name or number. They come with the credential, so nobody else knows them.
    pub groups: Vec<String>,
    /// The scopes of a token, separated by spaces, with whole paths; `None`: the credential sets no limits.
    pub scopes: Option<String>,
    /// The operation.
    pub doing: Doing,
    /// The name.
    pub path: NsPath,
    /// The new name, if there are two.
    pub to: Option<NsPath>,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The decisions on the way, in their order. Principals have their names.
    pub steps: Vec<Step>,
    /// `None`: the operation would be done. Otherwise why not.
    pub refused: Option<(ErrorCode, String)>,
}

impl Service {
    /// Explains whether somebody may do something now. For administrators: it tells what exists.
    ///
    /// # Errors
    /// This node has no namespace, somebody in the question is not known, or a scope is malformed.
    pub fn explain(&self, question: &Question) -> Result<Explained, Error> {
        let witness = Witness::new();
        let actor = self.actor_of(question, &witness)?;
        let outcome = self.rehearse(&actor, question);
        if let Err(NsError::Elsewhere) = outcome {
            return Err(Error::of_namespace(&"explain", &NsError::Elsewhere));
        }
        let with_names = |step: Step| {
            let rule = self.names.read(|read| Ok(namespace::named(read, &step.rule)));
            Step { rule: rule.unwrap_or_else(|_| step.rule.clone()), ..step }
        };
        let steps = witness.steps().into_iter().map(with_names).collect();
        Ok(Explained { steps, refused: outcome.err().map(|error| (error.code(), error.to_string())) })
    }

    fn actor_of(&self, question: &Question, witness: &Arc<Witness>) -> Result<Actor, Error> {
        let principal = self.principal_called(PrincipalKind::User, &question.who)?;
        let groups = question.groups.iter().map(|group| self.principal_called(PrincipalKind::Group, group));
        let groups: Vec<PrincipalId> = groups.collect::<Result<_, _>>()?;
        let rights = question.scopes.as_deref().map(TokenRights::of_scopes).transpose();
        let rights = rights.map_err(|error| Error::new(ErrorCode::Invalid, error.to_string()))?;
        let actor = Actor::new(principal, groups.into());
        Ok(Actor { limits: rights.map(limits_of), witness: Some(Arc::clone(witness)), ..actor })
    }

    fn rehearse(&self, actor: &Actor, question: &Question) -> Result<(), NsError> {
        let Question { path, doing, .. } = question;
        let path = path.clone();
        let open = |how| OpenWrite::new(path.clone(), how, nobody(actor.principal), self.settings.config.boot);
        let to = || question.to.clone().unwrap_or_else(|| path.clone());
        match doing {
            Doing::Stat => self.names.read_once(|read| namespace::stat(read, actor, &path).map(drop)),
            Doing::Read => self.names.read_once(|read| namespace::open_read(read, actor, &path, false).map(drop)),
            Doing::List => self.names.read_once(|read| namespace::open_list(read, actor, &path, true).map(drop)),
            Doing::Write => self.run_back(actor, open(WriteMode::Update)),
            Doing::Create => self.run_back(actor, open(WriteMode::NewOnly)),
            Doing::Replace => self.run_back(actor, open(WriteMode::Replace)),
            Doing::Mkdir => self.run_back(actor, Mkdir { path, mode: 0o755, parents: false }),
            Doing::Remove => self.run_back(actor, RemoveAny { path }),
            Doing::Rename => self.run_back(actor, Rename { to: to(), from: path, replace: true }),
            Doing::Link => self.run_back(actor, Link { new: to(), existing: path }),
            Doing::Symlink => self.run_back(actor, Symlink { path, target: b"/".to_vec() }),
            Doing::Chmod => self.run_back(actor, Chmod { path, mode: 0o644 | Chmod::NINE_BITS }),
            // To anybody else.
            Doing::Chown => self.run_back(actor, Chown { path, owner: Some(PrincipalId(u32::MAX)), group: None }),
            Doing::SetAcl => self.run_back(actor, SetAcl { path, access: Some(AclEdit::Clear), default: None }),
            Doing::SetAttribute => {
                let name = b"user.explain".to_vec();
                self.run_back(actor, SetXattr { of: path.into(), name, value: Vec::new(), mode: XattrMode::Set })
            }
            Doing::Touch => self.run_back(actor, Utimes { path, mtime: Some(wall_clock()), atime: None }),
        }
    }

    fn run_back<O: Operation + Send + 'static>(&self, actor: &Actor, op: O) -> Result<(), NsError> {
        self.names.rehearse(actor, op)
    }
}

/// A client that has nothing open.
fn nobody(principal: PrincipalId) -> ClientIdentity {
    ClientIdentity { principal, user: "explain".into(), pid: 0, host: String::new() }
}
