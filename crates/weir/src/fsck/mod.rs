//! `weir fsck`.

pub mod check;
pub mod compare;
pub mod finding;
mod paged;
pub mod report;
