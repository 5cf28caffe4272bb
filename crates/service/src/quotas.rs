//! Trees, their usage and their quotas.

use namespace::{Durability, MakeTree, Mkdir, NsError, QuotaOf, QuotaRecord, QuotaSpace, SetQuota, USUAL_MODE};
use types::{Ino, NsPath, PrincipalKind, Timestamp, TreeId};

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
                Ok(ListedTree { tree: record.tree, path: shown(read, record.root)?, made: record.made, quota })
            };
            namespace::trees(read, after, limit)?.into_iter().map(listed).collect::<Result<Vec<_>, NsError>>()
        });
        listed.map_err(|error| Error::of_namespace(&"list the trees", &error))
    }

    /// Sets limits. `of` in `request` is replaced by `whose`.
    ///
    /// # Errors
    /// The path is not the root of a tree, or nobody has that name.
    pub fn set_quota(&self, request: SetQuota, whose: &QuotaOwner) -> Result<(), Error> {
        let of = self.quota_of(whose)?;
        let op = SetQuota { of, ..request };
        let done = self.names.change_wait(By::service(), Durability::Synced, op);
        done.map_err(|error| Error::of_namespace(&"set the quota of", &error))
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
    /// The path is not the root of a tree, or the namespace cannot be read.
    pub fn quotas(
        &self,
        path: Option<&NsPath>,
        after: Option<(TreeId, QuotaOf)>,
        limit: usize,
    ) -> Result<Vec<(String, QuotaRecord)>, Error> {
        let listed = self.names.read(|read| {
            let admin = namespace::Actor::admin();
            let tree = path.map(|path| namespace::tree_of_root(read, &admin, path)).transpose()?;
            let with_path = |record: QuotaRecord| Ok((shown(read, Ino(record.tree.0))?, record));
            namespace::quotas(read, tree, after, limit)?.into_iter().map(with_path).collect::<Result<Vec<_>, NsError>>()
        });
        listed.map_err(|error| Error::of_namespace(&"list the quotas", &error))
    }

    /// Users and groups that have limits: at most `limit` of them, among the first `looked_at` that have files in a tree.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn limited_owners(&self, looked_at: usize, limit: usize) -> Result<Vec<LimitedOwner>, Error> {
        let listed = self.names.read(|read| {
            let with_path = |record: QuotaRecord| Ok((shown(read, Ino(record.tree.0))?, record));
            let found = namespace::limited_owners(read, looked_at, limit)?;
            found.into_iter().map(with_path).collect::<Result<Vec<_>, NsError>>()
        });
        let listed = listed.map_err(|error| Error::of_namespace(&"list the quotas", &error))?;
        let owner = |(path, quota): (String, QuotaRecord)| {
            let (kind, id) = match quota.of {
                QuotaOf::User(id) => (PrincipalKind::User, id),
                QuotaOf::Group(id) => (PrincipalKind::Group, id),
                QuotaOf::Tree => return None,
            };
            Some(LimitedOwner { path, kind, name: self.shown_principal(id).to_string(), quota })
        };
        Ok(listed.into_iter().filter_map(owner).collect())
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
