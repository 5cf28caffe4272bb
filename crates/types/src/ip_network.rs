//! A network: the addresses that begin with the same bits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::location::cut;

/// Why a text is not a network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IpNetworkError {
    /// It is of another form.
    #[error("`{0}` is not a network; write ADDRESS/BITS, as in `10.1.0.0/16` or `2001:db8::/32`, or one address")]
    Form(String),
    /// It is written as the IPv6 form of an IPv4 network.
    #[error("`{0}` is an IPv4 network in the form of IPv6; write it as IPv4, as in `10.1.0.0/16`")]
    Mapped(String),
    /// Bits are set that do not belong to the network.
    #[error("`{given}` is an address inside of a network; write `{meant}`, or more bits")]
    Inside {
        /// The text.
        given: String,
        /// The network that contains it.
        meant: IpNetwork,
    },
}

/// A network, such as `10.1.0.0/16`. One address is a network of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IpNetwork {
    first: IpAddr,
    bits: u8,
}

impl IpNetwork {
    /// The network of `bits` bits that contains `address`; `None` if the address has fewer bits.
    #[must_use]
    pub fn around(address: IpAddr, bits: u8) -> Option<Self> {
        (bits <= bits_of(address)).then(|| Self { first: first(address, bits), bits })
    }

    /// How many bits its addresses have in common.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether `address` is in it. An IPv4 client that is known by an IPv6 address (`::ffff:10.1.2.3`) counts as what it is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.first.is_ipv4() == address.is_ipv4() && first(address, self.bits) == self.first
    }
}

/// How many bits an address has.
fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A text from outside, for an error message.
fn shown(text: &str) -> String {
    cut(&text.escape_debug().to_string())
}

/// The first address of the network of `bits` bits that contains `address`.
fn first(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

impl FromStr for IpNetwork {
    type Err = IpNetworkError;

    fn from_str(text: &str) -> Result<Self, IpNetworkError> {
        let wrong = || IpNetworkError::Form(shown(text));
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        if address.to_canonical() != address {
            return Err(IpNetworkError::Mapped(shown(text)));
        }
        let bits = match bits {
            None => bits_of(address),
            Some(bits) if bits.bytes().all(|digit| digit.is_ascii_digit()) => bits.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
        };
        let network = Self::around(address, bits).ok_or_else(wrong)?;
        if network.first == address {
            Ok(network)
        } else {
            Err(IpNetworkError::Inside { given: shown(text), meant: network })
        }
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_with_its_bits() {
        for (network, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.0.0/16", "::ffff:10.1.2.3", "::ffff:10.2.2.3"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("10.1.2.2/31", "10.1.2.3", "10.1.2.4"),
            ("0.0.0.0/0", "255.255.255.255", "2001:db8::1"),
            ("::/0", "2001:db8::1", "10.1.2.3"),
            ("::/0", "::1", "::ffff:10.1.2.3"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::1", "::1", "::2"),
        ] {
            let parsed: IpNetwork = network.parse().unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
            assert_eq!(parsed.to_string().parse::<IpNetwork>().unwrap(), parsed);
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        let why = |text: &str| text.parse::<IpNetwork>().unwrap_err();
        for text in [
            "",
            "/",
            "10.1.0.0/",
            "10.1.0.0/33",
            "::/129",
            "10.1/16",
            "10.0.0.0/+8",
            "10.0.0.0/ 8",
            "host",
            "10.0.0.0/256",
        ] {
            assert!(matches!(why(text), IpNetworkError::Form(_)), "{text}");
        }
        assert!(matches!(why("::ffff:10.0.0.0/104"), IpNetworkError::Mapped(_)));
        assert_eq!(
            why("10.1.2.3/16").to_string(),
            "`10.1.2.3/16` is an address inside of a network; write `10.1.0.0/16`, or more bits"
        );
        assert!(why(&"x".repeat(10_000)).to_string().len() < 300);
    }
}
