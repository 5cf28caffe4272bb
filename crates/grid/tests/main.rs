//! The tests of this crate, as one program.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

mod delegated;
mod der;
mod hosts;
mod proxies;
mod site;
mod stock;
mod trust;
mod users;
mod voms;
