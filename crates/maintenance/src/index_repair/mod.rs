//! Repairs below the names and the objects: a damaged journal, a lost journal, a lost index of the store.

mod follow_log;
pub mod new_log;
pub mod rebuild;

pub use follow_log::repair_journal;
