//! Measures any storage system end to end, and names what limits it.
//!
//! What it promises:
//!
//! - Every byte written can be verified ([`content`]); a read that brings wrong data fails the run and says where.
//! - Nothing outside a run's own folder is touched: names that lead out of it cannot be made ([`target::RelName`]).
//! - No figure is given for work that was not done: what fails is counted beside what was done ([`load::Tally`]).
//! - What is said about figures supposes no distribution ([`statistics`]).
//!
//! What it leaves to others: the command line, and starting and stopping systems.

pub mod agent;
pub mod campaign;
pub mod content;
pub mod coordinate;
pub mod fault;
pub mod latency;
pub mod load;
pub mod measure;
pub mod memory;
pub mod network;
pub mod peer;
mod phases;
pub mod report;
pub mod result;
pub mod rootfile;
pub mod run;
pub mod sampling;
mod splitmix;
pub mod statistics;
pub mod study;
pub mod target;
pub mod workload;
