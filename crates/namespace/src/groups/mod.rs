//! Locations of objects in a cluster: nodes, stores and groups of stores; stripes, missing replicas and queued deletions.

pub(crate) mod backfill;
pub(crate) mod damaged;
pub(crate) mod deletion;
pub(crate) mod group;
pub(crate) mod members;
pub(crate) mod membership;
pub(crate) mod objects;
pub(crate) mod placing;
pub(crate) mod registry;
pub(crate) mod stores;
pub(crate) mod stripe;
pub(crate) mod tokens;
pub(crate) mod widen;
