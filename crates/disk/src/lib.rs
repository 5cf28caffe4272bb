//! The border to local disks: what weir asks of a file system, and nothing about what is written there.
//!
//! [`Disk`] is a folder on a local file system; [`DiskFile`] is an open file. The real one makes the system calls. The simulated one (feature `simulated`)
//! keeps everything in memory, remembers what was not synced, and at a crash loses, tears, zeroes and reorders it by seed. Crash tests of everything
//! above run on images of it.
//!
//! Paths are relative to the disk's root, with `/` between plain ASCII parts that weir itself makes up.

mod buffer;
mod error;
mod real;
mod removal;
mod replace;
#[cfg(feature = "simulated")]
mod sim;
mod traits;

pub use buffer::{ALIGNMENT, AlignedBuf};
pub use error::{DiskError, DiskOp};
pub use real::RealDisk;
pub use removal::Removal;
pub use replace::replace_file;
#[cfg(feature = "simulated")]
pub use sim::{CrashFaults, CrashReport, SimDisk};
pub use traits::{Access, Disk, DiskFile, Entry, OpenOptions, Space};
