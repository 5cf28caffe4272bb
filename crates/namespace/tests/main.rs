//! The integration tests of the namespace: one program, because each program costs a link.

mod acls;
mod backfill;
mod cost;
mod crash;
mod digests;
mod golden;
mod hidden_names;
mod membership;
mod model;
mod path_limits;
mod placing;
mod policies;
mod postgres;
mod principal_names;
mod principals;
mod quotas;
mod random_model;
mod reading_back;
mod restored;
mod round_trips;
mod rules;
mod slashes;
mod snapshot_epochs;
mod stripes;
mod tree_owners;
mod widening;
