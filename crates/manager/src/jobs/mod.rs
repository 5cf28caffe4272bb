//! The maintenance jobs. Each owns its state and its lock, and gets what it needs handed in: the namespace, the published view, the outside, and
//! another part where it uses one. A job may lose its state when the manager stops: everything that matters is in the namespace.
//!
//! | job | uses |
//! | --- | --- |
//! | [`Backfill`] | the coordinator (groups), [`Copies`], [`Deletions`] |
//! | [`Copies`] | the coordinator (groups) |
//! | [`Damages`] | the coordinator (groups), [`Copies`] |
//! | [`Deletions`] | |
//! | [`Draining`] | the coordinator (states of stores, groups) |
//! | [`Graces`] | the open service |
//! | [`Summing`] | the open service |

mod backfill;
mod copies;
mod damages;
mod deletions;
mod draining;
mod graces;
mod summing;

pub(crate) use backfill::Backfill;
pub(crate) use copies::{Copies, FailedCopy, Progress};
pub(crate) use damages::Damages;
pub use damages::{DamageCounts, DamageState};
pub(crate) use deletions::Deletions;
pub use draining::DrainError;
pub(crate) use draining::Draining;
pub(crate) use graces::Graces;
pub(crate) use summing::Summing;
pub use summing::{SumError, Unsummed};
