//! The settings for the parts of a data directory.

use std::sync::Arc;
use std::time::Duration;

use journal::{BallastConfig, JournalConfig};

use store::{FreshMemory, RecentPages};

use crate::layout::BALLAST_FILE;

/// How to open the parts. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Size of a segment of the journal.
    pub segment_bytes: u64,
    /// Space held back for a full disk; see [`Settings::ballast_bytes`].
    pub ballast: u64,
    /// Memory of an index for the entries that are not in its tables yet.
    pub overlay: u64,
    /// Memory for the cache of each index.
    pub cache: u64,
    /// Space that the store leaves free on its disk; `None`: the store's default.
    pub floor: Option<u64>,
    /// Memory for recently written pages; the stores of a node share it. `None`: there is none.
    pub recent: Option<Arc<RecentPages>>,
    /// How long the namespace keeps unfinished uploads.
    pub uploads_kept: Duration,
}

impl Settings {
    /// The same, with about `bytes` of memory for recently written pages. All stores that are opened with these settings share it.
    #[must_use]
    pub fn with_recent(self, bytes: u64) -> Self {
        Self { recent: Some(Arc::new(RecentPages::new(bytes, FreshMemory::Prepared))), ..self }
    }

    /// The journal's configuration by these settings, with all streams.
    #[must_use]
    pub fn journal(&self) -> JournalConfig {
        // With less than a segment, the ballast would not help the journal.
        let ballast = BallastConfig { path: BALLAST_FILE.to_owned(), bytes: self.ballast_bytes() };
        JournalConfig { segment_bytes: self.segment_bytes, ballast: Some(ballast), ..JournalConfig::default() }
    }

    /// The size of the ballast: the configured one, and at least a segment of the journal.
    #[must_use]
    pub fn ballast_bytes(&self) -> u64 {
        self.ballast.max(self.segment_bytes)
    }
}
