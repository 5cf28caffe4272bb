//! The network alone: flows of TCP or UDP between two machines, with no storage behind them. What they reach is the ceiling of all that
//! goes over this network.
//!
//! A control connection says what is to be done ([`NetworkSpec`], a line of JSON); the data goes over connections of its own. Either side may
//! send. Who sends counts what it gave to the kernel, who receives what it got: the receiver's count is the result.

mod spec;
mod tcp;

pub use spec::{Direction, NetworkError, NetworkSpec};
pub use tcp::{receive, send};
