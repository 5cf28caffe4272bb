//! What keeps a node's data sound and brings it back: the check of a stopped node and its repairs ([`fsck`]), the repair of what lies under
//! names and objects ([`index_repair`]), backups of the namespace and their way back ([`backup`]), files out of a node that will not serve again
//! ([`export`]), and the scrub of a running node ([`scrub`]).
//!
//! Promises: nothing is changed that an option does not name; what may be the only copy of something is moved aside or marked, never removed;
//! a repair that is interrupted leaves a mark ([`foundation::marks`]) and goes on when it is run again. Commands print their result on stdout and
//! what a person should know on stderr, and give the exit code that fits.
//!
//! The crate knows no server and no command line: a running node is asked through what the caller hands in.

pub mod backup;
pub mod damage_mark;
mod error;
pub mod export;
pub mod fsck;
pub mod index_repair;
pub mod scrub;

use std::path::Path;
use std::time::SystemTime;

use foundation::{DataDir, DataDirError, IfNew};
use types::Timestamp;

pub use error::Error;

/// The data directory at `path`, accepted and locked; none is made.
fn open_data_dir(path: &Path) -> Result<DataDir, DataDirError> {
    DataDir::open(path, IfNew::Refuse, now())
}

/// The time of day.
fn now() -> Timestamp {
    SystemTime::now().into()
}
