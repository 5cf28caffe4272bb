//! What the kernel counts while bytes flow: of each TCP connection, of the interfaces that they take, and of the whole machine.

mod counts;
mod netlink;

use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use super::outcome::Side;
use crate::measure::cpu_time;

pub use counts::{Counts, InterfaceCounts};

/// Names of congestion controls are shorter (`TCP_CA_NAME_MAX`).
const CONGESTION_NAME_MAX: usize = 16;

/// What the kernel knows of one end of a TCP connection (`struct tcp_info`).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct TcpState {
    /// Segments that it sent more than once.
    pub retransmitted: u32,
    /// Segments that it sent in all.
    pub sent: u32,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// The round trip as it was smoothed last, in microseconds.
    pub round_trip_us: u32,
    /// Segments that it may have under way (the congestion window).
    pub window_segments: u32,
    /// The congestion control.
    pub congestion: String,
}

impl TcpState {
    /// Of this end; `None` where the kernel does not say.
    #[must_use]
    pub fn of(stream: &TcpStream) -> Option<Self> {
        netlink::tcp_state(stream.local_addr().ok()?, stream.peer_addr().ok()?)
    }
}

/// What the kernel counts from now on, on the way to somebody.
#[derive(Debug)]
pub(super) struct Counting {
    interfaces: Vec<String>,
    before: Counts,
    cpu_before: Duration,
}

impl Counting {
    pub(super) fn begin(remote: IpAddr) -> Self {
        let interfaces = interfaces_to(remote);
        let before = Counts::read(&interfaces);
        Self { interfaces, before, cpu_before: cpu_time() }
    }

    pub(super) fn end(self) -> Side {
        let cpu_s = cpu_time().saturating_sub(self.cpu_before).as_secs_f64();
        let counts = Counts::read(&self.interfaces).since(&self.before);
        Side { interface: self.interfaces.into_iter().next().unwrap_or_default(), counts, cpu_s }
    }
}

/// The interface by which an address is reached, and those below it (the members of a bond); empty where the kernel does not say.
fn interfaces_to(address: IpAddr) -> Vec<String> {
    let Some(name) = netlink::interface_to(address).and_then(name_of) else { return Vec::new() };
    let below = std::fs::read_dir(format!("/sys/class/net/{name}")).into_iter().flatten().flatten();
    let below = below.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("lower_")?.to_owned()));
    let mut below: Vec<String> = below.collect();
    below.sort();
    std::iter::once(name).chain(below).collect()
}

fn name_of(index: u32) -> Option<String> {
    let any = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::DGRAM, None).ok()?;
    rustix::net::netdevice::index_to_name(&any, index).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_a_name() {
        assert_eq!(interfaces_to(std::net::Ipv4Addr::LOCALHOST.into()), ["lo"]);
    }
}
