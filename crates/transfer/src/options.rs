//! What is copied, and how: what a command line says, as plain data.

use client::Settings;

use crate::context::Options;
use crate::filter::Filter;
use crate::local::Direct;

/// How a copy or a sync transfers.
#[derive(Clone, Debug)]
pub struct TransferOptions {
    /// Keep the times of files and, on this machine, their permission bits.
    pub preserve: bool,
    /// Which names in trees.
    pub filter: Filter,
    /// Compare checksums.
    pub verify: bool,
    /// Make local files durable before they get their names.
    pub sync: bool,
    /// Files that are copied at a time.
    pub jobs: u16,
    /// Connections for one large file that is read from a server.
    pub streams: u16,
    /// Past the page cache on this machine?
    pub direct: Direct,
    /// How patient the client is, and how many requests it has under way.
    pub client: Settings,
    /// Print a line of JSON for each file, and one with the sums at the end.
    pub json: bool,
    /// Show no progress, and nothing but errors.
    pub quiet: bool,
}

impl TransferOptions {
    /// What of it concerns each file; nothing is replaced, resumed or left to servers.
    pub(crate) fn of_each_file(&self) -> Options {
        Options {
            force: false,
            resume: false,
            verify: self.verify,
            sync: self.sync,
            preserve: self.preserve,
            tpc: false,
            streams: self.streams,
            direct: self.direct,
        }
    }
}

/// What is copied.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// One source or more, and the target last.
    pub paths: Vec<String>,
    /// Copy directories with all that is in them.
    pub recursive: bool,
    /// Replace what is at the target.
    pub force: bool,
    /// Go on with what an earlier copy has left.
    pub resume: bool,
    /// Let the target's server fetch from the source's.
    pub third_party: bool,
    /// How.
    pub how: TransferOptions,
}

/// What is made like what.
#[derive(Clone, Debug)]
pub struct SyncOptions {
    /// The directory to be like.
    pub source: String,
    /// The directory to change; made if it is not there.
    pub target: String,
    /// Remove what the source does not have. Only if everything else went well.
    pub delete: bool,
    /// Compare lengths alone.
    pub size_only: bool,
    /// Compare lengths and times of the last change, and read only what differs in them.
    pub mtime: bool,
    /// Print what would be done, and do nothing.
    pub dry_run: bool,
    /// How.
    pub how: TransferOptions,
}
