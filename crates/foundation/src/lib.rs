//! Data directories, and how to open them: the FORMAT file and the lock, then disk, journal, indexes, namespace and store.
//!
//! A running node and the commands for a stopped one share this crate. Both must accept a directory by the same rules and open its parts in the same
//! order. Both must stop if a repair is unfinished ([`marks`]). Servers and `maintenance` are above it and do not know each other.
//!
//! Promises:
//! - It refuses a directory that is not weir's, or has an unknown version, before it touches anything in it.
//! - There is one [`Foundation`]; its type says whether it has names, objects or both. A manager's names may be in a database ([`NamesEngine`]).
//! - Opening recovers from an unclean stop of any kind.
//!
//! Other crates define the configuration file, serve clients, and make repairs.

mod database_mark;
pub mod datadir;
mod error;
pub mod layout;
mod manager_names;
pub mod marks;
mod open;
mod own_journal;
mod remedy;
pub mod runs;
mod settings;
pub mod startup_report;
mod storage_base;

pub use database_mark::DatabaseMark;
pub use datadir::{DataDir, DataDirError, DirRole, DirWatch, Displaced, FORMAT_VERSION, IfNew};
pub use error::{OpenError, StoreOpenError, exit_of_database};
pub use manager_names::{COMMITTER, Claim, DatabaseSettings, ManagerNames, NamesEngine, check_database};
pub use open::{
    Foundation, IndexFoundation, ManagerFoundation, Names, NamesIndex, Objects, Part, Purpose, StoreFoundation,
};
pub use remedy::{Refused, refused};
pub use settings::Settings;
pub use storage_base::{disk_of, engine, holds_anything};
