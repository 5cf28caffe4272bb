//! The scrubs of a disk server: one for each store, with its own position and rate, because each store has a disk of its own. They report damage to the
//! disk server, which reports it to the manager.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Config;
use control::{ControlRequest, Reply};
use disk::Disk;
use disk_server::{DAMAGED_MAX, DiskServer};
use maintenance::scrub::{Findings, Scrub, ScrubConfig, Status, damaged_file};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use types::{ReplicaId, StoreId};

use crate::Failure;
use crate::exit::Exit;
use crate::served_stores::ServedStore;

/// When suspects with an open write are read again.
const SUSPECTS_AGAIN: Duration = Duration::from_secs(60);

/// The scrub of one store, as the commands show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct StoreScrubView {
    /// The store's number.
    pub(crate) store: StoreId,
    /// Its directory.
    pub(crate) dir: String,
    /// Its replicas that are damaged now, whoever has found them.
    pub(crate) damaged_now: u64,
    /// The state of its scrub.
    #[serde(flatten)]
    pub(crate) status: Status,
}

/// The scrubs of all stores of a disk server.
pub(crate) struct StoreScrubs(Vec<StoreScrub>);

struct StoreScrub {
    store: StoreId,
    dir: PathBuf,
    scrub: Scrub,
    findings: Arc<StoreFindings>,
}

impl StoreScrubs {
    /// Starts them.
    pub(crate) fn start(
        stores: &[ServedStore],
        server: &Arc<DiskServer>,
        config: &Config,
    ) -> Result<Arc<Self>, Failure> {
        let start = |served: &ServedStore| {
            let foundation = &served.foundation;
            let (store, disk) = (foundation.objects.id, Arc::clone(&foundation.disk));
            let suspects = damaged_file::read(&*disk).unwrap_or_else(|error| {
                tracing::warn!(%store, %error, "the list of damaged replicas cannot be read; the scrub finds them again");
                BTreeSet::new()
            });
            let findings = Arc::new(StoreFindings {
                server: Arc::clone(server),
                store,
                disk: Arc::clone(&disk),
                known: Mutex::new(Known { suspects, told: Instant::now(), written: 0 }),
            });
            let config = ScrubConfig {
                rate: config.scrub_rate,
                period: config.scrub_period,
                created: u64::try_from(foundation.made.secs()).unwrap_or(0),
            };
            let told = Arc::clone(&findings) as Arc<dyn Findings>;
            let scrub = Scrub::start(disk, Arc::clone(&foundation.objects.store), told, config)
                .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot start the scrub of a store"))?;
            Ok(StoreScrub { store, dir: served.table.dir.clone(), scrub, findings })
        };
        Ok(Arc::new(Self(stores.iter().map(start).collect::<Result<_, Failure>>()?)))
    }

    /// Saves what has changed. Call it about every second.
    pub(crate) fn look(&self) {
        for one in &self.0 {
            one.findings.keep_changes();
            if one.findings.has_due_suspects() {
                one.scrub.read_suspects_soon();
            }
        }
    }

    /// The state of each.
    pub(crate) fn views(&self) -> Vec<StoreScrubView> {
        let view = |one: &StoreScrub| StoreScrubView {
            store: one.store,
            dir: one.dir.display().to_string(),
            damaged_now: one.findings.server.damaged(one.store).len() as u64,
            status: one.scrub.status(),
        };
        self.0.iter().map(view).collect()
    }

    /// Answers a request about the scrub; `None`: the request is about something else.
    pub(crate) fn answer(&self, ask: &ControlRequest) -> Option<Reply> {
        match ask {
            ControlRequest::ScrubStatus => {}
            ControlRequest::ScrubNow { rate } => {
                if let Err(why) = self.0.iter().try_for_each(|one| one.scrub.now(*rate)) {
                    return Some(Reply::Refused(why));
                }
            }
            ControlRequest::ScrubStop => self.0.iter().for_each(|one| one.scrub.give_up()),
            _ => return None,
        }
        Some(Reply::long(&BTreeMap::from([("stores", self.views())])))
    }

    /// Stops them, and saves their positions. Call it before the stores are closed.
    pub(crate) fn stop(&self) {
        for one in &self.0 {
            one.scrub.stop();
            one.findings.keep_changes();
        }
    }
}

/// The findings about one store.
struct StoreFindings {
    server: Arc<DiskServer>,
    store: StoreId,
    disk: Arc<dyn Disk>,
    known: Mutex<Known>,
}

struct Known {
    /// Replicas that must be read before others: those that were damaged in the last run of the process, and those that the server suspects.
    suspects: BTreeSet<ReplicaId>,
    /// When the scrub was last told to read them.
    told: Instant,
    /// The number of the change of the server's list that the file has.
    written: u64,
}

impl Known {
    /// Takes in new suspects, as far as there is room; a pass of the scrub comes to the others. Returns whether there are new ones.
    fn suspect(&mut self, new: Vec<ReplicaId>) -> bool {
        let before = self.suspects.len();
        for replica in new {
            if self.suspects.len() >= DAMAGED_MAX {
                break;
            }
            self.suspects.insert(replica);
        }
        self.suspects.len() > before
    }
}

impl StoreFindings {
    /// Saves the list of damaged replicas if it has changed.
    fn keep_changes(&self) {
        let mut known = self.known.lock();
        if self.server.damage_changes(self.store) != known.written {
            self.keep(&mut known);
        }
    }

    /// Whether the scrub must read suspects now: there are new ones, or some had an open write the last time.
    fn has_due_suspects(&self) -> bool {
        let new = self.server.take_suspects(self.store);
        let mut known = self.known.lock();
        let had_some = !known.suspects.is_empty();
        let is_due = known.suspect(new) || (had_some && known.told.elapsed() >= SUSPECTS_AGAIN);
        if is_due {
            known.told = Instant::now();
        }
        is_due
    }

    fn keep(&self, known: &mut Known) {
        let changes = self.server.damage_changes(self.store);
        let damaged = self.server.damaged(self.store).into_iter().chain(known.suspects.iter().copied()).collect();
        match damaged_file::write(&*self.disk, &damaged) {
            Ok(()) => known.written = changes,
            Err(error) => {
                tracing::warn!(store = %self.store, %error, "the list of damaged replicas cannot be saved; after a restart the scrub must find them again");
            }
        }
    }
}

impl Findings for StoreFindings {
    fn suspects(&self) -> Vec<ReplicaId> {
        self.known.lock().suspects.iter().copied().collect()
    }

    fn damaged(&self, replica: ReplicaId, what: &str) -> Result<bool, String> {
        let found = self.server.found_damaged(self.store, replica).map_err(|error| error.to_string());
        let mut known = self.known.lock();
        // Also if there is no room for it: reading it again and again would not help. A pass of the scrub comes to it.
        known.suspects.remove(&replica);
        if found? {
            tracing::error!("scrub: replica {replica} on store {} is damaged on the disk: {what}", self.store);
            // Before the scrub's position moves on, so that a kill does not forget it.
            self.keep(&mut known);
        }
        Ok(true)
    }

    fn whole(&self, replica: ReplicaId) -> Result<(), String> {
        if self.server.found_whole(self.store, replica) {
            tracing::info!("scrub: replica {replica} on store {} reads as it was written again", self.store);
        }
        self.gone(replica);
        Ok(())
    }

    fn gone(&self, replica: ReplicaId) {
        let mut known = self.known.lock();
        if known.suspects.remove(&replica) {
            self.keep(&mut known);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::ObjectId;

    use super::*;

    #[test]
    fn suspects_are_bounded() {
        let mut known = Known { suspects: BTreeSet::new(), told: Instant::now(), written: 0 };
        let some = |from: usize| (from..from + DAMAGED_MAX).map(|object| ReplicaId::first(ObjectId(object as u64)));
        assert!(known.suspect(some(1).collect()));
        assert!(!known.suspect(some(10_000).collect()), "there is no room");
        assert_eq!(known.suspects, some(1).collect());
        known.suspects.pop_first();
        assert!(known.suspect(some(10_000).collect()));
        assert_eq!(known.suspects.len(), DAMAGED_MAX);
    }
}
