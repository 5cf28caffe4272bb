//! The integration tests of the bench's workloads, agents and reports: one program, because each program costs a link.

mod agents;
mod analysis;
mod churn;
mod daq;
mod documents;
mod failure;
mod fake;
mod network;
mod places;
mod small;
mod streams;
