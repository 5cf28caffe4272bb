//! Campaigns: systems x work x parameters x repeats, from a TOML file to a list of trials in an order that favours nobody.

mod combine;
mod file;
mod order;
mod trial;

pub use file::{Campaign, CampaignError, ClientAlone, Daq, Many, Rate, Size, Small, Streams, System};
pub use order::{Estimate, estimate, order};
pub use trial::{Phase, Trial, Work};
