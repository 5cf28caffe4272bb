//! The owners, totals and policies of trees and directories.

pub(crate) mod default_policy;
pub(crate) mod owner;
pub(crate) mod policy;
pub(crate) mod recount_totals;
pub(crate) mod totals;
pub(crate) mod tree;
