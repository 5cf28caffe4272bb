//! The interface to local disks: what weir needs from a file system. It knows nothing about the contents of files.
//!
//! [`Disk`] is a directory on a local file system; [`DiskFile`] is an open file. The real one makes system calls. The
//! simulated one (feature `simulated`) keeps everything in memory and remembers unsynced changes. At a crash it loses,
//! tears, zeroes and reorders them by seed. Crash tests of the other crates run on its images.
//!
//! Paths are relative to the disk's root, with `/` between plain ASCII parts that weir chooses.

mod buffer;
mod directory;
mod error;
mod real;
mod removal;
mod replace;
#[cfg(feature = "simulated")]
mod sim;
mod traits;

pub use buffer::{ALIGNMENT, AlignedBuf};
pub use directory::{Directory, Named};
pub use error::{DiskError, DiskOp};
pub use real::RealDisk;
pub use removal::Removal;
pub use replace::replace_file;
#[cfg(feature = "simulated")]
pub use sim::{CrashFaults, CrashReport, SimDisk};
pub use traits::{Access, Disk, DiskFile, Entry, Fetched, OpenOptions, Space};
