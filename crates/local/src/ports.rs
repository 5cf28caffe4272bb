//! Finds ports that no other program takes while a node is not running.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::Range;

/// The first port for outgoing connections, if the system does not say.
const EPHEMERAL_DEFAULT: u16 = 32_768;
/// Lower ports belong to well-known services.
const FIRST: u16 = 10_000;

/// Finds free ports, and never gives one out twice.
pub struct Ports {
    candidates: Range<u16>,
    next: u16,
    left: u16,
    /// Held until all ports are found.
    held: Vec<TcpListener>,
}

impl Ports {
    /// Starts at `seed`, so that two clusters made at the same time rarely collide.
    pub fn new(seed: u16) -> Self {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        Self::within(candidates(&range), seed)
    }

    fn within(candidates: Range<u16>, seed: u16) -> Self {
        let left = candidates.end - candidates.start;
        Self { next: candidates.start + seed % left, candidates, left, held: Vec::new() }
    }

    /// A free port at `ip`; `None`: all are taken, or the address is not this machine's.
    pub fn take(&mut self, ip: IpAddr) -> Option<u16> {
        while self.left > 0 {
            let port = self.next;
            self.left -= 1;
            self.next = if port + 1 == self.candidates.end { self.candidates.start } else { port + 1 };
            if let Ok(listener) = TcpListener::bind((ip, port)) {
                self.held.push(listener);
                return Some(port);
            }
        }
        None
    }

    /// Keeps others from this address; fails if one has it.
    pub fn hold(&mut self, address: SocketAddr) -> io::Result<()> {
        TcpListener::bind(address).map(|listener| self.held.push(listener))
    }
}

/// Leaves out the ports that the system gives to outgoing connections: one could take a node's port while the node is down.
fn candidates(ephemeral: &str) -> Range<u16> {
    let first = ephemeral.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(EPHEMERAL_DEFAULT);
    // If hardly any ports are left, share them with outgoing connections.
    if first < FIRST + 1000 { FIRST..u16::MAX } else { FIRST..first }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn ports_of_outgoing_connections_are_left_out() {
        assert_eq!(candidates("32768\t60999\n"), 10_000..32_768);
        assert_eq!(candidates("1024 65535"), 10_000..65_535);
        assert_eq!(candidates(""), 10_000..32_768);
        assert_eq!(candidates("99999 x"), 10_000..32_768);
    }

    #[test]
    fn taken_ports_are_skipped_and_none_is_given_twice() {
        let ip = IpAddr::from(Ipv4Addr::new(127, 0, 0, 77));
        let taken = TcpListener::bind((ip, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        // The last of the range comes first, then its beginning.
        let mut ports = Ports::within(port - 1..port + 2, 2);
        assert_eq!((ports.take(ip), ports.take(ip), ports.take(ip)), (Some(port + 1), Some(port - 1), None));
        // An address of another machine.
        assert_eq!(Ports::within(20_000..20_100, 0).take(IpAddr::from(Ipv4Addr::new(192, 0, 2, 1))), None);
    }
}
