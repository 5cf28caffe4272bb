//! What a configuration says of the parts of a data directory.

use std::time::Duration;

use journal::{BallastConfig, JournalConfig};

use crate::layout::BALLAST_FILE;

/// How the parts are opened. All sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Size of a segment of the log.
    pub segment_bytes: u64,
    /// Space held back for a full disk; see [`Settings::ballast_bytes`].
    pub ballast: u64,
    /// Memory that an index may take for what is not in its tables yet.
    pub overlay: u64,
    /// Memory for the cache of each index.
    pub cache: u64,
    /// Space that the store leaves free on its disk; `None`: the store's own rule.
    pub floor: Option<u64>,
    /// How long the namespace keeps uploads that nobody finished.
    pub uploads_kept: Duration,
}

impl Settings {
    /// The log as these settings want it, with all streams.
    #[must_use]
    pub fn journal(&self) -> JournalConfig {
        // Less than a segment would be no help to the log.
        let ballast = BallastConfig { path: BALLAST_FILE.to_owned(), bytes: self.ballast_bytes() };
        JournalConfig { segment_bytes: self.segment_bytes, ballast: Some(ballast), ..JournalConfig::default() }
    }

    /// How much is held back: what is set, and at least a segment of the log.
    #[must_use]
    pub fn ballast_bytes(&self) -> u64 {
        self.ballast.max(self.segment_bytes)
    }
}
