//! Load: workers that start together, each on its own thread, and their work.

mod crew;
mod history;
mod meter;
mod pace;
mod tally;

pub use crew::{Crew, Finished, Group, HireError, Worker};
pub use history::{HISTORY_MAX, History};
pub use meter::{Meter, Reading};
pub use pace::Pace;
pub use tally::{Complaint, JobTally, Tally};
