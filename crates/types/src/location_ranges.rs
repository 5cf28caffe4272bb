//! The locations of clients, by their addresses.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use crate::location::cut;
use crate::{IpNetwork, IpNetworkError, Location, LocationError, LocationPrefix};

/// Why a text is not a range of addresses with its location.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LocationRangeError {
    /// It does not have two words.
    #[error("`{0}` is not a range and its location; write them with a space between, as in `10.1.0.0/16 cern/r12`")]
    NotTwo(String),
    /// The first word is no range.
    #[error("`{0}` is not a range of addresses; write ADDRESS/BITS, as in `10.1.0.0/16` or `2001:db8::/32`")]
    NotARange(String),
    /// The address has nonzero bits after the prefix.
    #[error("`{given}` begins in the middle of a range; write `{meant}`, or more bits")]
    Inside {
        /// The given text.
        given: String,
        /// The range that contains it.
        meant: String,
    },
    /// The second word is no location.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The same range has two locations.
    #[error("`{0}` is there twice")]
    Twice(String),
}

/// Parses a range: as a network, but always with its bits.
fn range(text: &str) -> Result<IpNetwork, LocationRangeError> {
    let wrong = || LocationRangeError::NotARange(cut(text));
    if !text.contains('/') {
        return Err(wrong());
    }
    // An IPv4 client is known by its IPv4 address, however it connects: no client is in a range of `::ffff:0:0/96`.
    text.parse().map_err(|error| match error {
        IpNetworkError::Inside { meant, .. } => {
            LocationRangeError::Inside { given: cut(text), meant: meant.to_string() }
        }
        IpNetworkError::Form(_) | IpNetworkError::Mapped(_) => wrong(),
    })
}

/// Ranges of addresses with the locations of their clients. If several contain an address, the longest prefix counts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LocationRanges {
    locations: HashMap<IpNetwork, LocationPrefix>,
    /// The prefix lengths of the ranges; there are few.
    lengths: BTreeSet<u8>,
}

impl LocationRanges {
    /// Parses texts such as `10.1.0.0/16 cern/r12`: a range, a space, and a site, with rack and host if known.
    ///
    /// # Errors
    /// [`LocationRangeError`] of the first invalid text.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, LocationRangeError> {
        let mut all = Self::default();
        for text in texts {
            let mut words = text.split_whitespace();
            let (Some(range), Some(location), None) = (words.next(), words.next(), words.next()) else {
                return Err(LocationRangeError::NotTwo(cut(text)));
            };
            let (range, location) = (self::range(range)?, location.parse()?);
            all.lengths.insert(range.bits());
            if all.locations.insert(range, location).is_some() {
                return Err(LocationRangeError::Twice(range.to_string()));
            }
        }
        Ok(all)
    }

    /// The location of a client at `address` ([`LocationPrefix::of_client`]); `None` if no range contains it.
    #[must_use]
    pub fn location_of(&self, address: IpAddr) -> Option<Location> {
        let longest =
            self.lengths.iter().rev().find_map(|bits| self.locations.get(&IpNetwork::around(address, *bits)?))?;
        longest.of_client(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Result<LocationRanges, LocationRangeError> {
        LocationRanges::parse(texts.iter().copied())
    }

    #[test]
    fn the_longest_range_counts() {
        let texts = ["10.0.0.0/8 north", "10.1.0.0/16 cern/r1", "10.1.2.3/32 cern/r2/ds7", "2001:db8::/32 south/r9"];
        let ranges = of(&texts).unwrap();
        for (address, location) in [
            ("10.200.0.1", Some("north/10.200.0.1/10.200.0.1")),
            ("10.1.9.9", Some("cern/r1/10.1.9.9")),
            ("10.1.2.3", Some("cern/r2/ds7")),
            ("11.0.0.1", None),
            ("2001:db8:1::5", Some("south/r9/2001-db8-1--5")),
            ("2001:db9::5", None),
        ] {
            let found = ranges.location_of(address.parse().unwrap());
            assert_eq!(found.as_ref().map(Location::as_str), location, "{address}");
        }
        assert_eq!(LocationRanges::default().location_of("10.1.2.3".parse().unwrap()), None);
    }

    #[test]
    fn a_range_of_length_0_has_one_address_family() {
        let ranges = of(&["0.0.0.0/0 four", "::/0 six"]).unwrap();
        let site =
            |address: &str| ranges.location_of(address.parse().unwrap()).map(|location| location.site().to_owned());
        assert_eq!((site("255.255.255.255"), site("::1")), (Some("four".into()), Some("six".into())));
        assert_eq!(of(&["0.0.0.0/0 four"]).unwrap().location_of("::".parse().unwrap()), None);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let wrong = |text: &str| of(&[text]).unwrap_err();
        for text in ["", "10.1.0.0/16", "10.1.0.0/16 a b", "10.1.0.0/16=a"] {
            assert!(matches!(wrong(text), LocationRangeError::NotTwo(_)), "{text}");
        }
        for text in [
            "10.1.0.0 a",
            "10.1.0.0/33 a",
            "::/129 a",
            "10.1/16 a",
            "host/8 a",
            "10.0.0.0/-1 a",
            "10.0.0.0/+8 a",
            "10.0.0.0/ a",
            "::ffff:10.0.0.0/104 a",
        ] {
            assert!(matches!(wrong(text), LocationRangeError::NotARange(_)), "{text}");
        }
        let inside = LocationRangeError::Inside { given: "10.1.2.0/16".into(), meant: "10.1.0.0/16".into() };
        assert_eq!(wrong("10.1.2.0/16 a"), inside);
        assert!(matches!(wrong("10.0.0.0/8 a/b/c/d"), LocationRangeError::Location(_)));
        assert_eq!(of(&["10.0.0.0/8 a", "10.0.0.0/8 b"]), Err(LocationRangeError::Twice("10.0.0.0/8".into())));
    }
}
