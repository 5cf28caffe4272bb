//! What a data directory is, and how what it holds is opened: its FORMAT file and its lock, then disk, log, indexes, namespace and store.
//!
//! A crate of its own, because a running node and the commands for a stopped one stand on the same ground: both must accept a directory by the
//! same rules, open its parts in the same order, and refuse to go on where a repair was not finished ([`marks`]). Servers and `maintenance`
//! are above it and know nothing of each other.
//!
//! Promises: a directory that is not weir's, or is of a version that this one does not know, is refused before anything in it is touched.
//! There is one [`Foundation`]; its type says whether it has names, objects or both. An unclean stop of any kind is recovered from by opening.
//! The crate leaves to others: what a configuration file looks like, what is served, and how anything is repaired.

pub mod datadir;
mod error;
mod ground;
pub mod layout;
pub mod marks;
mod open;
mod remedy;
pub mod runs;
mod settings;
pub mod startup_report;

pub use datadir::{DataDir, DataDirError, DirRole, FORMAT_VERSION, IfNew};
pub use error::{OpenError, StoreOpenError};
pub use ground::{disk_of, engine, holds_anything};
pub use open::{Foundation, ManagerFoundation, Names, Objects, Part, Purpose, StoreFoundation};
pub use remedy::{Refused, refused};
pub use settings::Settings;
