//! The configuration of a service: limits, with what they cost, and times.

use std::sync::Arc;
use std::time::Duration;

use types::{BootId, DigestKind, NsPath};

use crate::striped::Striper;
use crate::third_party::Pull;

/// Everything that [`crate::Service::start`] needs besides the parts below it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The boot of this machine's kernel, as the journal knows it (`Journal::boot`). The service trusts unsynced
    /// bytes of open writes only while it stays the same.
    pub boot: BootId,
    /// Limits.
    pub limits: Limits,
    /// Timeouts and periods.
    pub times: Times,
    /// Keeps uploads that have expired. After a repair they may be needed.
    pub keep_uploads: bool,
    /// Fetches files for third-party copies; `None`: this node does not offer them.
    pub pull: Option<Fetcher>,
    /// Opens striped files on a disk server of a cluster; `None`: this node does not.
    pub striper: Option<PutsTogether>,
    /// The checksums that clients may ask for, beside the two that every complete file has.
    pub digests: Vec<DigestKind>,
    /// What readers get that open a file while it is written.
    pub unfinished: UnfinishedPolicy,
    /// Takes the lines about logins, denials and changes.
    pub audit: audit::Log,
    /// A planted bug, to prove that the tests find it.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<PlantedBug>,
}

/// What a reader gets that opens a new file while it is being written, and does not say that it follows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Unfinished {
    /// An error that says who writes the file.
    #[default]
    Refuse,
    /// It waits until the file is closed.
    Wait,
    /// The part that is durable so far, and more as it arrives.
    Follow,
}

/// What readers get that open a new file while it is being written. A reader whose open says that it follows always gets
/// what is durable so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct UnfinishedPolicy {
    /// What the others get.
    pub usual: Unfinished,
    /// Directories in which all readers follow.
    pub followed: Vec<NsPath>,
}

impl UnfinishedPolicy {
    /// What a reader of `path` gets.
    #[must_use]
    pub fn of(&self, path: &NsPath) -> Unfinished {
        if self.followed.iter().any(|directory| path.is_at_or_below(directory)) {
            return Unfinished::Follow;
        }
        self.usual
    }
}

/// See [`Config::pull`].
#[derive(Clone)]
pub struct Fetcher(pub Arc<dyn Pull>);

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fetcher")
    }
}

/// See [`Config::striper`].
#[derive(Clone)]
pub struct PutsTogether(pub Arc<dyn Striper>);

impl std::fmt::Debug for PutsTogether {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PutsTogether")
    }
}

/// Bugs that the tests must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// A fenced handle continues to write after another handle has taken its file over.
    ForgetFence,
    /// A close is answered when the commit is in the kernel, but not yet on the disk.
    AcknowledgeBeforeSync,
    /// Pages with wrong checksums are written.
    StoreBadPages,
    /// A close succeeds even if fewer bytes arrived than were announced.
    BelieveClose,
    /// At the end of the grace period every file is completed.
    CompleteEverything,
    /// An open write is shown with the length of its highest byte.
    ShowUndurable,
    /// A restart forgets the open writes.
    ForgetWriters,
    /// A handle of another session is accepted.
    TrustHandles,
}

impl Config {
    /// The defaults.
    #[must_use]
    pub fn new(boot: BootId) -> Self {
        Self {
            boot,
            limits: Limits::default(),
            times: Times::default(),
            keep_uploads: false,
            pull: None,
            striper: None,
            digests: Vec::new(),
            unfinished: UnfinishedPolicy::default(),
            audit: audit::Log::off(),
            #[cfg(any(test, feature = "planted"))]
            planted: None,
        }
    }

    /// Whether this bug is planted. Always false in a release.
    #[must_use]
    pub fn has(&self, bug: PlantedBug) -> bool {
        #[cfg(any(test, feature = "planted"))]
        {
            self.planted == Some(bug)
        }
        #[cfg(not(any(test, feature = "planted")))]
        {
            let _ = bug;
            false
        }
    }
}

/// Limits on what callers can make the service hold.
///
/// An open file costs about 200 bytes. A transfer costs one buffer while data moves: [`WRITE_BYTES`] or
/// [`TRANSFER_BYTES`] from the pool, or its own [`SMALL_TRANSFER_BYTES`] when the pool is empty. A range of a
/// vectored read lies whole in its buffer, so a buffer may grow to 2 MiB. Buffers of the pool may grow, and as many
/// others as the pool has (256 MiB in all by default). Further readers are told to wait.
///
/// Each open write may hold memory in the store until it is closed: up to 64 KiB for a small file, or 64 pages and
/// 4,096 ranges (about 350 KiB) for a large one. `writers_memory_max` bounds the total. An open for writing beyond it
/// is told to wait.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open files of one session.
    pub handles_per_session_max: usize,
    /// Open files of all sessions together, shared among client machines.
    pub handles_max: usize,
    /// Bytes of memory for all open writes together, shared among client machines. Each counts with its maximum: 64
    /// KiB if the announced length is not longer, 384 KiB otherwise. Open writes of the last run continue even if
    /// they exceed it.
    pub writers_memory_max: u64,
    /// Transfer buffers in the pool. A buffer takes memory only after its first use.
    pub transfer_buffers_max: usize,
    /// Concurrent third-party copies into this node. Each has its own thread.
    pub pulls_max: usize,
    /// Blocks of more than 64 KiB (up to a few MiB) that move between clients and the disk at a time. Further blocks
    /// wait. Principals take turns, and so do the users of a principal and the connections of a user.
    pub transfers_max: usize,
    /// Bytes that the node reads ahead of its readers and that they have not read yet. 0: it does not read ahead.
    pub read_ahead: u64,
    /// Threads that store received data while its connection receives more. If all are busy, the connection stores
    /// its data itself.
    pub storers: usize,
    /// Threads for long work: closing and reopening large files, and opens that must wait.
    pub workers: usize,
    /// Jobs that may wait for these threads.
    pub worker_queue_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handles_per_session_max: 4096,
            handles_max: 65_536,
            writers_memory_max: 512 << 20,
            transfer_buffers_max: 64,
            pulls_max: 16,
            transfers_max: usual_transfers(),
            read_ahead: 64 << 20,
            storers: usual_storers(),
            workers: 4,
            worker_queue_max: 1024,
        }
    }
}

/// Two per processor, so that one works while another waits for the disk; at least enough to keep a fast disk busy.
fn usual_transfers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).saturating_mul(2).max(16)
}

/// Enough to keep all processors and the disk busy.
fn usual_storers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).clamp(4, 32)
}

/// Bytes of a transfer buffer from the pool: one step of a large read, or of a write while no buffer of
/// [`WRITE_BYTES`] is free.
pub const TRANSFER_BYTES: usize = 1 << 20;
/// Bytes of a buffer for large writes: direct writes of this size are the fastest. The pool has one for every
/// [`WRITE_BUFFERS_SHARE`] transfer buffers.
pub const WRITE_BYTES: usize = 4 << 20;
/// Bytes of a vectored read's answer that are sent together, unless one segment is longer. This is small enough that
/// the data of many connections is still in the processor's cache when it is sent: 256 KiB costs 0.85 of the CPU that
/// 1 MiB does.
pub const READV_STEP_BYTES: usize = 256 << 10;
/// Transfer buffers per buffer of [`WRITE_BYTES`], so that the latter take no more memory together than the former.
pub const WRITE_BUFFERS_SHARE: usize = 4;
/// Bytes of a buffer while the pool is empty. Smaller transfers need no slot.
pub const SMALL_TRANSFER_BYTES: usize = 64 << 10;

/// Timeouts and periods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// How long an open write waits for its writer to return.
    pub grace: Duration,
    /// The period of housekeeping, which also syncs open writes.
    pub keeper: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { grace: Duration::from_secs(60), keeper: Duration::from_secs(1) }
    }
}
