//! The answer to locate: where a file is.

use crate::WireError;
use crate::reader::text;

/// The kind of a server in a locate answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocationKind {
    /// It holds the file.
    Server,
    /// It will hold the file, which is being staged.
    ServerPending,
    /// A manager that knows where the file is.
    Manager,
    /// A manager that will know where the file is.
    ManagerPending,
}

/// One location of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// The kind of server.
    pub kind: LocationKind,
    /// Whether the file can be written there.
    pub writable: bool,
    /// `host:port`, `[::1]:1094`.
    pub address: Vec<u8>,
}

/// All locations. As text `Sr[::1]:1094 Mw…`: for each a letter for the kind, a letter for the access, and the
/// address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocateReply {
    /// The locations.
    pub locations: Vec<Location>,
}

impl LocateReply {
    /// Appends the body to `out`. Blanks in an address are omitted.
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

    /// Parses the body.
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
