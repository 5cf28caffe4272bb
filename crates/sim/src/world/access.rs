//! Changes of quotas, owners, modes and ACLs among the faults, and what must be true of them afterwards:
//!
//! - What was acknowledged is there, also after the manager has lost its power.
//! - A tree uses no more than its limit, or than it used when a lower limit was set. What open writes have reserved counts.
//!
//! That the usage equals a recount is a rule of the namespace's own check, which runs after each restart and at the end.

use std::collections::BTreeMap;

use namespace::{
    Access, AclEdit, AclEntry, AclTag, Actor, Chmod, Chown, NsError, Permissions, QuotaOf, QuotaRecord, SetAcl,
};
use rand::Rng;
use types::{NsPath, PrincipalId};

use super::World;
use crate::founding::{TREES, limit};
use crate::manager::Env;
use crate::message::Addr;
use crate::model::FileStage;

/// Users whose files may be given to each other.
const USERS: u32 = 3;
const FIRST_USER: u32 = 1000;

/// What the trees and users were promised.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The most that a tree may use. Without an entry nothing is known.
    most: BTreeMap<&'static str, u64>,
    /// The limit of a tree after the last acknowledged change.
    limits: BTreeMap<&'static str, u64>,
}

impl World {
    /// Makes one random change, if the manager is up.
    pub(super) fn change_access(&mut self) {
        let closed: Vec<usize> =
            (0..self.model.files.len()).filter(|file| self.model.files[*file].stage == FileStage::Closed).collect();
        let kind = self.rng.random_range(0..5);
        let at = self.active().unwrap_or(0);
        self.with(Addr::Manager(at), |world, env| match kind {
            0 => world.change_limit(env),
            _ if closed.is_empty() => {}
            kind => {
                let file = closed[env.rng.random_range(0..closed.len())];
                world.change_file(file, kind, env);
            }
        });
        let found = self.are_shares_kept();
        self.wrong(found);
    }

    fn change_limit(&mut self, env: &mut Env<'_>) {
        let Some(manager) = self.active().and_then(|at| self.managers[at].process.as_mut()) else { return };
        let tree = TREES[env.rng.random_range(0..TREES.len())];
        let bytes = env.rng.random_range(50_000..600_000);
        let Ok(path) = NsPath::parse(tree.as_bytes()) else { return };
        if env.rng.random_ratio(1, 3) {
            let user = PrincipalId(FIRST_USER + env.rng.random_range(0..USERS));
            let done = manager.administer(limit(path, QuotaOf::User(user), bytes), env);
            env.counts.access_changes += u64::from(done == Some(Ok(())));
            return;
        }
        let done = manager.administer(limit(path, QuotaOf::Tree, bytes), env);
        match done {
            Some(Ok(())) => {
                env.counts.access_changes += 1;
                let used = manager.ns.read(|read| used(read, tree)).unwrap_or(u64::MAX);
                self.shares.most.insert(tree, used.max(bytes));
                self.shares.limits.insert(tree, bytes);
            }
            // A refusal has no reason here.
            Some(Err(code)) => self.wrong(Err(format!("the limit of {tree} could not be set: {code:?}"))),
            None => {
                self.shares.most.remove(tree);
                self.shares.limits.remove(tree);
            }
        }
        let told = self.shares.limits.get(tree).copied();
        self.tell(|| format!("the limit of {tree} becomes {bytes}: {done:?}; the last acknowledged one is {told:?}"));
    }

    fn change_file(&mut self, file: usize, kind: u32, env: &mut Env<'_>) {
        let Some(manager) = self.active().and_then(|at| self.managers[at].process.as_mut()) else { return };
        let Ok(path) = NsPath::parse(self.model.files[file].path.as_bytes()) else { return };
        let user = |env: &mut Env<'_>| PrincipalId(FIRST_USER + env.rng.random_range(0..USERS));
        let (owner, group) = (user(env), user(env));
        let mode = [0o644, 0o600, 0o660][env.rng.random_range(0..3)];
        let entry =
            AclEntry { tag: AclTag::User(owner), permissions: Permissions::from_bits(env.rng.random_range(0..8)) };
        let done = match kind {
            1 => manager.administer(Chmod { path: path.clone(), mode }, env),
            2 => {
                let access = Some(AclEdit::Modify(vec![entry]));
                manager.administer(SetAcl { path: path.clone(), access, default: None }, env)
            }
            _ => manager.administer(Chown { path: path.clone(), owner: Some(owner), group: Some(group) }, env),
        };
        self.tell(|| format!("{path}: change {kind} to {owner}:{group}, {mode:o} or {entry}: {done:?}"));
        match done {
            None => self.model.files[file].access = None,
            // A quota has no room, or somebody has begun to change or remove the file. Nothing has changed.
            Some(Err(_)) => {}
            Some(Ok(())) => {
                env.counts.access_changes += 1;
                let Some(found) = self.names(|read| namespace::stat(read, &Actor::admin(), &path)) else { return };
                match found {
                    Ok(inode) => {
                        let is_as_asked = match kind {
                            1 => inode.access.mode & 0o777 == mode,
                            2 => inode.access.acl().entries().any(|one| one == entry),
                            _ => (inode.access.owner, inode.access.group) == (owner, group),
                        };
                        if !is_as_asked {
                            self.wrong(Err(format!("{path} is not as it was just made: {:?}", inode.access)));
                        }
                        self.model.files[file].access = Some(inode.access);
                    }
                    Err(_) => self.model.files[file].access = None,
                }
            }
        }
    }

    /// Checks the limits of the trees.
    pub(super) fn are_shares_kept(&self) -> Result<(), String> {
        for (tree, most) in &self.shares.most {
            let record = match self.names(|read| record_of(read, tree)) {
                Some(Ok(record)) => record,
                None | Some(Err(NsError::Kv(_))) => return Ok(()),
                Some(Err(error)) => return Err(error.to_string()),
            };
            let used = record.used.bytes.saturating_add(record.reserved.bytes);
            if used > *most {
                return Err(format!("{tree} uses {used} bytes, and at most {most} are permitted: {record:?}"));
            }
            let limit = self.shares.limits.get(tree).copied();
            if record.bytes.hard != limit {
                return Err(format!("the limit of {tree} is {:?}, and {limit:?} was acknowledged", record.bytes.hard));
            }
        }
        Ok(())
    }
}

/// Checks that a closed file has the permissions that were acknowledged.
pub(super) fn is_access_kept(path: &str, told: Option<&Access>, found: &Access) -> Result<(), String> {
    match told {
        Some(told) if told != found => Err(format!("{path} has {found:?}, and {told:?} was acknowledged")),
        _ => Ok(()),
    }
}

fn record_of(read: &dyn namespace::Read, tree: &str) -> Result<QuotaRecord, NsError> {
    let path =
        NsPath::parse(tree.as_bytes()).map_err(|_| NsError::Invalid { what: tree.to_owned(), why: "it is no path" })?;
    let tree = namespace::tree_of_root(read, &Actor::admin(), &path)?;
    namespace::quota(read, tree, QuotaOf::Tree)
}

/// What a tree uses, with what is reserved.
fn used(read: &dyn namespace::Read, tree: &str) -> Result<u64, NsError> {
    record_of(read, tree).map(|record| record.used.bytes.saturating_add(record.reserved.bytes))
}
