//! The first messages of a connection between nodes, inside TLS: who each side is, which versions it speaks, and how
//! much it accepts at a time.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `weirnode` |
//! | 2, 2 | the oldest and the newest version of the protocol that the node speaks |
//! | 16 | its cluster |
//! | 8 | its number |
//! | 1, 3 | its roles (1: manager, 2: disk), 0 |
//! | 4, 4 | how many unanswered requests of the peer it accepts, 0 |
//! | 8 | their maximum total size in bytes |
//! | 32 | its software, text, padded with zeros |
//!
//! Then each side sends its verdict on the other: 1 byte (0: welcome, 1: refused), 1 byte 0, 2 bytes length of the
//! reason, the reason as text. Numbers are little-endian. The length and the first 12 bytes of a hello never change, so
//! that an older or newer node can be told the reason.

use std::fmt;

use types::{ClusterId, NodeId};

use crate::channel::{Deadline, SplitChannel};
use crate::error::CloseCause;
use crate::{NodeName, Role, Roles};

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 88;
/// Longest reason of a verdict in bytes.
pub const REASON_BYTES_MAX: usize = 1024;
const SOFTWARE_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"weirnode";
const WELCOME: u8 = 0;
const REFUSED: u8 = 1;

/// The versions of the protocol between nodes: hello, frames, messages, and the capabilities that a manager sends to a
/// disk server through a client. Each release that changes a form gets a new version; `docs/reference/node-protocol.md`
/// has the rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum Version {
    /// The first version.
    V1 = 1,
    /// A capability names its path, and a session carries the manager's time of day.
    V2 = 2,
    /// A capability names its principal and its shard, a store learns the principal of the replica that it creates, and a
    /// commit carries the number of the client's close.
    V3 = 3,
    /// A disk server asks the manager about the extended attributes of the files that its clients have open.
    V4 = 4,
    /// A disk server asks the manager about the open writes that it leads.
    /// A manager asks the primary of an open write whether its client is there, and a disk server reports how long the files
    /// are that its clients write.
    V5 = 5,
    /// A disk server reports damaged replicas, and a manager asks a disk server what its stores have.
    V6 = 6,
    /// A manager asks disk servers whether the client of an open write is there.
    V7 = 7,
    /// A primary announces the end of an open write without its client, and its secondaries end it too.
    V8 = 8,
    /// An order to delete replicas says whether their objects exist elsewhere.
    V9 = 9,
    /// A capability says how long an open write may become, and a disk server asks the manager to reserve more, and for the proxy that a client
    /// has delegated for a third-party copy.
    V10 = 10,
    /// A node asks its manager which authorities to trust.
    V11 = 11,
    /// A manager tells disk servers the addresses of all managers.
    V12 = 12,
}

/// The range of versions that a node speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl Versions {
    /// The versions of this build.
    pub const SPOKEN: Versions = Versions { oldest: Version::V12 as u16, newest: Version::V12 as u16 };

    /// The newest version that `other` speaks too.
    #[must_use]
    pub fn common(self, other: Versions) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "version {}", self.newest),
            false => write!(f, "versions {} to {}", self.oldest, self.newest),
        }
    }
}

/// A node's description of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The versions that it speaks.
    pub versions: Versions,
    /// Its name.
    pub name: NodeName,
    /// How many unanswered requests it accepts.
    pub requests_max: u32,
    /// Their maximum total size in bytes: messages, bulk, and the allowed bulk of the answers.
    pub bytes_max: u64,
    /// Its software, for people.
    pub software: String,
}

/// The intended peer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Expect {
    /// Only this node.
    pub node: Option<NodeId>,
    /// Any node with this role.
    pub role: Option<Role>,
}

/// Two nodes do not match. The texts name both, so that both sides report the same.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HelloProblem {
    /// The bytes are no hello.
    #[error("what came is not the hello of a weir node")]
    NotANode,
    /// The nodes have no version in common.
    #[error(
        "node {node} ({software}) speaks {versions} of the protocol between nodes, node {other} ({other_software}) speaks {other_versions}: upgrade node {older}"
    )]
    Version {
        /// This node.
        node: NodeId,
        /// Its software.
        software: String,
        /// Its versions.
        versions: Versions,
        /// The peer.
        other: NodeId,
        /// The peer's software.
        other_software: String,
        /// The peer's versions.
        other_versions: Versions,
        /// The older of the two.
        older: NodeId,
    },
    /// The peer belongs to another cluster.
    #[error(
        "node {node} is of cluster {cluster}, node {other} of cluster {other_cluster}: an address leads to the wrong cluster"
    )]
    OtherCluster {
        /// This node.
        node: NodeId,
        /// Its cluster.
        cluster: ClusterId,
        /// The peer.
        other: NodeId,
        /// The peer's cluster.
        other_cluster: ClusterId,
    },
    /// The name in the hello differs from that in the certificate.
    #[error("the node says that it is {said}, and its certificate says {certificate}")]
    OtherName {
        /// The name in the hello.
        said: NodeName,
        /// The name in the certificate.
        certificate: NodeName,
    },
    /// The peer lacks the expected role.
    #[error(
        "node {node} is a {roles} server, and a {wanted} server is wanted here: an address leads to the wrong node"
    )]
    Role {
        /// The node.
        node: NodeId,
        /// Its roles.
        roles: Roles,
        /// The expected role.
        wanted: Role,
    },
    /// The peer is another node than expected.
    #[error("at this address there is node {node}, and node {wanted} is wanted: addresses were exchanged")]
    OtherNode {
        /// The node.
        node: NodeId,
        /// The expected node.
        wanted: NodeId,
    },
    /// The peer accepts no requests.
    #[error("node {0} takes no requests, by its hello")]
    TakesNothing(NodeId),
}

impl Hello {
    /// The bytes of the hello.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&self.versions.oldest.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.versions.newest.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.name.cluster.0.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.name.node.0.to_le_bytes());
        bytes[36] = self.name.roles.bits();
        bytes[40..44].copy_from_slice(&self.requests_max.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.bytes_max.to_le_bytes());
        let software = cut(&self.software, SOFTWARE_BYTES).as_bytes();
        bytes[56..56 + software.len()].copy_from_slice(software);
        bytes
    }

    /// Parses a hello. One with unknown versions is parsed as far as possible.
    ///
    /// # Errors
    /// [`HelloProblem::NotANode`].
    pub fn from_bytes(bytes: &[u8; HELLO_BYTES]) -> Result<Self, HelloProblem> {
        let mut reader = Reader(bytes);
        if reader.take() != *MAGIC {
            return Err(HelloProblem::NotANode);
        }
        let versions =
            Versions { oldest: u16::from_le_bytes(reader.take()), newest: u16::from_le_bytes(reader.take()) };
        let cluster = ClusterId(u128::from_le_bytes(reader.take()));
        let node = NodeId(u64::from_le_bytes(reader.take()));
        let [roles, ..] = reader.take::<4>();
        let requests_max = u32::from_le_bytes(reader.take());
        reader.take::<4>();
        let bytes_max = u64::from_le_bytes(reader.take());
        let software: [u8; SOFTWARE_BYTES] = reader.take();
        let text = String::from_utf8_lossy(&software);
        // The text goes to logs and terminals.
        let software = text.trim_end_matches('\0').chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        // A later version may have more roles; one with a common version has not.
        let roles = Roles::from_bits(roles);
        let roles = match roles {
            Some(roles) => roles,
            None if versions.common(Versions::SPOKEN).is_none() => Roles::DISK,
            None => return Err(HelloProblem::NotANode),
        };
        Ok(Self { versions, name: NodeName { cluster, node, roles }, requests_max, bytes_max, software })
    }

    /// Compares `other`, whose certificate says `certificate`, with this node's hello. Returns the version to speak.
    ///
    /// # Errors
    /// [`HelloProblem`] says what does not match.
    pub fn check(&self, other: &Hello, certificate: &NodeName, expect: Expect) -> Result<u16, HelloProblem> {
        let (node, peer) = (self.name.node, other.name.node);
        let Some(version) = self.versions.common(other.versions) else {
            return Err(HelloProblem::Version {
                node,
                software: self.software.clone(),
                versions: self.versions,
                other: peer,
                other_software: other.software.clone(),
                other_versions: other.versions,
                older: if self.versions.newest < other.versions.oldest { node } else { peer },
            });
        };
        if other.name.cluster != self.name.cluster {
            let (cluster, other_cluster) = (self.name.cluster, other.name.cluster);
            return Err(HelloProblem::OtherCluster { node, cluster, other: peer, other_cluster });
        }
        if other.name != *certificate {
            return Err(HelloProblem::OtherName { said: other.name, certificate: *certificate });
        }
        if let Some(wanted) = expect.node.filter(|wanted| *wanted != peer) {
            return Err(HelloProblem::OtherNode { node: peer, wanted });
        }
        if let Some(wanted) = expect.role.filter(|wanted| !other.name.roles.contain(*wanted)) {
            return Err(HelloProblem::Role { node: peer, roles: other.name.roles, wanted });
        }
        if other.requests_max == 0 || other.bytes_max == 0 {
            return Err(HelloProblem::TakesNothing(peer));
        }
        Ok(version)
    }
}

/// The longest prefix of `text` of at most `max` bytes.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// The next bytes; zeros after the end.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (here, rest) = self.0.split_at(N.min(self.0.len()));
        taken[..here.len()].copy_from_slice(here);
        self.0 = rest;
        taken
    }
}

/// Sends `ours`, receives the peer's hello, and exchanges verdicts. `judge` decides last whether the peer may connect.
pub(crate) fn exchange(
    halves: &mut SplitChannel,
    ours: &Hello,
    certificate: &NodeName,
    expect: Expect,
    deadline: Deadline,
    judge: &dyn Fn(&Hello, u16) -> Result<(), String>,
) -> Result<(Hello, u16), CloseCause> {
    halves.writing.send(&[&ours.to_bytes()])?;
    let mut bytes = [0; HELLO_BYTES];
    if !halves.reading.fill(&mut bytes, deadline)? {
        return Err(CloseCause::BrokenOff);
    }
    let judged = Hello::from_bytes(&bytes).map_err(CloseCause::Hello).and_then(|theirs| {
        let version = ours.check(&theirs, certificate, expect).map_err(CloseCause::Hello)?;
        judge(&theirs, version).map_err(CloseCause::Misbehaved)?;
        Ok((theirs, version))
    });
    let reason = match &judged {
        Ok(_) => String::new(),
        Err(CloseCause::Misbehaved(reason)) => reason.clone(),
        Err(why) => why.to_string(),
    };
    let reason = cut(&reason, REASON_BYTES_MAX).as_bytes();
    let [low, high] = u16::try_from(reason.len()).unwrap_or(0).to_le_bytes();
    let code = if judged.is_ok() { WELCOME } else { REFUSED };
    halves.writing.send(&[&[code, 0, low, high], reason])?;
    let verdict = hear_verdict(halves, deadline);
    // This node's own reason takes precedence.
    let judged = judged.map_err(|why| match why {
        CloseCause::Misbehaved(reason) => CloseCause::ClosedHere(reason),
        other => other,
    })?;
    verdict?;
    Ok(judged)
}

fn hear_verdict(halves: &mut SplitChannel, deadline: Deadline) -> Result<(), CloseCause> {
    let mut head = [0; 4];
    if !halves.reading.fill(&mut head, deadline)? {
        return Err(CloseCause::BrokenOff);
    }
    let length = usize::from(u16::from_le_bytes([head[2], head[3]]));
    if head[0] > REFUSED || length > REASON_BYTES_MAX {
        return Err(CloseCause::Hello(HelloProblem::NotANode));
    }
    let mut reason = vec![0; length];
    if length > 0 && !halves.reading.fill(&mut reason, deadline)? {
        return Err(CloseCause::BrokenOff);
    }
    match head[0] {
        WELCOME => Ok(()),
        _ => Err(CloseCause::Refused(printable(&reason))),
    }
}

/// A peer's text, made safe for logs and terminals.
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        Hello {
            versions: Versions { oldest: 1, newest: 2 },
            name: NodeName { cluster: ClusterId(0x0102), node: NodeId(3), roles: Roles::BOTH },
            requests_max: 64,
            bytes_max: 1 << 26,
            software: "weir 0.1.0".into(),
        }
    }

    fn other() -> Hello {
        Hello { name: NodeName { node: NodeId(4), roles: Roles::DISK, ..hello().name }, ..hello() }
    }

    fn check(theirs: &Hello, expect: Expect) -> Result<u16, HelloProblem> {
        hello().check(theirs, &other().name, expect)
    }

    #[test]
    fn the_bytes_are_pinned() {
        let bytes = hello().to_bytes();
        let mut expected = b"weirnode\x01\0\x02\0\x02\x01".to_vec();
        expected.extend([0; 14]);
        expected.extend(b"\x03\0\0\0\0\0\0\0\x03\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0weir 0.1.0");
        expected.resize(HELLO_BYTES, 0);
        assert_eq!(bytes[..], expected);
        assert_eq!(Hello::from_bytes(&bytes), Ok(hello()));
        assert_eq!(Hello::from_bytes(&[0; HELLO_BYTES]), Err(HelloProblem::NotANode));
    }

    #[test]
    fn the_newest_common_version_is_spoken() {
        let speaks = |oldest, newest| Versions { oldest, newest };
        assert_eq!(speaks(1, 3).common(speaks(2, 5)), Some(3));
        assert_eq!(speaks(2, 5).common(speaks(1, 3)), Some(3));
        assert_eq!(speaks(1, 1).common(speaks(2, 2)), None);
        assert_eq!(speaks(3, 4).common(speaks(1, 2)), None);
        assert_eq!(speaks(2, 1).common(speaks(1, 2)), None, "nonsense has nothing in common with anybody");
    }

    #[test]
    fn too_old_and_too_new_nodes_get_both_versions_and_advice() {
        let newer = Hello { versions: Versions { oldest: 3, newest: 4 }, software: "weir 9".into(), ..other() };
        let said = check(&newer, Expect::default()).unwrap_err().to_string();
        for part in
            ["node 3 (weir 0.1.0) speaks versions 1 to 2", "node 4 (weir 9) speaks versions 3 to 4", "upgrade node 3"]
        {
            assert!(said.contains(part), "{said}");
        }
        let older = Hello { versions: Versions { oldest: 0, newest: 0 }, ..other() };
        let said = check(&older, Expect::default()).unwrap_err().to_string();
        assert!(said.contains("speaks version 0") && said.contains("upgrade node 4"), "{said}");
    }

    #[test]
    fn only_the_expected_peer_is_accepted() {
        assert_eq!(check(&other(), Expect::default()), Ok(2));
        assert_eq!(check(&other(), Expect { node: Some(NodeId(4)), role: Some(Role::Disk) }), Ok(2));
        let wrong_node = check(&other(), Expect { node: Some(NodeId(5)), role: None });
        assert_eq!(wrong_node, Err(HelloProblem::OtherNode { node: NodeId(4), wanted: NodeId(5) }));
        let wrong_role = check(&other(), Expect { node: None, role: Some(Role::Manager) });
        assert_eq!(wrong_role, Err(HelloProblem::Role { node: NodeId(4), roles: Roles::DISK, wanted: Role::Manager }));
        let elsewhere = Hello { name: NodeName { cluster: ClusterId(9), ..other().name }, ..other() };
        assert!(matches!(check(&elsewhere, Expect::default()), Err(HelloProblem::OtherCluster { .. })));
        let boasts = Hello { name: NodeName { roles: Roles::BOTH, ..other().name }, ..other() };
        assert!(matches!(check(&boasts, Expect::default()), Err(HelloProblem::OtherName { .. })));
        for nothing in [Hello { requests_max: 0, ..other() }, Hello { bytes_max: 0, ..other() }] {
            assert_eq!(check(&nothing, Expect::default()), Err(HelloProblem::TakesNothing(NodeId(4))));
        }
    }

    #[test]
    fn control_characters_of_a_peers_software_are_replaced() {
        let rude = Hello { software: "\x1b[2J\n and much longer than thirty-two bytes".into(), ..hello() };
        let read = Hello::from_bytes(&rude.to_bytes()).unwrap();
        assert_eq!(read.software, "?[2J? and much longer than thirt");
        let cut_within_a_letter = Hello { software: "ä".repeat(20), ..hello() };
        assert_eq!(Hello::from_bytes(&cut_within_a_letter.to_bytes()).unwrap().software, "ä".repeat(16));
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), HELLO_BYTES - 8)) {
            let bytes: [u8; HELLO_BYTES] = [&MAGIC[..], &bytes].concat().try_into().unwrap();
            if let Ok(theirs) = Hello::from_bytes(&bytes) {
                prop_assert!(check(&theirs, Expect::default()).is_err());
            }
        }
    }
}
