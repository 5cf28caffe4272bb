//! A database and its users on simulated time, for simulations of whole clusters (feature `simulated`). The decisions are the real ones: the place and
//! its lease ([`crate::own_place`], [`crate::place_lease`]) and what follows a commit whose answer was lost ([`crate::attempts`]). The statements and
//! connections are simulated: whoever runs the simulation carries requests to the database and answers back, late, or not at all.
//!
//! - [`SimDatabase`]: entries, the row of the committer, one transaction at a time, failovers.
//! - [`SimEngine`]: the engine of the process that has the place.
//! - [`SimWatch`]: looks whether the place is free.

mod engine;
mod server;
mod watch;

pub use engine::{SimEngine, SimStats};
pub use server::{Answer, Request, Sent, SimDatabase};
pub use watch::{Looked, SimWatch};

/// A bug to plant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// The lease counts from when the confirmation arrived.
    LeaseFromTheConfirmation,
    /// Taking the place compares nothing with the row that was seen.
    TakenWithoutComparing,
    /// Taking the place leaves the fence as it is.
    FenceNotRaised,
    /// A commit does not compare the fence and the batch.
    FenceNotCompared,
    /// After a lost answer the batch runs again, whatever the row says.
    RunAgainBlindly,
    /// A lower number of the last batch is accepted.
    LowerBatchAccepted,
}
