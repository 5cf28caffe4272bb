//! Which stores get a new object, which store replaces a lost member of a group, and where a reader goes first.
//! These are pure functions of the cluster's [`Map`], a policy, the client's location and a seed.
//!
//! Each store is the primary of about ten possible groups. They follow from the stores' numbers and locations alone
//! (`table`). So the load and the repair of a lost store spread over at least ten others, while not every set of
//! stores shares data. When a store comes or goes, nearly all groups stay as they were. Free space and load decide
//! how often each group is used: primaries are chosen in proportion to them, and so, through the chances of a
//! primary's groups, are the other members.
//!
//! The first replica goes to the first of these that is possible:
//! 1. with `near=client`: the client's host, its rack, its site;
//! 2. with `prefer=`: that location;
//! 3. any location.
//!
//! The demands of a policy (`spread`, `class`) are strict. If they cannot be met, placement fails, and the error says
//! why. `near` and `prefer` are preferences.

mod choose;
mod error;
mod map;
mod random;
mod readers;
mod replacement;
mod table;

pub use choose::{First, Placed, can_be_met, choose_other_stores, choose_stores, groups};
pub use error::{MapError, PlacementError};
pub use map::{Load, Map, STORES_MAX, StoreInfo, StoreState};
pub use readers::rank_readers;
pub use replacement::{further_store, replacement};
