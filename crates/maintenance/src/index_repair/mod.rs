//! Repairs of what lies under the names and the objects: a damaged log, a lost log, a lost index of the store.

mod follow_log;
pub mod new_log;
pub mod rebuild;

pub use follow_log::repair_journal;
