//! The kernel's counters while bytes flow: of each TCP connection, of the interfaces on the route, and of the whole
//! machine.

mod counts;
mod netlink;

use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use super::outcome::MachineCounters;
use crate::measure::cpu_time;

pub use counts::{Counts, InterfaceCounts};

/// The longest name of a congestion control (`TCP_CA_NAME_MAX`).
const CONGESTION_NAME_MAX: usize = 16;

/// The kernel's state of one end of a TCP connection (`struct tcp_info`).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct TcpState {
    /// Retransmitted segments.
    pub retransmitted: u32,
    /// All sent segments.
    pub sent: u32,
    /// The bytes of a segment.
    pub segment_bytes: u32,
    /// The smoothed round trip time in microseconds.
    pub round_trip_us: u32,
    /// The congestion window in segments.
    pub window_segments: u32,
    /// The name of the congestion control.
    pub congestion: String,
}

impl TcpState {
    /// Returns the state of this end; `None`: the kernel does not reveal it.
    #[must_use]
    pub fn of(stream: &TcpStream) -> Option<Self> {
        netlink::tcp_state(stream.local_addr().ok()?, stream.peer_addr().ok()?)
    }
}

/// The kernel's counters from now on, for the route to a peer.
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

    pub(super) fn end(self) -> MachineCounters {
        let cpu_s = cpu_time().saturating_sub(self.cpu_before).as_secs_f64();
        let counts = Counts::read(&self.interfaces).since(&self.before);
        MachineCounters { interface: self.interfaces.into_iter().next().unwrap_or_default(), counts, cpu_s }
    }
}

/// Returns the interface on the route to an address, and those below it (the members of a bond). Empty if the
/// kernel does not reveal it.
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
