//! Where the hosts of disk servers stand, by their addresses: clients on the same hosts stand there, too.

use std::collections::BTreeMap;
use std::net::IpAddr;

use types::Place;

/// A disk server's host.
pub(crate) struct Host<'a> {
    /// The address that clients are sent to, where that is no name.
    pub(crate) said: Option<IpAddr>,
    /// Where its connection comes from.
    pub(crate) seen: Option<IpAddr>,
    pub(crate) place: &'a Place,
}

/// Where addresses stand: those that clients are sent to, and those that connections come from. Of these a loopback address counts for nothing (it is that
/// of every node on the manager's own machine), nor one that nodes of several hosts come from: behind it is somebody who translates addresses.
pub(crate) fn places_of(hosts: &[Host<'_>]) -> BTreeMap<IpAddr, Place> {
    let mut places = BTreeMap::new();
    for host in hosts {
        if let Some(address) = host.said {
            places.entry(address).or_insert_with(|| host.place.clone());
        }
    }
    let mut seen: BTreeMap<IpAddr, Option<&Place>> = BTreeMap::new();
    for host in hosts {
        if let Some(address) = host.seen.filter(|address| !address.is_loopback()) {
            let place = seen.entry(address).or_insert(Some(host.place));
            *place = place.filter(|place| *place == host.place);
        }
    }
    for (address, place) in seen {
        if let Some(place) = place {
            places.entry(address).or_insert_with(|| place.clone());
        }
    }
    places
}

/// `host:port`, the host perhaps in brackets.
pub(crate) fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str) -> Place {
        Place::new("site", "rack", host).unwrap()
    }

    fn at(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn a_client_stands_where_its_hosts_disk_server_does_also_where_that_has_a_name() {
        let (named, numbered, both) = (place("named"), place("numbered"), place("both"));
        let places = places_of(&[
            Host { said: None, seen: Some(at("10.0.0.7")), place: &named },
            Host { said: Some(at("10.0.0.8")), seen: None, place: &numbered },
            // Clients and nodes come to it by two networks.
            Host { said: Some(at("10.0.0.9")), seen: Some(at("10.1.0.9")), place: &both },
        ]);
        let expected = [("10.0.0.7", &named), ("10.0.0.8", &numbered), ("10.0.0.9", &both), ("10.1.0.9", &both)];
        assert_eq!(places, expected.map(|(address, place)| (at(address), place.clone())).into());
    }

    #[test]
    fn an_address_that_says_nothing_of_the_host_counts_for_nothing() {
        let (first, second) = (place("first"), place("second"));
        let places = places_of(&[
            // On the manager's machine.
            Host { said: None, seen: Some(at("127.0.0.1")), place: &first },
            Host { said: None, seen: Some(at("::1")), place: &first },
            // Behind one router.
            Host { said: None, seen: Some(at("192.0.2.1")), place: &first },
            Host { said: None, seen: Some(at("192.0.2.1")), place: &second },
            Host { said: None, seen: Some(at("192.0.2.1")), place: &first },
            // Two of one host agree; and where clients are sent to comes first.
            Host { said: None, seen: Some(at("192.0.2.2")), place: &second },
            Host { said: None, seen: Some(at("192.0.2.2")), place: &second },
            Host { said: Some(at("192.0.2.3")), seen: None, place: &first },
            Host { said: None, seen: Some(at("192.0.2.3")), place: &second },
        ]);
        assert_eq!(places, [(at("192.0.2.2"), second), (at("192.0.2.3"), first)].into());
    }
}
