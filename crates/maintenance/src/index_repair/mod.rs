//! Repairs below the names and the objects: a damaged journal, a lost journal, a lost index of the store.

pub mod journal_reset;
pub mod rebuild;
mod repair_journal;

pub use repair_journal::repair_journal;
