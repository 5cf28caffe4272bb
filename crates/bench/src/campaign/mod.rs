//! Campaigns: systems x work x parameters x repeats, from a TOML file to a list of trials in an order that favours nobody.

mod file;
mod order;
mod section;
mod trial;
mod value;

pub use file::{Campaign, CampaignError, System};
pub use order::{Estimate, estimate, order};
pub use section::{Analysis, ClientAlone, Daq, Failure, Network, Placement, Repeat, Robust, Small, Streams, Synthetic};
pub use trial::{ALL_AT_ONCE, CLIENT_ALONE, Phase, Trial, Work};
pub use value::{Many, Rate, Size};
