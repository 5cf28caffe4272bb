//! What a manager is asked for an open, and what it says.

use std::fmt;
use std::net::IpAddr;

use cluster::placement::PlacementError;
use namespace::{Actor, NsError};
use types::direct::{StripedFile, UnitAt};
use types::stale_replicas::StaleReplica;
use types::{ErrorCode, Location, NodeId, NsPath, ObjectId, Timestamp};

/// Who opens, and how the client came here.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The time of day.
    pub now: Timestamp,
    /// The path by which it asks, and will show its permission with: that is good with no other one.
    pub path: NsPath,
    /// Where the client is.
    pub from: IpAddr,
    /// Where it says that it stands.
    pub location: Option<Location>,
    /// Hosts that it could not reach (`tried=`).
    pub tried: Vec<String>,
    /// Each of these has answered, and refused (`triedrc=`): nobody is sent there again.
    pub all_refused: bool,
    /// What disk servers that it was sent to have not: nobody sends it there for that again.
    pub stale_replicas: Vec<StaleReplica>,
    /// How many bytes it says that it will write: its stores need that much room.
    pub announced: Option<u64>,
    /// It can go to the units of a striped file by itself.
    pub is_direct: bool,
    /// It sends the whole content at once, and has no use for a file whose content is dealt out: where one would be made, it is refused.
    pub at_once: bool,
    /// Whom it acts as.
    pub actor: Actor,
}

impl OpenRequest {
    /// Of whom no more is known.
    #[must_use]
    pub fn new(now: Timestamp, path: NsPath, from: IpAddr, actor: Actor) -> Self {
        Self {
            now,
            path,
            from,
            location: None,
            tried: Vec::new(),
            all_refused: false,
            stale_replicas: Vec::new(),
            announced: None,
            is_direct: false,
            at_once: false,
            actor,
        }
    }
}

/// Where a client is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Which node that is.
    pub node: NodeId,
    /// Host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What the client has to show there. Never shown to anybody else.
    pub capability: String,
    /// The content that it leads to.
    pub object: ObjectId,
    /// Of a striped file, for a client that can read or write it at the servers of its units itself.
    pub striped: Option<StripedFile>,
    /// Where the units of it that have something can be read, the first ones, for such a client.
    pub units: Vec<UnitAt>,
}

impl fmt::Debug for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redirect({}:{})", self.host, self.port)
    }
}

/// Why a client is sent nowhere.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// The namespace says no.
    #[error(transparent)]
    Names(#[from] NsError),
    /// Nobody may be placed so.
    #[error("no stores can be chosen for it: {0}")]
    Placement(#[from] PlacementError),
    /// It may work in a while.
    #[error("{why}")]
    Wait {
        /// At least 1.
        seconds: u32,
        /// What is waited for.
        why: String,
    },
    /// What was acknowledged of it may be lost.
    #[error(
        "all its in-sync stores have restarted since, and may have lost bytes that they had acknowledged but not synced; write it again"
    )]
    Lost,
    /// It has no copy.
    #[error("no store that is online has it; it was on {0}")]
    NoCopy(String),
    /// Those that should have a copy have none.
    #[error("{0} should have it and has lost it, or was restored from an old copy")]
    StaleReplica(String),
    /// All that could be asked for it have been, and each has refused.
    #[error("all servers that have it were tried and refused it; their logs say why: {0}")]
    AllRefused(String),
    /// A striped one lacks units.
    #[error("not all of its stripe units are on stores that are online: {0}")]
    NoUnits(String),
    /// This build cannot.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl OpeningError {
    /// For protocols.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Names(error) => error.code(),
            Self::Placement(PlacementError::NoRoom { .. }) => ErrorCode::NoSpace,
            Self::Placement(_) | Self::NoCopy(_) | Self::StaleReplica(_) | Self::AllRefused(_) | Self::NoUnits(_) => {
                ErrorCode::Unavailable
            }
            Self::Wait { .. } => ErrorCode::Overloaded,
            Self::Lost => ErrorCode::Interrupted,
            Self::Unsupported(_) => ErrorCode::Unsupported,
        }
    }

    pub(crate) fn wait(why: impl Into<String>) -> Self {
        Self::Wait { seconds: 1, why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use types::capability::{Capability, CapabilityKey, CapabilityKeys, OPAQUE_KEY, PathMark, Rights, Wanted};
    use types::{PrincipalId, SessionId};

    use super::*;

    /// As a front door for HTTP has to answer an open, beside 307.
    fn location(path: &NsPath, to: &Redirect) -> String {
        format!("http://{}:{}{path}?{OPAQUE_KEY}={}", to.host, to.port, to.capability)
    }

    #[test]
    fn where_a_client_is_sent_is_an_address_of_any_protocol() {
        let key = CapabilityKey::new(1, &[7; 32]);
        let (node, object, now) = (NodeId(7), ObjectId(5), Timestamp(1_800_000_000_000_000_000));
        let path = NsPath::parse(b"/data/run/file.root").unwrap();
        let permission = Capability {
            server: node,
            object,
            rights: Rights::READ,
            principal: PrincipalId(5),
            path: PathMark::of(&path),
            epoch: 0,
            session: SessionId(1),
            expires: now.plus(Duration::from_secs(60)),
            layout: vec![0xff; 100],
        };
        let capability = permission.seal(&key).unwrap();
        // What is to be shown has no character that an address would have to escape.
        assert!(capability.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{capability}");
        let to = Redirect {
            node,
            host: "[2001:db8::7]".into(),
            port: 8080,
            capability,
            object,
            striped: None,
            units: Vec::new(),
        };
        let location = location(&path, &to);
        assert!(location.starts_with("http://[2001:db8::7]:8080/data/run/file.root?weir.cap="), "{location}");
        // The server there needs nothing else than that to believe it.
        let (at, shown) = location.strip_prefix("http://[2001:db8::7]:8080").unwrap().split_once("?weir.cap=").unwrap();
        let at = PathMark::of(&NsPath::parse(at.as_bytes()).unwrap());
        let wanted = Wanted { server: node, principal: Some(PrincipalId(5)), path: at, rights: Rights::READ, now };
        assert_eq!(Capability::check(shown.as_bytes(), &CapabilityKeys::new(key), &wanted), Ok(permission));
    }
}
