//! The requests, one file per group. Each takes the decoded request, asks the service, and answers, or hands the answer on with a
//! [`crate::answer::Reply`], or says why not. Requests that carry data return a nested result: the outer one ends the
//! connection.

mod attributes;
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
mod session;
mod write;
