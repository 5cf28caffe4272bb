//! The name or address at which other machines reach this one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _, UdpSocket};

/// What this machine knows about its own name and address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HostFacts {
    /// The host's name.
    pub(super) name: String,
    /// Whether the name leads to an address of this machine that others may reach.
    pub(super) leads_here: bool,
    /// The address from which this machine reaches others.
    pub(super) address: Option<IpAddr>,
}

impl HostFacts {
    /// Looks at this machine. `peers` are addresses (`host:port`) that it will talk to, if some are known.
    pub(super) fn look(name: String, peers: &[String]) -> Self {
        Self { leads_here: leads_here(&name), address: own_address(peers), name }
    }

    /// What other machines should use. A full name is best, because it survives a change of the address. A short name may mean nothing
    /// elsewhere, so it comes last.
    pub(super) fn reachable(&self) -> Option<String> {
        let full = self.leads_here && self.name.contains('.');
        let address = self.address.map(|address| match address {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        });
        match address {
            Some(address) if !full => Some(address),
            _ => self.leads_here.then(|| self.name.clone()),
        }
    }
}

/// Debian gives the host's own name the address 127.0.1.1, which nobody else can use.
fn leads_here(name: &str) -> bool {
    let Ok(addresses) = (name, 0).to_socket_addrs() else { return false };
    let addresses: Vec<SocketAddr> = addresses.collect();
    let is_ours = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    !addresses.is_empty() && addresses.iter().all(|address| !address.ip().is_loopback() && is_ours(address))
}

fn own_address(peers: &[String]) -> Option<IpAddr> {
    let named = peers.iter().filter_map(|peer| peer.to_socket_addrs().ok()).flatten();
    // Addresses that documents use: no packet is sent, the kernel only chooses a route.
    let anywhere = [
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)),
        SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9)),
    ];
    named.chain(anywhere).find_map(source_towards)
}

/// The address of this machine that packets to `peer` come from.
fn source_towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, leads_here: bool, address: Option<&str>) -> Option<String> {
        let address = address.map(|address| address.parse().unwrap());
        HostFacts { name: name.into(), leads_here, address }.reachable()
    }

    #[test]
    fn a_full_name_comes_before_the_address_and_the_address_before_a_short_name() {
        assert_eq!(facts("ds1.example.org", true, Some("10.0.0.7")).as_deref(), Some("ds1.example.org"));
        assert_eq!(facts("ds1.example.org", false, Some("10.0.0.7")).as_deref(), Some("10.0.0.7"));
        assert_eq!(facts("ds1", true, Some("10.0.0.7")).as_deref(), Some("10.0.0.7"));
        assert_eq!(facts("ds1", true, Some("2001:db8::7")).as_deref(), Some("[2001:db8::7]"));
        assert_eq!(facts("ds1", true, None).as_deref(), Some("ds1"));
        assert_eq!(facts("ds1", false, None), None);
    }

    #[test]
    fn the_address_is_the_one_that_the_peer_sees() {
        assert_eq!(own_address(&["127.0.0.1:1095".into()]), Some(Ipv4Addr::LOCALHOST.into()));
        assert!(source_towards("[::1]:9".parse().unwrap()).is_none_or(|address| address == Ipv6Addr::LOCALHOST));
        assert!(!leads_here("localhost") && !leads_here("no-such-host.invalid"));
    }
}
