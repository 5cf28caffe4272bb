//! One end of one flow: what is to be done, and what came of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::kernel::TcpState;
use super::line::Line;
use super::{NetworkSpec, Protocol, tcp, udp};
use crate::content::Content;
use crate::load::Meter;

/// What one end of a flow does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowWork {
    /// Which flow it is of its session.
    pub(super) number: u32,
    /// Which session it is: datagrams of others are thrown away.
    pub(super) session: u64,
    /// Whether this end sends.
    pub(super) sends: bool,
    pub(super) protocol: Protocol,
    pub(super) seconds: u32,
    pub(super) block_bytes: u32,
    pub(super) rate: Option<u64>,
}

/// What one end of a flow did.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowEnd {
    pub(super) number: u32,
    pub(super) sends: bool,
    /// Whether it is a flow of UDP.
    pub(super) is_udp: bool,
    /// Bytes that it sent, or that came.
    pub(super) bytes: u64,
    /// Of a receiver: those of them that came while it was to be sent.
    pub(super) in_time: u64,
    /// Calls of TCP; datagrams of UDP, each counted once.
    pub(super) operations: u64,
    /// How long it was sent, or until it ended before its time.
    pub(super) seconds: f64,
    /// Of TCP, where this end sends and the kernel says it.
    pub(super) tcp: Option<TcpState>,
    /// Datagrams that came after one that was sent later.
    pub(super) reordered: u64,
    /// Datagrams that came once more.
    pub(super) duplicates: u64,
    /// Why it ended early, if it did.
    pub(super) failure: Option<String>,
}

/// What the end of a flow has at hand.
pub(super) struct At<'a> {
    pub(super) work: &'a FlowWork,
    pub(super) content: &'a Content,
    pub(super) start: Instant,
    pub(super) meter: &'a Meter,
    pub(super) stop: &'a AtomicBool,
}

impl At<'_> {
    /// When sending ends.
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

/// Moves the bytes. Whatever happens it ends, and says what it did.
pub(super) fn move_bytes(line: &Line, at: &At<'_>) -> FlowEnd {
    match (line, at.work.sends) {
        (Line::Tcp(stream), true) => tcp::send(stream, at),
        (Line::Tcp(stream), false) => tcp::receive(stream, at),
        (Line::Udp(socket), true) => udp::send(socket, at),
        (Line::Udp(socket), false) => udp::receive(socket, at),
    }
}
