//! The maintenance jobs. Each has a state and a lock of its own. A job may lose its state when the manager stops: everything that matters is in the
//! namespace.

mod backfill;
mod copies;
mod deletions;
mod draining;
mod graces;
mod summing;

pub(crate) use backfill::Backfill;
pub use backfill::{FailedCopyView, LeaverView, RepairError, RepairView, StuckView};
pub(crate) use copies::Copies;
pub(crate) use deletions::Deleting;
pub use draining::DrainError;
pub(crate) use draining::Draining;
pub(crate) use graces::Graces;
pub(crate) use summing::Summing;
pub use summing::{SumError, Unsummed};
