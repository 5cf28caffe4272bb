//! One end of one flow: its task and its result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::kernel::TcpState;
use super::line::Line;
use super::{NetworkSpec, Protocol, tcp, udp};
use crate::content::Content;
use crate::load::Meter;

/// The task of one end of a flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowWork {
    /// The number of the flow in its session.
    pub(super) number: u32,
    /// The session. Datagrams of other sessions are ignored.
    pub(super) session: u64,
    /// Whether this end sends.
    pub(super) sends: bool,
    pub(super) protocol: Protocol,
    pub(super) seconds: u32,
    pub(super) block_bytes: u32,
    pub(super) rate: Option<u64>,
}

/// The result of one end of a flow.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowEnd {
    pub(super) number: u32,
    pub(super) sends: bool,
    /// Whether the flow uses UDP.
    pub(super) is_udp: bool,
    /// The bytes sent or received.
    pub(super) bytes: u64,
    /// For a receiver: the bytes received while the sender's time ran.
    pub(super) in_time: u64,
    /// TCP calls, or UDP datagrams without duplicates.
    pub(super) operations: u64,
    /// How long it sent, or until it ended early.
    pub(super) seconds: f64,
    /// The kernel's state of a TCP sender, if the kernel reveals it.
    pub(super) tcp: Option<TcpState>,
    /// Datagrams that arrived after a later one.
    pub(super) reordered: u64,
    /// Datagrams that arrived again.
    pub(super) duplicates: u64,
    /// Why it ended early, if it did.
    pub(super) failure: Option<String>,
}

/// What one end of a flow can use.
pub(super) struct FlowContext<'a> {
    pub(super) work: &'a FlowWork,
    pub(super) content: &'a Content,
    pub(super) start: Instant,
    pub(super) meter: &'a Meter,
    pub(super) stop: &'a AtomicBool,
}

impl FlowContext<'_> {
    /// Returns when sending ends.
    pub(super) fn end(&self) -> Instant {
        self.start + Duration::from_secs(u64::from(self.work.seconds))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn finished(&self) -> FlowEnd {
        FlowEnd {
            number: self.work.number,
            sends: self.work.sends,
            is_udp: self.work.protocol == Protocol::Udp,
            seconds: self.start.elapsed().as_secs_f64().min(f64::from(self.work.seconds)),
            ..FlowEnd::default()
        }
    }
}

impl FlowWork {
    pub(super) fn of(spec: &NetworkSpec, session: u64, number: u32, sends: bool) -> Self {
        Self {
            number,
            session,
            sends,
            protocol: spec.protocol,
            seconds: spec.seconds,
            block_bytes: spec.block_bytes,
            rate: spec.rate,
        }
    }
}

/// Moves the bytes. It always ends, and reports its result.
pub(super) fn move_bytes(line: &Line, at: &FlowContext<'_>) -> FlowEnd {
    match (line, at.work.sends) {
        (Line::Tcp(stream), true) => tcp::send(stream, at),
        (Line::Tcp(stream), false) => tcp::receive(stream, at),
        (Line::Udp(socket), true) => udp::send(socket, at),
        (Line::Udp(socket), false) => udp::receive(socket, at),
    }
}
