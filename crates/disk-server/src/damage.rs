//! The damaged replicas of the stores, and the reports about them. The scrub and failed reads find damage; a new copy, a deletion or an intact read ends
//! it. The manager decides what becomes of a damaged replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::message::REPLICAS_MAX;
use cluster::server::{Found, Work, WorkResult};
use node::{DamageReport, FromDisk};
use parking_lot::Mutex;
use types::{ErrorCode, ReplicaId, StoreId};

use super::DiskServer;
use super::replica::Change;
use super::store_shell::StoreShell;

/// The most damaged replicas that a store remembers. A scrub that finds more waits until some are replaced.
pub const DAMAGED_MAX: usize = 4096;
/// How often the whole list is reported.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// How long the server reports that a damaged replica is intact again.
const WHOLE_FOR: Duration = Duration::from_secs(60);

/// The damaged replicas of one store.
#[derive(Default)]
pub(super) struct Damage(Mutex<State>);

#[derive(Default)]
struct State {
    damaged: BTreeSet<ReplicaId>,
    /// Replicas that the scrub must read soon: damaged ones that were written since and may be intact, and those with a page that a client could not read.
    /// At most [`DAMAGED_MAX`].
    suspects: BTreeSet<ReplicaId>,
    /// Replicas that were damaged and have been found intact, and when. At most [`REPLICAS_MAX`].
    whole: BTreeMap<ReplicaId, Time>,
    /// Rises with each change of the list of damaged replicas.
    changes: u64,
    /// Not reported yet.
    is_new: bool,
    reported: Time,
}

/// The list of damaged replicas is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{DAMAGED_MAX} replicas of this store are known to be damaged; replace its disk")]
pub struct TooManyDamaged;

impl Damage {
    /// Returns whether it is news.
    fn found(&self, replica: ReplicaId) -> Result<bool, TooManyDamaged> {
        let mut state = self.0.lock();
        if state.damaged.contains(&replica) {
            return Ok(false);
        }
        if state.damaged.len() >= DAMAGED_MAX {
            return Err(TooManyDamaged);
        }
        state.damaged.insert(replica);
        state.whole.remove(&replica);
        state.changes += 1;
        state.is_new = true;
        Ok(true)
    }

    /// The damaged bytes are gone. `now`, if the replica was found intact. Returns whether it was damaged.
    fn ended(&self, replica: ReplicaId, now: Option<Time>) -> bool {
        let mut state = self.0.lock();
        if !state.damaged.remove(&replica) {
            return false;
        }
        state.suspects.remove(&replica);
        state.changes += 1;
        if let Some(now) = now {
            if state.whole.len() >= REPLICAS_MAX {
                state.whole.pop_first();
            }
            state.whole.insert(replica, now);
            state.is_new = true;
        }
        true
    }

    /// A write has ended.
    fn written(&self, replica: ReplicaId) {
        let mut state = self.0.lock();
        if state.damaged.contains(&replica) {
            state.suspects.insert(replica);
        }
    }

    /// A client could not read a page.
    pub(super) fn suspect(&self, replica: ReplicaId) {
        let mut state = self.0.lock();
        if !state.damaged.contains(&replica) && state.suspects.len() < DAMAGED_MAX {
            state.suspects.insert(replica);
        }
    }

    /// The manager may not know the damaged replicas.
    pub(super) fn report_soon(&self) {
        self.0.lock().is_new = true;
    }

    pub(super) fn is_damaged(&self, replica: ReplicaId) -> bool {
        self.0.lock().damaged.contains(&replica)
    }

    /// The reports that are due.
    fn reports(&self, now: Time, store: StoreId) -> Vec<DamageReport> {
        let mut state = self.0.lock();
        if !state.is_new && now.since(state.reported) < REPORT_EVERY {
            return Vec::new();
        }
        (state.is_new, state.reported) = (false, now);
        state.whole.retain(|_, since| now.since(*since) < WHOLE_FOR);
        let mut whole: Vec<ReplicaId> = state.whole.keys().copied().collect();
        let damaged: Vec<ReplicaId> = state.damaged.iter().copied().collect();
        let mut reports: Vec<DamageReport> = damaged
            .chunks(REPLICAS_MAX)
            .map(|some| DamageReport { store, damaged: some.to_vec(), whole: std::mem::take(&mut whole) })
            .collect();
        if !whole.is_empty() {
            reports.push(DamageReport { store, damaged: Vec::new(), whole });
        }
        reports
    }
}

impl DiskServer {
    /// A replica of a store was found damaged: it is reported to the manager until it is replaced. Returns whether that is news.
    ///
    /// # Errors
    /// If too many replicas of this store are damaged already.
    pub fn found_damaged(&self, store: StoreId, replica: ReplicaId) -> Result<bool, TooManyDamaged> {
        self.stores.get(&store).map_or(Ok(false), |shell| shell.damage.found(replica))
    }

    /// A replica was read and is intact. Returns whether it counted as damaged until now.
    pub fn found_whole(&self, store: StoreId, replica: ReplicaId) -> bool {
        let now = self.world.now();
        self.stores.get(&store).is_some_and(|shell| shell.damage.ended(replica, Some(now)))
    }

    /// The damaged replicas of a store, in order.
    #[must_use]
    pub fn damaged(&self, store: StoreId) -> Vec<ReplicaId> {
        self.stores.get(&store).map(|shell| shell.damage.0.lock().damaged.iter().copied().collect()).unwrap_or_default()
    }

    /// Replicas of a store that the scrub must read soon, each once: they may be damaged, or intact again.
    #[must_use]
    pub fn take_suspects(&self, store: StoreId) -> Vec<ReplicaId> {
        let taken = self.stores.get(&store).map(|shell| std::mem::take(&mut shell.damage.0.lock().suspects));
        taken.unwrap_or_default().into_iter().collect()
    }

    /// The number of changes of that list so far.
    #[must_use]
    pub fn damage_changes(&self, store: StoreId) -> u64 {
        self.stores.get(&store).map_or(0, |shell| shell.damage.0.lock().changes)
    }

    /// Reports damaged replicas if that is due, while the server has a session.
    pub(super) fn report_damage(&self, now: Time) {
        if self.session().is_none() {
            return;
        }
        for shell in self.stores.values() {
            for report in shell.damage.reports(now, shell.at.store_id) {
                self.world.to_manager(FromDisk::Damage(report));
            }
        }
    }

    /// Work on a replica is about to begin: its bytes go.
    pub(super) fn before_work(shell: &StoreShell, replica: ReplicaId, work: &Work<Change>) {
        if matches!(work, Work::Renew | Work::Delete) {
            shell.damage.ended(replica, None);
        }
    }

    /// Work on a replica has shown whether it is damaged.
    pub(super) fn after_work(&self, shell: &Arc<StoreShell>, replica: ReplicaId, did: &WorkResult<Change>) {
        match did {
            WorkResult::Looked(Ok(Found::Same)) => _ = shell.damage.ended(replica, Some(self.world.now())),
            // A full list is reported already, and the log names each.
            WorkResult::Looked(Ok(Found::Damaged))
            | WorkResult::Read(Err(ErrorCode::Checksum | ErrorCode::Damaged))
                if shell.damage.found(replica) == Ok(true) =>
            {
                tracing::error!(store = %shell.at.store_id, %replica, "a replica is damaged on the disk");
            }
            WorkResult::Completed(Ok(_)) | WorkResult::Interrupted(Ok(_)) => shell.damage.written(replica),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use types::ObjectId;

    use super::*;

    fn replica(object: usize) -> ReplicaId {
        ReplicaId::first(ObjectId(object as u64))
    }

    fn at(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    #[test]
    fn damage_is_reported_at_once_and_again_until_it_has_ended() {
        let (damage, store) = (Damage::default(), StoreId(3));
        let report = |damaged: &[usize], whole: &[usize]| DamageReport {
            store,
            damaged: damaged.iter().copied().map(replica).collect(),
            whole: whole.iter().copied().map(replica).collect(),
        };
        assert_eq!(damage.reports(at(100), store), []);
        assert_eq!((damage.found(replica(1)), damage.found(replica(1))), (Ok(true), Ok(false)));
        damage.found(replica(2)).unwrap();
        assert_eq!(damage.reports(at(101), store), [report(&[1, 2], &[])]);
        assert_eq!(damage.reports(at(102), store), [], "it was reported just now");
        assert_eq!(damage.reports(at(111), store), [report(&[1, 2], &[])], "the first report may be lost");
        // One is replaced, the other was read again.
        assert!(damage.ended(replica(1), None) && !damage.ended(replica(1), None));
        assert!(damage.ended(replica(2), Some(at(112))));
        assert_eq!(damage.reports(at(113), store), [report(&[], &[2])]);
        assert_eq!(damage.reports(at(123), store), [report(&[], &[2])]);
        assert_eq!(damage.reports(at(175), store), []);
    }

    #[test]
    fn damaged_replica_that_was_written_is_read_again() {
        let damage = Damage::default();
        damage.written(replica(1));
        damage.found(replica(1)).unwrap();
        assert_eq!(damage.0.lock().suspects, [].into());
        damage.written(replica(1));
        assert_eq!(damage.0.lock().suspects, [replica(1)].into());
        damage.ended(replica(1), None);
        assert_eq!(damage.0.lock().suspects, [].into());
    }

    #[test]
    fn a_long_list_is_reported_in_parts_and_is_bounded() {
        let (damage, store) = (Damage::default(), StoreId(3));
        for object in 0..DAMAGED_MAX {
            damage.found(replica(object)).unwrap();
        }
        assert_eq!(damage.found(replica(DAMAGED_MAX)), Err(TooManyDamaged));
        assert_eq!(damage.found(replica(0)), Ok(false));
        let reports = damage.reports(at(1), store);
        assert!(reports.iter().all(|report| report.damaged.len() <= REPLICAS_MAX));
        let all: Vec<ReplicaId> = reports.into_iter().flat_map(|report| report.damaged).collect();
        assert_eq!(all, (0..DAMAGED_MAX).map(replica).collect::<Vec<_>>());
        damage.ended(replica(7), None);
        assert_eq!(damage.found(replica(DAMAGED_MAX)), Ok(true));
    }
}
