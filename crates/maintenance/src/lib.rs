//! Keeps a node's data sound and recovers it:
//! - [`fsck`]: the check of a stopped node and its repairs;
//! - [`index_repair`]: the repair of the parts below names and objects;
//! - [`backup`]: backups of the namespace, and restores;
//! - [`move_engine`]: the namespace from the embedded engine into a database, and back;
//! - [`export`]: plain files from a node that will not serve again;
//! - [`scrub`]: the scrub of a running node.
//!
//! Promises:
//! - A command changes nothing that no option names.
//! - It moves aside or marks a possible only copy, and never removes it.
//! - An interrupted repair leaves a mark ([`foundation::marks`]) and continues when it is run again.
//! - Commands print their result on stdout and messages for people on stderr, and return the matching exit code.
//!
//! The crate knows no server and no command line: the caller passes in the access to a running node.

pub mod backup;
pub mod damage_mark;
mod error;
pub mod export;
pub mod fsck;
pub mod index_repair;
pub mod move_engine;
pub mod scrub;

use std::path::Path;
use std::time::SystemTime;

use foundation::{DataDir, DataDirError, IfNew};
use types::Timestamp;

pub use error::Error;

/// Accepts and locks the data directory at `path`. Does not create one.
fn open_data_dir(path: &Path) -> Result<DataDir, DataDirError> {
    DataDir::open(path, IfNew::Refuse, now())
}

/// The time of day.
fn now() -> Timestamp {
    SystemTime::now().into()
}
