//! Tests of the network between two machines, without storage: flows of bytes from one process to another, in each
//! direction, counted where they arrive.
//!
//! The server ([`Listener`]) is started by hand or by an agent, and serves until it is stopped. The client
//! ([`Session`]) connects to it, agrees on a plan, opens all flows, and starts them when both sides are ready. So
//! connecting costs no measured time. One connection carries the control messages, and each flow has its own.
//!
//! [`tcp`] and [`udp`] move the bytes. [`movers`] has the threads or processes that do it.

mod child;
mod client;
mod error;
mod flow;
mod kernel;
mod line;
mod message;
mod movers;
mod outcome;
mod sequences;
mod server;
mod server_session;
mod spec;
mod tcp;
mod udp;
mod workload;

pub use child::{Program, serve_flow};
pub use client::{NetworkServer, Session};
pub use error::NetworkError;
pub use kernel::{Counts, InterfaceCounts, TcpState};
pub use outcome::{Datagrams, DirectionOutcome, Flow, MachineCounters, Outcome, RateSpread};
pub use server::{Listener, ServerSettings};
pub use spec::{Direction, NetworkSpec, Processes, Protocol, SpecError};

use std::time::Duration;

/// How long a flow, or the control connection, may stand still before it counts as broken.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long it may take to open all flows.
const OPENING_MAX: Duration = Duration::from_secs(30);
/// How long the bytes under way at the end may take to arrive. The buffers of a slow link hold many seconds of
/// them.
const DRAINING_MAX: Duration = Duration::from_secs(60);
