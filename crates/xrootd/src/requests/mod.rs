//! The requests, one file per group. Each function takes the decoded request and calls the service. It answers at
//! once, hands the answer on with a [`crate::answer::Reply`], or returns an error. Requests with data return a nested
//! result: the outer error ends the connection.

mod attributes;
pub(crate) mod auth;
mod change;
mod chkpoint;
mod clone;
mod close;
mod elsewhere;
mod fattr;
mod listing;
mod open;
mod own;
mod prepare;
pub(crate) mod query;
mod read;
mod readv;
pub(crate) mod session;
mod write;
