//! A client's request to open a file, and the manager's answer.

use std::fmt;
use std::net::IpAddr;

use cluster::placement::PlacementError;
use namespace::{Actor, NsError};
use types::absent_replicas::AbsentReplica;
use types::direct::{StripedFile, UnitAddress};
use types::{
    ClientAddress, ErrorCode, Location, NodeId, NsPath, ObjectId, ROOT_PROTOCOL, RequestNumber, StoreId, Timestamp,
    WriterToken,
};

/// The client, and how it came here.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The time of day.
    pub now: Timestamp,
    /// The path of the request. The client shows its capability with this path; it is valid with no other.
    pub path: NsPath,
    /// The client's address.
    pub from: IpAddr,
    /// The location that the client states.
    pub location: Option<Location>,
    /// Hosts that the client could not reach (`tried=`).
    pub tried: Vec<String>,
    /// Each of these hosts has answered and refused (`triedrc=`). The client is not sent there again.
    pub all_refused: bool,
    /// The client reads well at these hosts, and would like to use another one besides (`triedrc=resel`). If no other is as
    /// good and as near as the best one, it is sent to the best one.
    pub wants_another: bool,
    /// Stale replicas that the client met at disk servers. It is not sent there for them again.
    pub absent_replicas: Vec<AbsentReplica>,
    /// Stores that had no room for the client's new file, as their servers have told it. They may not have reported that yet.
    pub full_stores: Vec<StoreId>,
    /// The object and the epoch of the capability that the client has used before, as it says.
    pub came_with: Option<(ObjectId, u64)>,
    /// The object that the client was reading. It gets no other, because it reads on in the middle.
    pub same_object: Option<ObjectId>,
    /// The number of bytes that the client announces. Its stores need that much room.
    pub announced: Option<u64>,
    /// The client can open the units of a striped file by itself.
    pub is_direct: bool,
    /// The client sends the whole file at once and cannot write a striped file. The manager refuses the open if the file would be striped.
    pub at_once: bool,
    /// The identity under which the client acts.
    pub actor: Actor,
    /// The number of the request, if the client numbers its requests. It is for an open that changes something.
    pub number: Option<RequestNumber>,
    /// The protocol that the client speaks. It is sent only to servers that have an address for it.
    pub protocol: &'static str,
}

impl OpenRequest {
    /// A request of a `root://` client with these properties and no others.
    #[must_use]
    pub fn new(now: Timestamp, path: NsPath, from: IpAddr, actor: Actor) -> Self {
        Self {
            now,
            path,
            from,
            location: None,
            tried: Vec::new(),
            all_refused: false,
            wants_another: false,
            absent_replicas: Vec::new(),
            full_stores: Vec::new(),
            came_with: None,
            same_object: None,
            announced: None,
            is_direct: false,
            at_once: false,
            actor,
            number: None,
            protocol: ROOT_PROTOCOL,
        }
    }
}

/// Where a client is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The disk server.
    pub node: NodeId,
    /// Where clients reach it, for each protocol that it speaks.
    pub addresses: Vec<ClientAddress>,
    /// The capability that the client shows there. No other client may see it.
    pub capability: String,
    /// The object that the redirect is for.
    pub object: ObjectId,
    /// The layout of a striped file, for a client that opens the units itself.
    pub striped: Option<StripedFile>,
    /// The first units that have data and where to read them, for such a client.
    pub units: Vec<UnitAddress>,
    /// The file is new and being written, and its present length is not that of the whole.
    pub unfinished: Option<Unfinished>,
}

/// A new file that is being written, for a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfinished {
    /// Its primary knows whether its writer is there.
    AtPrimary,
    /// The servers of its units know whether the writer of this striped file is there: see [`crate::Manager::who_writes_striped`].
    Striped(WriterToken),
}

impl fmt::Debug for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redirect(node {})", self.node)
    }
}

impl Redirect {
    /// Its address for clients of `protocol`.
    #[must_use]
    pub fn address(&self, protocol: &str) -> Option<&ClientAddress> {
        self.addresses.iter().find(|address| address.protocol == protocol)
    }

    /// The redirect, if the client of this request can follow it.
    pub(crate) fn followed_by(self, open_request: &OpenRequest) -> Result<Self, OpeningError> {
        match self.address(open_request.protocol) {
            Some(_) => Ok(self),
            None => Err(no_address(open_request.protocol, &self.addresses)),
        }
    }
}

/// Why a client is not sent to a server with these addresses.
pub(crate) fn no_address(protocol: &'static str, addresses: &[ClientAddress]) -> OpeningError {
    let addresses: Vec<String> =
        addresses.iter().map(|other| format!("{}://{}:{}", other.protocol, other.host, other.port)).collect();
    OpeningError::NoAddress { protocol, addresses: addresses.join(", ") }
}

/// Why the manager sends a client nowhere.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// The namespace refused the open.
    #[error(transparent)]
    Names(#[from] NsError),
    /// No stores satisfy the policy.
    #[error("no stores can be chosen for it: {0}")]
    Placement(#[from] PlacementError),
    /// No stores satisfy the policy, and some are not online.
    #[error("no stores can be chosen for it: {why}; not online: {away}")]
    PlacementWithout {
        /// Why the others do not.
        why: PlacementError,
        /// The stores that are not online.
        away: String,
    },
    /// The open may succeed later.
    #[error("{why}")]
    Wait {
        /// At least 1.
        seconds: u32,
        /// The reason.
        why: String,
    },
    /// Another client writes the file, as its primary says.
    #[error("{0}")]
    BeingWritten(String),
    /// Acknowledged bytes of the file may be lost.
    #[error(
        "all its in-sync stores have restarted since, and may have lost bytes that they had acknowledged but not synced; write it again"
    )]
    Lost,
    /// No replica can be read.
    #[error("no store that is online has it; it was on {0}")]
    NoCopy(String),
    /// The replicas that are online are damaged. A change would make the intact ones useless.
    #[error(
        "its replica on {damaged} is damaged, and the intact one is away, on {away}: bring that store back, or remove it as lost, or write the whole file again"
    )]
    OnlyDamaged {
        /// The stores with a damaged replica.
        damaged: String,
        /// The stores with an intact one.
        away: String,
    },
    /// The stores that should have a replica do not have it.
    #[error("{0} should have it and has lost it, or was restored from an old copy")]
    AbsentReplica(String),
    /// All possible servers were asked, and each refused.
    #[error("all servers that have it were tried and refused it; their logs say why: {0}")]
    AllRefused(String),
    /// Units of the striped file cannot be read.
    #[error("not all of its stripe units are on stores that are online: {0}")]
    NoUnits(String),
    /// Its server takes no clients of this protocol.
    #[error("its server has no address for clients of {protocol}://; it can be reached at {addresses}")]
    NoAddress {
        /// The client's protocol.
        protocol: &'static str,
        /// The addresses that the server has.
        addresses: String,
    },
    /// This build does not support it.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl OpeningError {
    /// The error code for protocols.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Names(error) => error.code(),
            Self::Placement(why) | Self::PlacementWithout { why, .. } => why.code(),
            Self::NoCopy(_)
            | Self::OnlyDamaged { .. }
            | Self::AbsentReplica(_)
            | Self::AllRefused(_)
            | Self::NoUnits(_) => ErrorCode::Unavailable,
            Self::Wait { .. } => ErrorCode::Overloaded,
            Self::BeingWritten(_) => ErrorCode::Busy,
            Self::Lost => ErrorCode::Interrupted,
            Self::Unsupported(_) | Self::NoAddress { .. } => ErrorCode::Unsupported,
        }
    }

    pub(crate) fn wait(why: impl Into<String>) -> Self {
        Self::Wait { seconds: 1, why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use types::capability::{
        Capability, CapabilityConditions, CapabilityKey, CapabilityKeys, OPAQUE_KEY, PathHash, Rights,
    };
    use types::{PrincipalId, SessionId};

    use super::*;

    /// The `Location` of a redirect, as an HTTP front end answers an open.
    fn location(path: &NsPath, to: &Redirect) -> String {
        let at = to.address("http").unwrap();
        format!("http://{}:{}{path}?{OPAQUE_KEY}={}", at.host, at.port, to.capability)
    }

    #[test]
    fn a_redirect_location_may_be_a_name_or_any_ip_address() {
        let key = CapabilityKey::new(1, &[7; 32]);
        let (node, object, now) = (NodeId(7), ObjectId(5), Timestamp(1_800_000_000_000_000_000));
        let path = NsPath::parse(b"/data/run/file.root").unwrap();
        let permission = Capability {
            server: node,
            object,
            rights: Rights::READ,
            principal: PrincipalId(5),
            path: PathHash::of(&path),
            epoch: 0,
            session: SessionId(1),
            expires: now.plus(Duration::from_secs(60)),
            layout: vec![0xff; 100],
        };
        let capability = permission.seal(&key).unwrap();
        // The capability has no character that a URL must escape.
        assert!(capability.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{capability}");
        let to = Redirect {
            node,
            addresses: vec![
                ClientAddress::root("[2001:db8::7]", 1094),
                ClientAddress::parse("http://[2001:db8::7]:8080").unwrap(),
            ],
            capability,
            object,
            striped: None,
            units: Vec::new(),
            unfinished: None,
        };
        let location = location(&path, &to);
        assert!(location.starts_with("http://[2001:db8::7]:8080/data/run/file.root?weir.cap="), "{location}");
        // The server there accepts the capability by itself.
        let (at, shown) = location.strip_prefix("http://[2001:db8::7]:8080").unwrap().split_once("?weir.cap=").unwrap();
        let at = PathHash::of(&NsPath::parse(at.as_bytes()).unwrap());
        let wanted =
            CapabilityConditions { server: node, principal: Some(PrincipalId(5)), path: at, rights: Rights::READ, now };
        assert_eq!(Capability::check(shown.as_bytes(), &CapabilityKeys::new(key), &wanted), Ok(permission));
    }
}
