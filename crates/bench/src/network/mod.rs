//! The network between two machines, with no storage: flows of bytes from one process to another, each way, counted where they arrive.
//!
//! The far side ([`Listener`]) is started by hand or by an agent, and serves until it is stopped. The near side ([`Session`]) connects to it,
//! agrees on a plan, opens all flows, and starts them when both sides are ready; so connecting costs no measured time. One connection is
//! for the talk, and each flow has its own.
//!
//! How bytes are moved is in [`tcp`] and [`udp`]; who moves them, threads of this process or processes of their own, in [`movers`].

mod child;
mod error;
mod far;
mod flow;
mod hosted;
mod kernel;
mod line;
mod message;
mod movers;
mod near;
mod outcome;
mod sequences;
mod spec;
mod tcp;
mod udp;
mod workload;

pub use child::{Program, serve_flow};
pub use error::NetworkError;
pub use far::{FarSettings, Listener};
pub use kernel::{Counts, InterfaceCounts, TcpState};
pub use near::{Far, Session};
pub use outcome::{Datagrams, Flow, Outcome, Side, Spread, Way};
pub use spec::{Direction, NetworkSpec, Processes, Protocol, SpecError};

use std::time::Duration;

/// How long a flow, or the talk, may stand still before it counts as broken.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long all flows may take to be opened.
const OPENING_MAX: Duration = Duration::from_secs(30);
/// How long what is under way at the end may take to arrive: buffers of a slow link hold many seconds of it.
const DRAINING_MAX: Duration = Duration::from_secs(60);
