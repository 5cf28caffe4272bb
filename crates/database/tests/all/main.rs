//! The engine on a real PostgreSQL server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod cached;
mod copies;
mod faults;
mod following;
mod harness;
mod leases;
mod places;
mod reading;
mod schemas;
mod transactions;
