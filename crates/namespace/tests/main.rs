//! The integration tests of the namespace: one program, because each program costs a link.

mod backfill;
mod cost;
mod crash;
mod golden;
mod membership;
mod model;
mod placing;
mod policies;
mod principals;
mod random_model;
mod rules;
mod snapshot_epochs;
mod stripes;
