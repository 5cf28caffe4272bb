//! Where the hosts of disk servers stand, by their addresses: clients on the same hosts stand there, too.

use std::collections::BTreeMap;
use std::net::IpAddr;

use types::Location;

/// A disk server's host.
pub(crate) struct Host<'a> {
    /// The address that clients are sent to, where that is no name.
    pub(crate) said: Option<IpAddr>,
    /// Where its connection comes from.
    pub(crate) seen: Option<IpAddr>,
    pub(crate) location: &'a Location,
}

/// Where addresses stand: those that clients are sent to, and those that connections come from. Of these a loopback address counts for nothing (it is that
/// of every node on the manager's own machine), nor one that nodes of several hosts come from: behind it is somebody who translates addresses.
pub(crate) fn places_of(hosts: &[Host<'_>]) -> BTreeMap<IpAddr, Location> {
    let mut locations = BTreeMap::new();
    for host in hosts {
        if let Some(address) = host.said {
            locations.entry(address).or_insert_with(|| host.location.clone());
        }
    }
    let mut seen: BTreeMap<IpAddr, Option<&Location>> = BTreeMap::new();
    for host in hosts {
        if let Some(address) = host.seen.filter(|address| !address.is_loopback()) {
            let location = seen.entry(address).or_insert(Some(host.location));
            *location = location.filter(|location| *location == host.location);
        }
    }
    for (address, location) in seen {
        if let Some(location) = location {
            locations.entry(address).or_insert_with(|| location.clone());
        }
    }
    locations
}

/// `host:port`, the host perhaps in brackets.
pub(crate) fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(host: &str) -> Location {
        Location::new("site", "rack", host).unwrap()
    }

    fn at(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn a_client_stands_where_its_hosts_disk_server_does_also_where_that_has_a_name() {
        let (named, numbered, both) = (location("named"), location("numbered"), location("both"));
        let locations = places_of(&[
            Host { said: None, seen: Some(at("10.0.0.7")), location: &named },
            Host { said: Some(at("10.0.0.8")), seen: None, location: &numbered },
            // Clients and nodes come to it by two networks.
            Host { said: Some(at("10.0.0.9")), seen: Some(at("10.1.0.9")), location: &both },
        ]);
        let expected = [("10.0.0.7", &named), ("10.0.0.8", &numbered), ("10.0.0.9", &both), ("10.1.0.9", &both)];
        assert_eq!(locations, expected.map(|(address, location)| (at(address), location.clone())).into());
    }

    #[test]
    fn an_address_that_says_nothing_of_the_host_counts_for_nothing() {
        let (first, second) = (location("first"), location("second"));
        let locations = places_of(&[
            // On the manager's machine.
            Host { said: None, seen: Some(at("127.0.0.1")), location: &first },
            Host { said: None, seen: Some(at("::1")), location: &first },
            // Behind one router.
            Host { said: None, seen: Some(at("192.0.2.1")), location: &first },
            Host { said: None, seen: Some(at("192.0.2.1")), location: &second },
            Host { said: None, seen: Some(at("192.0.2.1")), location: &first },
            // Two of one host agree; and where clients are sent to comes first.
            Host { said: None, seen: Some(at("192.0.2.2")), location: &second },
            Host { said: None, seen: Some(at("192.0.2.2")), location: &second },
            Host { said: Some(at("192.0.2.3")), seen: None, location: &first },
            Host { said: None, seen: Some(at("192.0.2.3")), location: &second },
        ]);
        assert_eq!(locations, [(at("192.0.2.2"), second), (at("192.0.2.3"), first)].into());
    }
}
