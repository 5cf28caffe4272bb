//! Which stores a new content goes to, who takes a lost member's place, and where a reader goes first: pure functions
//! of the cluster's [`Map`], a policy, the client's place and a seed.
//!
//! How: each store, as primary, has about ten possible groups, which follow from the stores' numbers and places alone
//! (`table`). So a lost store's load and repair spread over some ten others at least, while not every set of stores
//! shares data; and when a store comes or goes, nearly all groups stay what they were. How often each is used
//! follows from free space and load: primaries in proportion to them, and among a primary's groups so that the other
//! members get their proportion as well.
//!
//! Where the first copy goes, in this order, each only if it can be had:
//! 1. with `near=client`: the client's host, its rack, its site;
//! 2. with `prefer=`: that place;
//! 3. anywhere.
//!
//! What a policy demands (`spread`, `class`) is kept strictly: if it cannot be, nothing is placed, and the error says
//! why. `near` and `prefer` are wishes.

mod choose;
mod error;
mod map;
mod random;
mod readers;
mod replacement;
mod table;

pub use choose::{First, Placed, can_be_met, choose_stores, groups};
pub use error::{MapError, PlacementError};
pub use map::{Load, Map, STORES_MAX, StoreInfo, StoreState};
pub use readers::rank_readers;
pub use replacement::replacement;
