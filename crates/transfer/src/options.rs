//! The options of a copy or a sync, as plain data.

use client::Settings;

use crate::context::Options;
use crate::filter::Filter;
use crate::local::Direct;
use crate::waits::{Shown, WaitNotices};

/// How to transfer.
#[derive(Clone, Debug)]
pub struct TransferOptions {
    /// Keep what was copied of a file when the copy of it ends early, for `resume`.
    pub partial: bool,
    /// Keep the times of files and, on this machine, their permission bits.
    pub preserve: bool,
    /// Selects names in trees.
    pub filter: Filter,
    /// Compare checksums.
    pub verify: bool,
    /// Make local files durable before they get their names.
    pub sync: bool,
    /// Files copied at a time.
    pub jobs: u16,
    /// Connections for reading one large file from a server.
    pub streams: u16,
    /// Whether to bypass the page cache on this machine.
    pub direct: Direct,
    /// The client's patience and its number of simultaneous requests.
    pub client: Settings,
    /// Print a line of JSON for each file, and one with the totals at the end.
    pub json: bool,
    /// Print no progress and nothing but errors.
    pub quiet: bool,
    /// Print each file that was copied.
    pub verbose: bool,
}

impl TransferOptions {
    /// Shows what `command` waits for.
    pub(crate) fn waits(&self, command: &'static str) -> WaitNotices {
        WaitNotices::new(if self.quiet { Shown::Off } else { Shown::On(command) })
    }

    /// The options for each file of a sync; it replaces, resumes and follows nothing, and makes no third-party copies.
    pub(crate) fn of_each_file(&self) -> Options {
        Options {
            force: false,
            resume: false,
            partial: self.partial,
            verify: self.verify,
            sync: self.sync,
            preserve: self.preserve,
            tpc: false,
            delegate: false,
            follow: false,
            streams: self.streams,
            direct: self.direct,
        }
    }
}

/// The options of `weir cp`.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// One source or more, then the target.
    pub paths: Vec<String>,
    /// Copy directories with everything in them.
    pub recursive: bool,
    /// Replace existing targets.
    pub force: bool,
    /// Continue what an earlier copy left.
    pub resume: bool,
    /// The target is the copy itself, also if it is a directory.
    pub no_target_directory: bool,
    /// Have the target's server fetch from the source's server.
    pub third_party: bool,
    /// Delegate a proxy to the target's server, with which it reads the source.
    pub delegate: bool,
    /// Copy files that are being written to their end.
    pub follow: bool,
    /// Print the actions without doing them.
    pub dry_run: bool,
    /// How to transfer.
    pub how: TransferOptions,
}

/// The options of `weir sync`.
#[derive(Clone, Debug)]
pub struct SyncOptions {
    /// The directory to match.
    pub source: String,
    /// The directory to change; created if it does not exist.
    pub target: String,
    /// Remove what the source does not have, if everything else went well.
    pub delete: bool,
    /// Compare only lengths.
    pub size_only: bool,
    /// Compare lengths and modification times, and read only the files that differ in them.
    pub mtime: bool,
    /// Print the actions without doing them.
    pub dry_run: bool,
    /// How to transfer.
    pub how: TransferOptions,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The options of a copy without any.
    pub(crate) fn plain() -> TransferOptions {
        TransferOptions {
            partial: false,
            preserve: false,
            filter: Filter::default(),
            verify: true,
            sync: false,
            jobs: 1,
            streams: 1,
            direct: Direct::Auto,
            client: Settings::default(),
            json: false,
            quiet: true,
            verbose: false,
        }
    }
}
