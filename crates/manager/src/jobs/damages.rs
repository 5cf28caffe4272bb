//! Has damaged replicas replaced. Disk servers report them again and again. A damaged replica counts as missing as soon as another store can provide the
//! object; then repair replaces it ([`super::Copies`]). Until then it stays as it is: it may be the last one, and most of its bytes may be good. The file
//! of a damaged replica without an intact one is marked ([`namespace::DAMAGED_MARK`]).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::message::REPLICAS_MAX;
use namespace::{AtRest, Durability, MissDamaged, NsError, Read, RemoveXattr, SetXattr, XattrMode, XattrOf};
use node::DamageReport;
use serde::{Deserialize, Serialize};
use types::{ErrorCode, GroupId, Ino, NodeId, ObjectId, ReplicaId, StoreId};

use super::Copies;
use crate::World;
use crate::coordinator::{Coordinator, PublishedView};
use crate::hold::Hold;
use crate::known_damage::{Known, KnownDamage};
use crate::names::Names;

/// A replica that was not reported for this time is forgotten. Its server reports every 10 s, or is away. After a restart the server first reads again
/// the replicas that were damaged.
const FORGET: Duration = Duration::from_secs(600);
/// How often the job looks which replicas have been replaced.
const LOOK: Duration = Duration::from_secs(1);
/// The most replicas that it looks at each time.
const LOOKED_MAX: usize = 1024;
/// The most damaged replicas that the manager remembers. It acts on all.
const KNOWN_MAX: usize = 65_536;

/// What becomes of a damaged replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageState {
    /// It counts as missing, and repair replaces it.
    Repairing,
    /// The object is being written.
    InUse,
    /// The other stores that have the object are offline, or nobody has accepted the state of a restored manager yet.
    Waiting,
    /// No other store has the object, or each other replica is damaged, too.
    NoOther,
}

/// The numbers of damaged replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DamageCounts {
    /// Those that repair replaces.
    pub repairing: u64,
    /// Those that wait for a store that is offline, or for the end of a write.
    pub waiting: u64,
    /// Those without an intact replica elsewhere.
    pub no_other: u64,
    /// Damaged replicas that were replaced since the manager started.
    pub repaired: u64,
}

/// See the module.
pub(crate) struct Damages {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
    /// Knows the groups.
    coordinator: Arc<Coordinator>,
    /// Learns of new missing replicas.
    copies: Arc<Copies>,
    /// The replicas of a restored namespace stay as they are.
    hold: Arc<Hold>,
    state: Arc<KnownDamage>,
}

/// An object as the namespace has it.
struct Located {
    group: GroupId,
    at_rest: Option<AtRest>,
    holders: Vec<StoreId>,
    missing: Vec<StoreId>,
    /// The file's inode and path. `None`: a stripe unit, or a removed file that a client still has open.
    file: Option<(Ino, Vec<u8>)>,
    is_marked: bool,
}

/// What to do about a damaged replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Decision {
    /// Nothing: the replica does not count.
    Ignore,
    /// Nothing now.
    Leave(DamageState),
    /// Record it as missing: this store can provide the object.
    Replace(StoreId),
}

impl Located {
    fn find(read: &dyn Read, groups: &[GroupId], object: ObjectId) -> Result<Option<Self>, NsError> {
        for group in groups {
            let record = namespace::object_record(read, *group, object)?;
            let at_rest = namespace::at_rest(read, *group, object)?;
            if record.is_none() && at_rest.is_none() {
                continue;
            }
            let (mut file, mut is_marked) = (None, false);
            if let Some(record) = record {
                file = match namespace::path_of(read, record.ino) {
                    Ok(path) => Some((record.ino, path)),
                    Err(error) if error.code() == ErrorCode::NotFound => None,
                    Err(error) => return Err(error),
                };
                let mark = namespace::xattr_of(read, record.ino, namespace::DAMAGED_MARK)?;
                is_marked = mark.is_some_and(|mark| namespace::is_damage_mark_of(&mark, object));
            }
            return Ok(Some(Self {
                group: *group,
                at_rest,
                holders: namespace::holders(read, *group, object)?,
                missing: namespace::missing_of(read, *group, object)?,
                file,
                is_marked,
            }));
        }
        Ok(None)
    }

    /// Decides about the replica on `store`. `is_lost`: a store was removed as lost. `is_damaged`: a store has a damaged replica, too.
    fn decide(
        &self,
        store: StoreId,
        is_online: impl Fn(StoreId) -> bool,
        is_lost: impl Fn(StoreId) -> bool,
        is_damaged: impl Fn(StoreId) -> bool,
    ) -> Decision {
        if self.missing.contains(&store) {
            return Decision::Leave(DamageState::Repairing);
        }
        if self.at_rest.is_none() {
            return Decision::Leave(DamageState::InUse);
        }
        if !self.holders.contains(&store) {
            return Decision::Ignore;
        }
        let others = self.holders.iter().copied();
        let mut others = others.filter(|other| *other != store && !is_lost(*other) && !is_damaged(*other)).peekable();
        if others.peek().is_none() {
            return Decision::Leave(DamageState::NoOther);
        }
        others.find(|other| is_online(*other)).map_or(Decision::Leave(DamageState::Waiting), Decision::Replace)
    }

    /// The file, for people.
    fn shown(&self, object: ObjectId) -> String {
        match &self.file {
            Some((_, path)) => path.escape_ascii().to_string(),
            None => format!("object {:016x} (a stripe unit, or a removed file)", object.0),
        }
    }
}

impl Damages {
    pub(crate) fn new(
        names: Names,
        world: Arc<dyn World>,
        coordinator: Arc<Coordinator>,
        (copies, hold): (Arc<Copies>, Arc<Hold>),
        state: Arc<KnownDamage>,
    ) -> Self {
        Self { names, view: coordinator.published(), world, coordinator, copies, hold, state }
    }

    /// A disk server reports damaged replicas.
    pub(crate) fn report(self: &Arc<Self>, node: NodeId, report: DamageReport) {
        let DamageReport { store, damaged, whole } = report;
        if self.view.get().node_of(store) != Some(node) {
            return;
        }
        let groups: Vec<GroupId> = {
            let groups = self.coordinator.groups();
            let of_store = groups.all().values().filter(|group| group.members.iter().any(|one| one.store == store));
            of_store.map(|group| group.group).collect()
        };
        let is_object = |replica: &ReplicaId| *replica == ReplicaId::first(replica.object);
        for replica in damaged.into_iter().take(REPLICAS_MAX).filter(is_object) {
            if let Err(error) = self.damaged(store, replica.object, &groups) {
                tracing::error!(%store, %replica, %error, "cannot look up a damaged replica");
            }
        }
        for replica in whole.into_iter().take(REPLICAS_MAX).filter(is_object) {
            if let Err(error) = self.whole(store, replica.object, &groups) {
                tracing::error!(%store, %replica, %error, "cannot look up a replica that is intact again");
            }
        }
    }

    fn damaged(self: &Arc<Self>, store: StoreId, object: ObjectId, groups: &[GroupId]) -> Result<(), NsError> {
        // An object that the namespace does not know is about to be deleted, or was left over.
        let Some(found) = self.names.read(|read| Located::find(read, groups, object))? else { return Ok(()) };
        let (view, now) = (self.view.get(), self.world.now());
        let damaged_too: BTreeSet<StoreId> = {
            let state = self.state.lock();
            found.holders.iter().copied().filter(|other| state.known.contains_key(&(*other, object))).collect()
        };
        let decision = found.decide(
            store,
            |other| view.is_online(now, other),
            |other| view.servers.is_removed_as_lost(other),
            |other| damaged_too.contains(&other),
        );
        // The other store may have it no longer, as the names are older than the stores.
        let decision = match decision {
            Decision::Replace(_) | Decision::Leave(DamageState::NoOther) if self.hold.holds(object) => {
                Decision::Leave(DamageState::Waiting)
            }
            decision => decision,
        };
        let state = match decision {
            Decision::Ignore => {
                self.state.lock().known.remove(&(store, object));
                return Ok(());
            }
            Decision::Leave(state) => state,
            Decision::Replace(_) => DamageState::Repairing,
        };
        let known = Known { group: found.group, state, heard: now };
        let is_news = {
            let mut all = self.state.lock();
            let before = all.known.get(&(store, object)).map(|before| before.state);
            // Only a replica whose state is recorded is looked at later.
            let is_recorded = !matches!(decision, Decision::Replace(_));
            if is_recorded && (before.is_some() || all.known.len() < KNOWN_MAX) {
                all.known.insert((store, object), known);
            }
            before != Some(state)
        };
        match decision {
            Decision::Replace(source) => self.replace(store, object, found, source, known),
            Decision::Leave(DamageState::NoOther) => {
                if is_news {
                    tracing::error!(
                        "{} is damaged on {}, and no other store has it intact: write it again from its source",
                        found.shown(object),
                        view.servers.shown(store)
                    );
                }
                self.mark(&found, object, &view.servers.shown(store));
            }
            Decision::Leave(_) | Decision::Ignore => {}
        }
        Ok(())
    }

    fn replace(self: &Arc<Self>, store: StoreId, object: ObjectId, found: Located, source: StoreId, known: Known) {
        let Some(AtRest { state, .. }) = found.at_rest else { return };
        let this = Arc::clone(self);
        let op = MissDamaged { group: found.group, object, state, store, source };
        self.names.change_as_manager(self.world.wall(), Durability::Synced, op, move |result| match result {
            Ok(()) => {
                let shown = this.view.get().servers.shown(store);
                tracing::warn!("{} is damaged on {shown}: repair replaces that replica", found.shown(object));
                let mut state = this.state.lock();
                if state.known.len() < KNOWN_MAX {
                    state.known.insert((store, object), known);
                }
                drop(state);
                this.copies.look_soon();
            }
            // The object has changed meanwhile: the next report decides again.
            Err(error) if matches!(error.code(), ErrorCode::Stale | ErrorCode::NotFound) => {}
            Err(error) => tracing::error!(%store, %object, %error, "cannot record a damaged replica as missing"),
        });
    }

    fn mark(&self, found: &Located, object: ObjectId, store: &str) {
        let (Some((ino, _)), false) = (&found.file, found.is_marked) else { return };
        let value = namespace::damage_mark(&format!("damaged on {store}, and no other store has it intact"), object);
        let name = namespace::DAMAGED_MARK.to_vec();
        let op = SetXattr { of: XattrOf::Inode(*ino), name, value: value.into_bytes(), mode: XattrMode::Set };
        self.names.change_as_manager(self.world.wall(), Durability::Synced, op, unless_gone);
    }

    /// A replica is intact after all. One that counts as missing stays known: repair finds out whether it is the present version, and until then readers
    /// that have tried all others may need it.
    fn whole(&self, store: StoreId, object: ObjectId, groups: &[GroupId]) -> Result<(), NsError> {
        let found = self.names.read(|read| Located::find(read, groups, object))?;
        if found.as_ref().is_none_or(|found| !found.missing.contains(&store)) {
            self.state.lock().known.remove(&(store, object));
        }
        if let Some(found) = found {
            self.unmark(object, found);
        }
        Ok(())
    }

    /// Removes the mark of the object's file, unless another of its replicas is damaged without an intact one.
    fn unmark(&self, object: ObjectId, found: Located) {
        let (Some((ino, path)), true) = (found.file, found.is_marked) else { return };
        let is_hopeless = {
            let state = self.state.lock();
            let known = found.holders.iter().filter_map(|holder| state.known.get(&(*holder, object)));
            known.filter(|known| known.state == DamageState::NoOther).count() == found.holders.len()
        };
        if !is_hopeless {
            tracing::info!(path = %path.escape_ascii(), "the file has an intact replica again; it is not marked as damaged any more");
            let op = RemoveXattr { of: XattrOf::Inode(ino), name: namespace::DAMAGED_MARK.to_vec() };
            self.names.change_as_manager(self.world.wall(), Durability::Synced, op, unless_gone);
        }
    }

    /// Looks which damaged replicas have been replaced, and forgets those that are not reported any more.
    pub(crate) fn tick(&self, now: Time) {
        let looked: Vec<((StoreId, ObjectId), Known)> = {
            let mut state = self.state.lock();
            if now < state.next_look {
                return;
            }
            state.next_look = now + LOOK;
            state.known.retain(|_, known| known.state == DamageState::Repairing || now.since(known.heard) < FORGET);
            let after = state.looked.map_or(Bound::Unbounded, Bound::Excluded);
            let ahead = state.known.range((after, Bound::Unbounded));
            let looked: Vec<_> = ahead.take(LOOKED_MAX).map(|(replica, known)| (*replica, *known)).collect();
            state.looked = looked.last().filter(|_| looked.len() == LOOKED_MAX).map(|(replica, _)| *replica);
            looked
        };
        for ((store, object), known) in looked {
            let found = self.names.read(|read| Located::find(read, &[known.group], object));
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    tracing::error!(%store, %object, %error, "cannot look up a damaged replica");
                    continue;
                }
            };
            let is_repairing = known.state == DamageState::Repairing;
            if found.as_ref().is_some_and(|found| found.missing.contains(&store)) {
                // A change has left the replica out: repair replaces it.
                if !is_repairing && let Some(known) = self.state.lock().known.get_mut(&(store, object)) {
                    known.state = DamageState::Repairing;
                }
                continue;
            }
            let counts = found.as_ref().is_some_and(|found| found.holders.contains(&store));
            if counts && !is_repairing {
                continue;
            }
            // Otherwise the file was removed, or the store has left the group.
            let is_replaced = counts;
            {
                let mut state = self.state.lock();
                state.known.remove(&(store, object));
                state.repaired += u64::from(is_replaced);
            }
            if let Some(found) = found.filter(|_| is_replaced) {
                let shown = self.view.get().servers.shown(store);
                tracing::info!("{} is intact on {shown} again: repair has replaced it", found.shown(object));
                self.unmark(object, found);
            }
        }
    }

    /// The numbers of damaged replicas.
    pub(crate) fn counts(&self) -> DamageCounts {
        let state = self.state.lock();
        let mut counts = DamageCounts { repaired: state.repaired, ..DamageCounts::default() };
        for known in state.known.values() {
            *match known.state {
                DamageState::Repairing => &mut counts.repairing,
                DamageState::InUse | DamageState::Waiting => &mut counts.waiting,
                DamageState::NoOther => &mut counts.no_other,
            } += 1;
        }
        counts
    }

    /// Damaged replicas, at most `limit`.
    pub(crate) fn known(&self, limit: usize) -> Vec<(StoreId, ObjectId, Known)> {
        let state = self.state.lock();
        state.known.iter().take(limit).map(|((store, object), known)| (*store, *object, *known)).collect()
    }

    /// Whether a store's replica is known to be damaged.
    pub(crate) fn is_damaged(&self, store: StoreId, object: ObjectId) -> bool {
        self.state.has(store, object)
    }
}

/// A mark is set or removed. If the file was renamed or removed just now, the next report finds it.
fn unless_gone(result: Result<(), NsError>) {
    if let Err(error) = result
        && error.code() != ErrorCode::NotFound
        && error.code() != ErrorCode::NoAttribute
    {
        tracing::error!(%error, "cannot change the mark of a damaged file");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_REST: AtRest = AtRest { len: 1, sums: None, is_whole: true, epoch: 1, state: 1 };

    fn decided(holders: &[u64], missing: &[u64], online: &[u64], lost: &[u64], damaged: &[u64]) -> Decision {
        let stores = |numbers: &[u64]| numbers.iter().map(|number| StoreId(*number)).collect();
        let found = Located {
            group: GroupId(2),
            at_rest: Some(AT_REST),
            holders: stores(holders),
            missing: stores(missing),
            file: None,
            is_marked: false,
        };
        let is_in = |numbers: &[u64], store: StoreId| numbers.contains(&store.0);
        found.decide(
            StoreId(1),
            |other| is_in(online, other),
            |other| is_in(lost, other),
            |other| is_in(damaged, other),
        )
    }

    #[test]
    fn damaged_replica_is_replaced_only_if_an_intact_one_is_online() {
        use DamageState::{NoOther, Repairing, Waiting};
        assert_eq!(decided(&[1, 2, 3], &[], &[1, 3], &[], &[]), Decision::Replace(StoreId(3)));
        assert_eq!(decided(&[2], &[1], &[1, 2], &[], &[]), Decision::Leave(Repairing), "it counts as missing already");
        assert_eq!(decided(&[1, 2], &[], &[1], &[], &[]), Decision::Leave(Waiting));
        assert_eq!(decided(&[1], &[2], &[1, 2], &[], &[]), Decision::Leave(NoOther));
        assert_eq!(decided(&[1, 2], &[], &[1, 2], &[2], &[]), Decision::Leave(NoOther), "removed as lost");
        assert_eq!(decided(&[1, 2], &[], &[1, 2], &[], &[1, 2]), Decision::Leave(NoOther), "damaged, too");
        assert_eq!(decided(&[1, 2, 3], &[], &[1, 2, 3], &[], &[1, 2]), Decision::Replace(StoreId(3)));
        assert_eq!(decided(&[2, 3], &[], &[1, 2, 3], &[], &[]), Decision::Ignore, "its backfill has not come to it");
    }

    #[test]
    fn object_with_an_open_write_is_left_alone() {
        let stores = vec![StoreId(1), StoreId(2)];
        let found = Located {
            group: GroupId(2),
            at_rest: None,
            holders: stores,
            missing: Vec::new(),
            file: None,
            is_marked: false,
        };
        let decision = found.decide(StoreId(1), |_| true, |_| false, |_| false);
        assert_eq!(decision, Decision::Leave(DamageState::InUse));
    }
}
