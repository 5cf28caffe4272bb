//! What is done to a system: each workload as typed parameters, a pure plan of its operations, and the code that does them through the
//! driver seam.

mod access;
mod permutation;
mod stream;

pub use access::{Access, Operation, Operations, Part};
pub use stream::{StreamError, StreamSpec};
