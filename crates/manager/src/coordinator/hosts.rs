//! The locations of disk servers' hosts, by address. A client on the same host has the same location.

use std::collections::BTreeMap;
use std::net::IpAddr;

use types::Location;

/// The host of a disk server.
pub(crate) struct Host<'a> {
    /// The address to which clients are sent, unless that is a name.
    pub(crate) said: Option<IpAddr>,
    /// The address from which its connection comes.
    pub(crate) seen: Option<IpAddr>,
    pub(crate) location: &'a Location,
}

/// The location of each address to which clients are sent or from which a disk server connects. Two kinds of connection address are ignored. A
/// loopback address can be that of any node on the manager's machine. An address that several hosts share belongs to a device that translates
/// addresses.
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

/// Splits `host:port`. The host may stand in brackets.
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
    fn a_client_has_the_location_of_the_disk_server_on_its_host() {
        let (named, numbered, both) = (location("named"), location("numbered"), location("both"));
        let locations = places_of(&[
            Host { said: None, seen: Some(at("10.0.0.7")), location: &named },
            Host { said: Some(at("10.0.0.8")), seen: None, location: &numbered },
            // Clients and nodes reach this host over two networks.
            Host { said: Some(at("10.0.0.9")), seen: Some(at("10.1.0.9")), location: &both },
        ]);
        let expected = [("10.0.0.7", &named), ("10.0.0.8", &numbered), ("10.0.0.9", &both), ("10.1.0.9", &both)];
        assert_eq!(locations, expected.map(|(address, location)| (at(address), location.clone())).into());
    }

    #[test]
    fn loopback_and_shared_addresses_give_no_location() {
        let (first, second) = (location("first"), location("second"));
        let locations = places_of(&[
            // On the manager's machine.
            Host { said: None, seen: Some(at("127.0.0.1")), location: &first },
            Host { said: None, seen: Some(at("::1")), location: &first },
            // Behind one router.
            Host { said: None, seen: Some(at("192.0.2.1")), location: &first },
            Host { said: None, seen: Some(at("192.0.2.1")), location: &second },
            Host { said: None, seen: Some(at("192.0.2.1")), location: &first },
            // Two nodes on one host agree. The address to which clients are sent takes precedence.
            Host { said: None, seen: Some(at("192.0.2.2")), location: &second },
            Host { said: None, seen: Some(at("192.0.2.2")), location: &second },
            Host { said: Some(at("192.0.2.3")), seen: None, location: &first },
            Host { said: None, seen: Some(at("192.0.2.3")), location: &second },
        ]);
        assert_eq!(locations, [(at("192.0.2.2"), second), (at("192.0.2.3"), first)].into());
    }
}
