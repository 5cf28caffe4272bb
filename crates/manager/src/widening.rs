//! Brings existing files to the policy of their directory (`weir policy apply`): a file with too few replicas goes to a group with more stores, and
//! repair makes the new replicas at its usual rate. Files with more replicas than their policy asks for keep them.
//!
//! The caller's thread walks the tree. It keeps nothing: a walk that was interrupted is simply started again, and passes over what fits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cluster::placement::{Map, further_store};
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
        let mut assigned = Assigned::default();
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
                self.apply_to(&inode, &policy, how, (&mut view, &mut assigned))?;
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

    fn apply_to(
        &self,
        inode: &Inode,
        policy: &Policy,
        how: ApplyOptions,
        (view, assigned): (&mut ApplyView, &mut Assigned),
    ) -> Result<(), NsError> {
        let Some(content) = inode.content().copied() else { return Ok(()) };
        if content.group != GroupId::STRIPED {
            return self.apply_to_object(inode.ino, &content, policy, how, (view, assigned));
        }
        let Some((_, units)) = self.names.read(|read| namespace::units_if_there(read, content.object))? else {
            // It has been removed since its directory was listed. If another file has its name now, a later run looks at that one.
            view.files += 1;
            view.later += 1;
            return Ok(());
        };
        units.iter().try_for_each(|unit| match unit.content() {
            Some(content) => self.apply_to_object(unit.ino, content, policy, how, (view, assigned)),
            None => Ok(()),
        })
    }

    fn apply_to_object(
        &self,
        ino: Ino,
        content: &Content,
        policy: &Policy,
        how: ApplyOptions,
        (view, assigned): (&mut ApplyView, &mut Assigned),
    ) -> Result<(), NsError> {
        view.files += 1;
        let cluster = self.view.get();
        let map = cluster.servers.map();
        let fits = |store: StoreId| assigned.have_room(store, room_of(map, store), content.len);
        let need = match content.state {
            FileState::Complete if !content.shared => {
                self.names.read(|read| need(read, map, content, policy, &fits))?
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
        if !how.dry_run && !self.widen(ino, content, stores.clone())? {
            view.later += 1;
            return Ok(());
        }
        // The stores that have it come first.
        for store in stores.iter().rev().take(usize::try_from(more).unwrap_or(0)) {
            assigned.add(*store, room_of(map, *store), content.len);
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
        // A client that opened the file at a store that has left its group since must still be found there.
        self.coordinator.groups().inherit_left(content.group, to);
        let op = WidenObject { ino, object, state: at_rest.state, to };
        match self.names.change_wait((self.world.wall(), &Actor::admin()), Durability::Written, op) {
            Ok(()) => Ok(true),
            Err(NsError::Stale { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn room_of(map: &Map, store: StoreId) -> u64 {
    map.store(store).map_or(0, |info| info.room())
}

/// The bytes that each store gets by this walk, and the room that it had before. Its reports count them only when they are copied.
#[derive(Default)]
struct Assigned(BTreeMap<StoreId, (u64, u64)>);

impl Assigned {
    /// Whether a store that has `room` now has room for `len` bytes more.
    fn have_room(&self, store: StoreId, room: u64, len: u64) -> bool {
        let (bytes, before) = self.0.get(&store).copied().unwrap_or((0, room));
        room >= len && before >= bytes.saturating_add(len)
    }

    fn add(&mut self, store: StoreId, room: u64, len: u64) {
        let (bytes, _) = self.0.entry(store).or_insert((0, room));
        *bytes = bytes.saturating_add(len);
    }
}

/// Decides what a complete file needs. Only stores that `fits` accepts get a replica.
fn need(
    read: &dyn Read,
    map: &Map,
    content: &Content,
    policy: &Policy,
    fits: &dyn Fn(StoreId) -> bool,
) -> Result<Need, NsError> {
    let Some(group) = namespace::group(read, content.group)? else { return Ok(Need::Later) };
    Ok(need_of(map, &group, content, policy, fits))
}

fn need_of(map: &Map, group: &Group, content: &Content, policy: &Policy, fits: &dyn Fn(StoreId) -> bool) -> Need {
    let wanted = usize::from(policy.layout().replicas());
    let mut stores: Vec<StoreId> = group.members.iter().map(|member| member.store).collect();
    if stores.len() == wanted {
        return Need::Fits;
    }
    if stores.len() > wanted {
        return Need::Surplus;
    }
    let is_settled = |member: &types::Member| member.is_current() && !member.is_leaving() && member.has(content.object);
    if !group.members.iter().all(is_settled) {
        return Need::Later;
    }
    while stores.len() < wanted {
        match further_store(map, policy, &stores, content.object, fits) {
            Some(store) => stores.push(store),
            None => return Need::NoStores,
        }
    }
    Need::Wider(stores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_takes_what_fits_beside_what_it_gets_already() {
        let (store, mut assigned) = (StoreId(7), Assigned::default());
        assert!(assigned.have_room(store, 100, 100) && !assigned.have_room(store, 100, 101));
        assigned.add(store, 100, 60);
        assert!(assigned.have_room(store, 100, 40) && !assigned.have_room(store, 100, 41));
        assert!(assigned.have_room(store, 40, 40), "what was copied already does not count twice");
        assert!(!assigned.have_room(store, 39, 40), "others have written there");
    }
}
