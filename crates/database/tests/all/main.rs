//! The engine on a real PostgreSQL server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod copies;
mod faults;
mod harness;
mod leases;
mod places;
mod reading;
mod schemas;
mod transactions;
