//! Where the clients of a protocol reach a node.

use std::fmt;

/// The protocol of an address that names none.
pub const ROOT_PROTOCOL: &str = "root";

/// The address of a node for the clients of one protocol. As text it is `protocol://host:port`, or `host:port` for
/// [`ROOT_PROTOCOL`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientAddress {
    /// The name of the protocol, as in a URL: `root`, `http`.
    pub protocol: String,
    /// Host name or address. An IPv6 address may stand in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl ClientAddress {
    /// The address for clients of `root://`.
    #[must_use]
    pub fn root(host: impl Into<String>, port: u16) -> Self {
        Self { protocol: ROOT_PROTOCOL.to_owned(), host: host.into(), port }
    }

    /// Parses an address. `None` if it has no port, or a protocol that no URL has.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (protocol, address) = text.split_once("://").unwrap_or((ROOT_PROTOCOL, text));
        let is_protocol = !protocol.is_empty() && protocol.bytes().all(|byte| byte.is_ascii_lowercase());
        let (host, port) = address.rsplit_once(':').filter(|_| is_protocol)?;
        Some(Self { protocol: protocol.to_owned(), host: host.to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, host, port } = self;
        match protocol.as_str() {
            ROOT_PROTOCOL => write!(f, "{host}:{port}"),
            protocol => write!(f, "{protocol}://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_protocol_is_for_root() {
        let address = ClientAddress::parse("[2001:db8::1]:1094").unwrap();
        assert_eq!(address, ClientAddress::root("[2001:db8::1]", 1094));
        assert_eq!(ClientAddress::parse("root://h:1"), Some(ClientAddress::root("h", 1)));
        for text in ["h:1", "http://h:80", "[2001:db8::1]:1094"] {
            assert_eq!(ClientAddress::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["h", "h:", "h:65536", "://h:1", "HTTP://h:1", "a b://h:1"] {
            assert_eq!(ClientAddress::parse(wrong), None, "{wrong}");
        }
    }
}
