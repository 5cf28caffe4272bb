//! What belongs to whole trees and directories: their totals and their policies.

pub(crate) mod policy;
pub(crate) mod recount_totals;
pub(crate) mod totals;
pub(crate) mod tree;
