//! Campaigns: systems x work x parameters x repeats. A TOML file becomes a list of trials in an order that favours
//! no system.

mod file;
mod order;
mod section;
mod trial;
mod value;

pub use file::{Campaign, CampaignError, System};
pub use order::{Estimate, estimate, order};
pub use section::{Analysis, ClientAlone, Daq, Failure, Network, Placement, Repeat, Robust, Small, Streams, Synthetic};
pub use trial::{ALL_AT_ONCE, CLIENT_ALONE, Phase, Trial, Work};
pub use value::{OneOrMany, Rate, Size};
