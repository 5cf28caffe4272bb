//! Brings existing files to the policy of their directory (`weir policy apply`): a file with too few replicas goes to a group with more stores, and
//! repair makes the new replicas at its usual rate. Files with more replicas than their policy asks for keep them.
//!
//! The caller's thread walks the tree. It keeps nothing: a walk that was interrupted is simply started again, and passes over what fits.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cluster::placement::{Map, replacement};
use namespace::{Actor, Content, Durability, FileState, Inode, ListEntry, NsError, Read, WidenObject};
use serde::{Deserialize, Serialize};
use types::{FileName, Group, GroupId, Ino, NsPath, Policy, StoreId};

use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::hold::Hold;
use crate::jobs::Copies;
use crate::names::Names;

/// Entries of a directory that are read at a time.
const PAGE: usize = 64;
/// Directories below each other.
const DEPTH_MAX: usize = 4096;
/// How many failures are named.
const NAMED_MAX: usize = 10;
/// No store has this number.
const NO_STORE: StoreId = StoreId(0);

/// See the module.
pub(crate) struct Widening {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    coordinator: Arc<Coordinator>,
    copies: Arc<Copies>,
    hold: Arc<Hold>,
}

/// How to apply policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ApplyOptions {
    /// Only count.
    pub dry_run: bool,
    /// Move at most this many files per second to other groups. 0 counts as 1.
    pub files_per_second: u32,
}

/// What policies mean for the files below a directory. A stripe unit counts as a file.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ApplyView {
    /// The directory.
    pub path: String,
    /// Nothing was changed.
    pub is_dry_run: bool,
    /// Files that were looked at.
    pub files: u64,
    /// Files that have as many replicas as their policy asks for.
    pub fit: u64,
    /// Files that get more replicas.
    pub widened: u64,
    /// The bytes that are copied for them.
    pub copied_bytes: u64,
    /// Files that have more replicas than their policy asks for. They keep them.
    pub surplus: u64,
    /// Files that are being written or changed, or whose stores are just being replaced. Apply the policy again later.
    pub later: u64,
    /// Files for which there are no further stores.
    pub failed: u64,
    /// The first of these.
    pub first_failed: Vec<String>,
}

/// Why policies were not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The namespace was restored, and nobody has accepted its state.
    #[error("the manager was restored from a backup, and copies nothing before you run `weir restored --accept`")]
    Held,
    /// The namespace cannot be read or changed.
    #[error(transparent)]
    Names(#[from] NsError),
}

/// A directory whose entries are being looked at.
struct Level {
    dir: Ino,
    policy: Policy,
    /// The last entry that was looked at.
    after: Option<FileName>,
}

/// What a file needs.
enum Need {
    Fits,
    Surplus,
    Later,
    /// A group with these stores.
    Wider(Vec<StoreId>),
    /// There are no further stores that its policy allows.
    NoStores,
}

impl Widening {
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        (copies, hold): (Arc<Copies>, Arc<Hold>),
    ) -> Self {
        Self { names, view: coordinator.published(), world, coordinator, copies, hold }
    }

    /// Applies the policies to the files below `path`. `go_on` is asked after each page: if it returns `false`, the walk stops, and the result is `None`.
    pub(crate) fn apply(
        &self,
        path: &NsPath,
        how: ApplyOptions,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<ApplyView>, ApplyError> {
        if self.hold.is_held() && !how.dry_run {
            return Err(ApplyError::Held);
        }
        let (dir, policy) = self.names.read(|read| {
            let inode = namespace::stat(read, &Actor::admin(), path)?;
            if !inode.is_dir() {
                return Err(NsError::NotDirectory(path.to_string()));
            }
            let policy = namespace::policy_of(read, inode.ino)?.map(|found| found.policy);
            Ok((inode.ino, policy.unwrap_or_default()))
        })?;
        let mut view = ApplyView { path: path.to_string(), is_dry_run: how.dry_run, ..ApplyView::default() };
        let mut levels = vec![Level { dir, policy, after: None }];
        while let Some(level) = levels.last_mut() {
            let entries = self.names.read(|read| namespace::list(read, level.dir, level.after.as_ref(), PAGE))?.entries;
            let Some(last) = entries.last() else {
                levels.pop();
                continue;
            };
            level.after = Some(last.name.clone());
            let mut below = None;
            let policy = level.policy.clone();
            for ListEntry { name, inode } in entries {
                if inode.is_dir() {
                    // Its siblings come after it.
                    level.after = Some(name);
                    below = Some(inode.ino);
                    break;
                }
                self.apply_to(&inode, &policy, how, &mut view)?;
            }
            if let Some(dir) = below {
                if levels.len() >= DEPTH_MAX {
                    return Err(
                        NsError::TooMany { what: "directories below each other", bound: DEPTH_MAX as u64 }.into()
                    );
                }
                let own = self.names.read(|read| namespace::own_policy(read, dir))?;
                levels.push(Level { dir, policy: own.unwrap_or(policy), after: None });
            }
            if !go_on() {
                return Ok(None);
            }
        }
        if view.widened > 0 && !how.dry_run {
            self.copies.look_soon();
        }
        Ok(Some(view))
    }

    fn apply_to(&self, inode: &Inode, policy: &Policy, how: ApplyOptions, view: &mut ApplyView) -> Result<(), NsError> {
        let Some(content) = inode.content().copied() else { return Ok(()) };
        if content.group != GroupId::STRIPED {
            return self.apply_to_object(inode.ino, &content, policy, how, view);
        }
        let (_, units) = self.names.read(|read| namespace::units_of(read, content.object))?;
        units.iter().try_for_each(|unit| match unit.content() {
            Some(content) => self.apply_to_object(unit.ino, content, policy, how, view),
            None => Ok(()),
        })
    }

    fn apply_to_object(
        &self,
        ino: Ino,
        content: &Content,
        policy: &Policy,
        how: ApplyOptions,
        view: &mut ApplyView,
    ) -> Result<(), NsError> {
        view.files += 1;
        let cluster = self.view.get();
        let is_left = !self.coordinator.groups().have_left(&cluster.servers, content.group).is_empty();
        let map = cluster.servers.map();
        let need = match content.state {
            FileState::Complete if !content.shared => {
                // A client that opened the file at a store that has left the group since must still be found there.
                self.names.read(|read| need(read, map, content, policy, is_left))?
            }
            _ => Need::Later,
        };
        let stores = match need {
            Need::Fits => {
                view.fit += 1;
                return Ok(());
            }
            Need::Surplus => {
                view.surplus += 1;
                return Ok(());
            }
            Need::Later => {
                view.later += 1;
                return Ok(());
            }
            Need::NoStores => {
                view.failed += 1;
                if view.first_failed.len() < NAMED_MAX {
                    // A stripe unit has no path.
                    let path = self.names.read(|read| namespace::path_of(read, ino)).unwrap_or_default();
                    view.first_failed.push(path.escape_ascii().to_string());
                }
                return Ok(());
            }
            Need::Wider(stores) => stores,
        };
        let more = stores.len().saturating_sub(self.members(content.group)) as u64;
        if !how.dry_run && !self.widen(ino, content, stores)? {
            view.later += 1;
            return Ok(());
        }
        view.widened += 1;
        view.copied_bytes = view.copied_bytes.saturating_add(content.len.saturating_mul(more));
        if !how.dry_run {
            std::thread::sleep(Duration::from_secs(1) / how.files_per_second.max(1));
        }
        Ok(())
    }

    fn members(&self, group: GroupId) -> usize {
        self.coordinator.groups().all().get(&group).map_or(0, |group| group.members.len())
    }

    /// Moves the object. Returns whether the file was still as it was looked at.
    fn widen(&self, ino: Ino, content: &Content, stores: Vec<StoreId>) -> Result<bool, NsError> {
        let object = content.object;
        let at_rest = self.names.read(|read| namespace::at_rest(read, content.group, object))?;
        let Some(at_rest) = at_rest else { return Ok(false) };
        let (sender, receiver) = sync_channel(1);
        self.coordinator.with_group(stores, move |group| drop(sender.try_send(group)));
        let to = match receiver.recv() {
            Ok(Ok(group)) => group,
            Ok(Err(NsError::Stale { .. })) | Err(_) => return Ok(false),
            Ok(Err(error)) => return Err(error),
        };
        let op = WidenObject { ino, object, state: at_rest.state, to };
        match self.names.change_wait((self.world.wall(), &Actor::admin()), Durability::Written, op) {
            Ok(()) => Ok(true),
            Err(NsError::Stale { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Decides what a complete file needs. `is_left`: stores have left its group.
fn need(read: &dyn Read, map: &Map, content: &Content, policy: &Policy, is_left: bool) -> Result<Need, NsError> {
    let Some(group) = namespace::group(read, content.group)? else { return Ok(Need::Later) };
    Ok(need_of(map, &group, content, policy, is_left))
}

fn need_of(map: &Map, group: &Group, content: &Content, policy: &Policy, is_left: bool) -> Need {
    let wanted = usize::from(policy.layout().replicas());
    let mut stores: Vec<StoreId> = group.members.iter().map(|member| member.store).collect();
    if stores.len() == wanted {
        return Need::Fits;
    }
    if stores.len() > wanted {
        return Need::Surplus;
    }
    let is_settled = |member: &types::Member| member.is_current() && !member.is_leaving() && member.has(content.object);
    if is_left || !group.members.iter().all(is_settled) {
        return Need::Later;
    }
    while stores.len() < wanted {
        match replacement(map, policy, &stores, NO_STORE, &[]) {
            Ok(store) => stores.push(store),
            Err(_) => return Need::NoStores,
        }
    }
    Need::Wider(stores)
}
