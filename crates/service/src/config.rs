//! What a service is told when it starts: how much it may use, how long it waits. Every bound stands here, with what it costs.

use std::sync::Arc;
use std::time::Duration;

use types::BootId;

use crate::striped::Striper;
use crate::third_party::Pull;

/// Everything [`crate::Service::start`] needs besides what it stands on.
#[derive(Clone, Debug)]
pub struct Config {
    /// This kernel's boot, as the log has it (`Journal::boot`). Unsynced bytes of files in the making are trusted only while it is the same.
    pub boot: BootId,
    /// Bounds.
    pub limits: Limits,
    /// Time-outs and periods.
    pub times: Times,
    /// Kept uploads are not forgotten when their time is over: after a repair they may be more than they seem.
    pub keep_uploads: bool,
    /// What fetches files for third-party copies; `None`: they are not offered.
    pub pull: Option<Fetcher>,
    /// What opens striped files, at a disk server of a cluster; `None`: it does not.
    pub striper: Option<PutsTogether>,
    /// A planted bug, to prove that the tests find it.
    #[cfg(any(test, feature = "planted"))]
    pub planted: Option<Planted>,
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
pub enum Planted {
    /// An old handle goes on writing beside the one that took its file up.
    ForgetFence,
    /// A close is answered when the commit is in the kernel, not on the disk.
    AcknowledgeBeforeSync,
    /// Pages with wrong checksums are written as they came.
    StoreBadPages,
    /// A close is taken for what it says, whatever was announced.
    BelieveClose,
    /// At the end of the grace period everything is completed.
    CompleteEverything,
    /// A file in the making is shown as long as its highest byte.
    ShowUndurable,
    /// A restart forgets who was writing.
    ForgetWriters,
    /// Any handle number of another session is served as one's own first file.
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
            #[cfg(any(test, feature = "planted"))]
            planted: None,
        }
    }

    /// Whether the bug is planted. Always false in a release.
    #[must_use]
    pub fn has(&self, bug: Planted) -> bool {
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

/// Bounds on what callers can make the service hold.
///
/// An open file costs about 200 bytes, and a transfer one buffer while data moves: of [`WRITE_BYTES`] or [`TRANSFER_BYTES`] from the pool, or, when
/// the pool is empty, of [`SMALL_TRANSFER_BYTES`] of its own. A vectored read's range lies whole in its buffer, so a buffer may grow to 2 MiB: those of
/// the pool, and as many others as the pool has buffers (256 MiB in all by default); more are asked to wait.
///
/// Each file that is open for writing may hold up to 64 KiB (small files) or 64 pages and 4,096 ranges (large ones, about
/// 350 KiB) in the store until it is closed: `writers_memory_max` bounds that. An open for writing beyond it is told to wait.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open files of one session.
    pub handles_per_session_max: usize,
    /// Open files of all sessions together, shared in the same way.
    pub handles_max: usize,
    /// Bytes that all files open for writing may hold in memory together, counted by the most that each can hold: 64 KiB if it
    /// was announced to be no longer, 384 KiB otherwise. Shared in the same way. What was being written when the server was
    /// started goes on whether there is room or not.
    pub writers_memory_max: u64,
    /// Transfer buffers in all. Each takes memory only once it has been used.
    pub transfer_buffers_max: usize,
    /// Files that are fetched from other servers at a time, each by a thread of its own.
    pub pulls_max: usize,
    /// Pieces of data of more than 64 KiB (up to a few MiB) that are moved between clients and the disk at a time; more wait, and users,
    /// then their connections, take turns.
    pub transfers_max: usize,
    /// Threads that store what connections have received while these receive more; a connection that finds them all at work
    /// stores for itself.
    pub storers: usize,
    /// Threads that do long work (closing and re-opening big files, reading for a checksum).
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
            storers: usual_storers(),
            workers: 4,
            worker_queue_max: 1024,
        }
    }
}

/// Two for each processor, so that one is worked on while another waits for the disk; at least as many as keep a fast disk busy.
fn usual_transfers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).saturating_mul(2).max(16)
}

/// Enough that all processors are busy, and the disk.
fn usual_storers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).clamp(4, 32)
}

/// Bytes of a transfer buffer from the pool: one step of a large read, or of a write while there is none of
/// [`WRITE_BYTES`].
pub const TRANSFER_BYTES: usize = 1 << 20;
/// Bytes of a buffer for large writes: direct writes of this size are the fastest. There is one for every
/// [`WRITE_BUFFERS_SHARE`] transfer buffers.
pub const WRITE_BYTES: usize = 4 << 20;
/// Bytes of a readv's answer that go out together, unless one segment is longer. Small, so that what many connections have gathered is
/// still in the processor's cache when it is sent: a quarter of a MiB costs 0.85 of the CPU that 1 MiB does.
pub const READV_STEP_BYTES: usize = 256 << 10;
/// Transfer buffers for each buffer of [`WRITE_BYTES`]: so these take no more memory together than the others.
pub const WRITE_BUFFERS_SHARE: usize = 4;
/// The same while the pool has none to give.
pub const SMALL_TRANSFER_BYTES: usize = 64 << 10;

/// Time-outs and periods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// How long a file in the making waits for its writer to come back.
    pub grace: Duration,
    /// How often open writers are synced and the rest of the house-keeping is done.
    pub keeper: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { grace: Duration::from_secs(60), keeper: Duration::from_secs(1) }
    }
}
