//! What a manager stands on: its data directory with a log, the names and their committer. The same parts as a single node's
//! ([`crate::foundation`]), without a store.

use std::sync::Arc;

use disk::Disk;
use journal::{Ballast, Journal, Opened, StreamId};
use kv::{Embedded, LoggedIndex, Recovery};
use namespace::Namespace;
use types::Timestamp;

use crate::config::Config;
use crate::datadir::DataDir;
use crate::foundation::{Ground, OpenError, Purpose, disk_of, open_namespace};
use crate::startup_report::{StartupReport, of_parts};

/// What is below a manager.
pub struct ManagerFoundation {
    /// The data directory.
    pub disk: Arc<dyn Disk>,
    /// The log.
    pub journal: Arc<Journal>,
    /// The namespace's keys.
    pub index: Arc<LoggedIndex>,
    /// The committer.
    pub embedded: Arc<Embedded>,
    /// The tree.
    pub namespace: Arc<Namespace>,
    /// Space held back.
    pub ballast: Ballast,
    /// What opening found in the log.
    pub opened: Opened,
    /// And in the index.
    pub recovery: Recovery,
}

impl ManagerFoundation {
    /// Opens everything in `data`, recovering what an unclean stop left. `random` says how many numbers are passed over, `now` is the time of the start.
    pub fn open(data: &DataDir, config: &Config, random: u64, now: Timestamp) -> Result<Self, OpenError> {
        let ground = Ground::open(disk_of(data)?, config, Purpose::Serve, &[StreamId::NAMESPACE])?;
        let (index, recovery) = ground.namespace_index(data, config)?;
        let (embedded, namespace) = open_namespace(&index, config, namespace::count_to_pass_over(random), now)?;
        let Ground { disk, journal, opened, ballast, .. } = ground;
        Ok(Self { disk, journal, index, embedded, namespace, ballast, opened, recovery })
    }

    /// What opening found, for the log.
    #[must_use]
    pub fn in_words(&self, grace_secs: u64) -> Vec<StartupReport> {
        of_parts(&self.opened, &[("namespace", &self.recovery)], None, grace_secs)
    }

    /// Closes everything so that the next start is quick. Nobody may use it any more.
    pub fn close(&self) -> Result<(), OpenError> {
        self.embedded.stop();
        // Both are closed; the first error is what counts.
        let index = self.index.close().map_err(|source| OpenError::Index { which: "namespace", source });
        let journal = self.journal.close().map_err(OpenError::from);
        index.and(journal)
    }
}
