//! Replicas that are complete once the journal is synced. All that are ready at one time share one sync, and a single thread waits for it.

use std::sync::Arc;

use cluster::replication::ObjectDigest;
use cluster::server::{Input, WorkPurpose, WorkResult};
use parking_lot::Mutex;
use store::Completed;

use super::DiskServer;
use super::replica::{Replica, told};
use super::store_shell::StoreShell;

/// The waiting replicas of one store.
#[derive(Default)]
pub(super) struct Completing(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: Vec<UnsyncedReplica>,
    /// A job syncs, and looks for more afterwards.
    is_synced: bool,
}

struct UnsyncedReplica {
    replica: Arc<Replica>,
    by: WorkPurpose,
    completed: Completed,
}

impl DiskServer {
    /// Tells the machine that the replica is complete as soon as that is durable. No other work on the replica starts before then. The caller must
    /// hold the replica's turn.
    pub(super) fn complete_when_synced(
        self: &Arc<Self>,
        shell: &Arc<StoreShell>,
        replica: &Arc<Replica>,
        by: WorkPurpose,
        completed: Completed,
    ) {
        replica.hold();
        let mut state = shell.completing.0.lock();
        state.waiting.push(UnsyncedReplica { replica: Arc::clone(replica), by, completed });
        let is_synced = std::mem::replace(&mut state.is_synced, true);
        drop(state);
        if !is_synced {
            self.sync_soon(shell);
        }
    }

    fn sync_soon(self: &Arc<Self>, shell: &Arc<StoreShell>) {
        let (this, shell) = (Arc::clone(self), Arc::clone(shell));
        self.world.run(Box::new(move || this.sync_completed(&shell)));
    }

    fn sync_completed(self: &Arc<Self>, shell: &Arc<StoreShell>) {
        let due = std::mem::take(&mut shell.completing.0.lock().waiting);
        let synced = match due.iter().map(|one| one.completed.seq).max() {
            #[cfg(any(test, feature = "planted"))]
            Some(_) if self.has(super::PlantedBug::CompleteBeforeSync) => Ok(()),
            Some(last) => shell.at.store.sync_journal_to(last).map_err(|error| told(&shell.at, &error)),
            None => Ok(()),
        };
        for UnsyncedReplica { replica, by, completed: Completed { len, crc32c, adler32, .. } } in due {
            let did = WorkResult::Completed(synced.map(|()| ObjectDigest { len, crc32c, adler32 }));
            self.after_work(shell, replica.replica, &did);
            replica.go_on();
            self.step(shell, Input::WorkResult { replica: replica.replica, by, did }, Some(&replica));
            self.work_off(shell, &replica);
        }
        let mut state = shell.completing.0.lock();
        state.is_synced = !state.waiting.is_empty();
        let goes_on = state.is_synced;
        drop(state);
        // Queue this behind other jobs. A store that always has something to sync must not keep a thread from the other stores.
        if goes_on {
            self.sync_soon(shell);
        }
    }
}
