//! Answer to locate: where a file is.

use crate::WireError;
use crate::reader::text;

/// Kind of a server in a locate answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocationKind {
    /// Holds the file.
    Server,
    /// Will hold the file, which is being staged.
    ServerPending,
    /// Knows more.
    Manager,
    /// Will know more.
    ManagerPending,
}

/// One place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// What is there.
    pub kind: LocationKind,
    /// May it be written there?
    pub writable: bool,
    /// `host:port`, `[::1]:1094`.
    pub address: Vec<u8>,
}

/// All places. As text: `Sr[::1]:1094 Mw…`, each a letter for the kind, a letter for access, and the address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocateReply {
    /// The places.
    pub locations: Vec<Location>,
}

impl LocateReply {
    /// The body at the end of `out`. Blanks in an address are not sent.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (index, location) in self.locations.iter().enumerate() {
            if index > 0 {
                out.push(b' ');
            }
            out.push(match location.kind {
                LocationKind::Server => b'S',
                LocationKind::ServerPending => b's',
                LocationKind::Manager => b'M',
                LocationKind::ManagerPending => b'm',
            });
            out.push(if location.writable { b'w' } else { b'r' });
            out.extend(location.address.iter().filter(|&&b| b != b' ' && b != 0));
        }
        out.push(0);
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "locate answer";
        let words = text(WHAT, body)?.split(|&b| b == b' ').filter(|word| !word.is_empty());
        let locations = words
            .map(|word| {
                let [kind, access, address @ ..] = word else {
                    return Err(WireError::TooShort { what: WHAT, missing: 2 - word.len() });
                };
                let kind = match kind {
                    b'S' => LocationKind::Server,
                    b's' => LocationKind::ServerPending,
                    b'M' => LocationKind::Manager,
                    b'm' => LocationKind::ManagerPending,
                    _ => return Err(WireError::Malformed { what: WHAT, why: "an unknown kind of server" }),
                };
                let writable = match access {
                    b'w' => true,
                    b'r' => false,
                    _ => return Err(WireError::Malformed { what: WHAT, why: "access is neither r nor w" }),
                };
                Ok(Location { kind, writable, address: address.to_vec() })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { locations })
    }
}
