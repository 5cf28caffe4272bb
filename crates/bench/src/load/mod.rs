//! Load: workers that start together, each on its own thread, and their work.

mod history;
mod meter;
mod pace;
mod tally;
mod worker_pool;

pub use history::{HISTORY_MAX, History};
pub use meter::{Meter, Reading};
pub use pace::Pace;
pub use tally::{FailureText, JobTally, OpenedWith, Tally};
pub use worker_pool::{Finished, Group, HireError, Worker, WorkerPool};
