//! The requests, one file per group. Each takes the decoded request and answers it, or hands it on with a
//! [`crate::answer::Reply`], or says why not. Requests that carry data return a nested result: the outer one ends the
//! connection.

mod attributes;
mod batch;
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

pub(crate) use attributes::{parse_line, parse_new_path, parse_path};
