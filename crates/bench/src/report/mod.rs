//! What results say: one row for each phase of each work, systems side by side, with how sure it is and what speaks against it.

mod ceiling;
mod flags;
mod network;
mod summary;
mod text;

pub use ceiling::{Ceiling, Stage};
pub use flags::Flag;
pub use network::NetworkDetails;
pub use summary::{Cell, Row, Summary, summarise};
pub use text::text;

pub use crate::workload::Unit;
