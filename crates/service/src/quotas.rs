//! Trees, their usage and their quotas.

use identity::TokenRights;
use namespace::{
    Actor, Durability, MakeTree, Mkdir, NsError, QuotaOf, QuotaRecord, QuotaSpace, SetQuota, SetTreeOwner, TreeOwner,
    USUAL_MODE,
};
use types::{ErrorCode, Ino, NsPath, PrincipalKind, PrincipalName, Timestamp, TreeId};

use crate::caller::Caller;
use crate::error::Error;
use crate::names::{By, wall_clock};
use crate::service::Service;

/// A tree, as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedTree {
    /// Its number.
    pub tree: TreeId,
    /// Where its root is now.
    pub path: String,
    /// When it was made.
    pub made: Timestamp,
    /// What it uses, and its limits.
    pub quota: QuotaRecord,
    /// Who decides about it beside the administrator.
    pub owner: Option<TreeOwner>,
}

/// Who asks for something about a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeActor(Actor);

impl TreeActor {
    /// The administrator of the node or the cluster. The caller has checked the role.
    #[must_use]
    pub fn administrator() -> Self {
        Self(Actor::admin())
    }

    /// As the namespace takes it.
    #[must_use]
    pub fn actor(&self) -> &Actor {
        &self.0
    }
}

/// A user or a group with limits in a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitedOwner {
    /// Where the root of the tree is now.
    pub path: String,
    /// Whether it is a user or a group.
    pub kind: PrincipalKind,
    /// Its name, or its number if it has none.
    pub name: String,
    /// What it uses there, and its limits.
    pub quota: QuotaRecord,
}

/// Whose quota a request is about, by name or number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuotaOwner {
    /// The tree's own.
    Tree,
    /// That of a user in it.
    User(String),
    /// That of a group in it.
    Group(String),
}

impl Service {
    /// Makes an empty directory the root of a tree. With `mkdir` it makes the directory first, with those above it.
    ///
    /// # Errors
    /// It is not an empty directory, or is the root of a tree already.
    pub fn make_tree(&self, path: &NsPath, mkdir: bool) -> Result<(), Error> {
        let failed = |error: NsError| Error::of_namespace(&"make a tree of", &error);
        if mkdir {
            let op = Mkdir { path: path.clone(), mode: 0o755 | USUAL_MODE, parents: true };
            self.names.change_wait(By::service(), Durability::Synced, op).map_err(failed)?;
        }
        let op = MakeTree { path: path.clone() };
        self.names.change_wait(By::service(), Durability::Synced, op).map(drop).map_err(failed)
    }

    /// At most `limit` trees after `after`, in the order of their numbers.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn trees(&self, after: Option<TreeId>, limit: usize) -> Result<Vec<ListedTree>, Error> {
        let listed = self.names.read(|read| {
            let listed = |record: namespace::TreeRecord| {
                let quota = namespace::quota(read, record.tree, QuotaOf::Tree)?;
                Ok(ListedTree {
                    tree: record.tree,
                    path: shown(read, record.root)?,
                    made: record.made,
                    quota,
                    owner: record.owner,
                })
            };
            namespace::trees(read, after, limit)?.into_iter().map(listed).collect::<Result<Vec<_>, NsError>>()
        });
        listed.map_err(|error| Error::of_namespace(&"list the trees", &error))
    }

    /// Somebody who may own trees: this principal with these groups, with what its token allows. The namespace decides which trees it owns, in each request.
    ///
    /// # Errors
    /// It is the administrator of files, who is no administrator of the node by that. Or the names cannot be read or given numbers.
    pub fn tree_owner(
        &self,
        name: &PrincipalName,
        groups: &[PrincipalName],
        rights: Option<TokenRights>,
    ) -> Result<TreeActor, Error> {
        let principal = self.principal(name, groups, rights)?;
        let mut actor = Actor::new(principal.id, principal.groups);
        if actor.is_admin() {
            let text = format!(
                "{name} is a superuser for files, which is no role, and owns no tree: [[administrator]] of the settings gives roles"
            );
            return Err(Error::new(ErrorCode::Denied, text));
        }
        actor.limits = principal.limits;
        Ok(TreeActor(actor))
    }

    /// Gives the tree with its root at `path` to somebody; `None`: to nobody.
    ///
    /// # Errors
    /// The path is not the root of a tree, or nobody has that name.
    pub fn give_tree(&self, path: &NsPath, to: Option<(PrincipalKind, &str)>) -> Result<(), Error> {
        let owner = match to {
            None => None,
            Some((kind @ PrincipalKind::User, name)) => Some(TreeOwner::User(self.principal_called(kind, name)?)),
            Some((kind @ PrincipalKind::Group, name)) => Some(TreeOwner::Group(self.principal_called(kind, name)?)),
        };
        let op = SetTreeOwner { path: path.clone(), owner };
        let done = self.names.change_wait(By::service(), Durability::Synced, op);
        done.map_err(|error| Error::of_namespace(&"give away the tree", &error))
    }

    /// Sets limits. `of` in `request` is replaced by `whose`.
    ///
    /// # Errors
    /// The path is not the root of a tree, or not of one that `who` owns; or nobody has that name.
    pub fn set_quota(&self, who: &TreeActor, request: SetQuota, whose: &QuotaOwner) -> Result<(), Error> {
        let failed = |error: NsError| Error::of_namespace(&"set the quota of", &error);
        // Before anything is said about names. The change checks it again.
        self.names.read(|read| namespace::permit_tree_owner(read, &who.0, &request.path)).map_err(failed)?;
        let of = self.quota_of(whose)?;
        // Otherwise an owner could fill the namespace with records of all numbers.
        let number = match of {
            QuotaOf::Tree => None,
            QuotaOf::User(id) => Some((PrincipalKind::User, id)),
            QuotaOf::Group(id) => Some((PrincipalKind::Group, id)),
        };
        if let Some((kind, id)) = number.filter(|_| !who.0.is_admin()) {
            let known = self.names.read(|read| namespace::name_of(read, id)).map_err(failed)?;
            if known.is_none_or(|(known, _)| known != kind) {
                let text = format!("Cannot set the quota of {kind} {id}: no {kind} here has this number");
                return Err(Error::new(ErrorCode::NotFound, text));
            }
        }
        let op = SetQuota { of, ..request };
        let done = self.names.change_wait(By::tree_actor(who), Durability::Synced, op);
        done.map_err(failed)
    }

    fn quota_of(&self, whose: &QuotaOwner) -> Result<QuotaOf, Error> {
        Ok(match whose {
            QuotaOwner::Tree => QuotaOf::Tree,
            QuotaOwner::User(name) => QuotaOf::User(self.principal_called(PrincipalKind::User, name)?),
            QuotaOwner::Group(name) => QuotaOf::Group(self.principal_called(PrincipalKind::Group, name)?),
        })
    }

    /// At most `limit` records of usage and limits after `after`, each with the path of its tree. Only those of the tree with its root at `path`, if it
    /// is given.
    ///
    /// # Errors
    /// The path is not the root of a tree, or not of one that `who` owns; or the namespace cannot be read.
    pub fn quotas(
        &self,
        who: &TreeActor,
        path: Option<&NsPath>,
        after: Option<(TreeId, QuotaOf)>,
        limit: usize,
    ) -> Result<Vec<(String, QuotaRecord)>, Error> {
        let listed = self.names.read(|read| {
            let tree = path.map(|path| namespace::tree_of_root(read, &who.0, path)).transpose()?;
            if tree.is_none() && !who.0.is_admin() {
                let rule = "only an administrator lists the quotas of all trees; name one of your own".into();
                return Err(NsError::Denied { path: "/".into(), rule });
            }
            let with_path = |record: QuotaRecord| Ok((shown(read, Ino(record.tree.0))?, record));
            namespace::quotas(read, tree, after, limit)?.into_iter().map(with_path).collect::<Result<Vec<_>, NsError>>()
        });
        listed.map_err(|error| Error::of_namespace(&"list the quotas", &error))
    }

    /// Users and groups that have limits: at most `limit` of them, among the first `looked_at` that have files in a tree. The second part
    /// of the result: there may be further ones.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn limited_owners(&self, looked_at: usize, limit: usize) -> Result<(Vec<LimitedOwner>, bool), Error> {
        let listed = self.names.read(|read| {
            let with_path = |record: QuotaRecord| Ok((shown(read, Ino(record.tree.0))?, record));
            let (found, and_more) = namespace::limited_owners(read, looked_at, limit)?;
            Ok((found.into_iter().map(with_path).collect::<Result<Vec<_>, NsError>>()?, and_more))
        });
        let (listed, and_more) = listed.map_err(|error| Error::of_namespace(&"list the quotas", &error))?;
        let owner = |(path, quota): (String, QuotaRecord)| {
            let (kind, id) = match quota.of {
                QuotaOf::User(id) => (PrincipalKind::User, id),
                QuotaOf::Group(id) => (PrincipalKind::Group, id),
                QuotaOf::Tree => return None,
            };
            Some(LimitedOwner { path, kind, name: self.shown_principal(id).to_string(), quota })
        };
        Ok((listed.into_iter().filter_map(owner).collect(), and_more))
    }

    /// What quotas leave to the caller at `path`. `None`: no quota limits it there, the caller may not look there, or another node has the names.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn quota_space(&self, caller: &Caller, path: &NsPath) -> Result<Option<QuotaSpace>, Error> {
        match self.names.read(|read| namespace::space_at(read, &caller.actor(), path, wall_clock())) {
            Ok(space) => Ok(space),
            Err(error @ (NsError::Kv(_) | NsError::Damaged { .. } | NsError::Newer { .. } | NsError::Older { .. })) => {
                Err(Error::of_namespace(&"query the space", &error))
            }
            // The space of the whole answers a path that leads nowhere, or that the caller may not see.
            Err(_) => Ok(None),
        }
    }
}

fn shown(read: &dyn namespace::Read, root: Ino) -> Result<String, NsError> {
    match namespace::path_of(read, root) {
        Ok(path) => Ok(String::from_utf8_lossy(&path).into_owned()),
        Err(NsError::NotFound(..)) => Ok("(removed)".to_owned()),
        Err(error) => Err(error),
    }
}
