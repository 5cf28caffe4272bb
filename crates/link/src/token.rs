//! Join tokens. `weir token create` makes the text; the operator copies it to the new machine. It is valid for one node,
//! or for a number of nodes, until it expires.
//!
//! It works in both directions. By its fingerprint the new node recognises a manager of the right cluster. By its
//! secret the manager recognises an invited node. The managers keep only a hash of the secret.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use types::{Crc32c, NodeId, Timestamp, units};

use crate::random::{self, RandomError};
use crate::{Fingerprint, Roles, message};

/// The prefix of a token's text.
const PREFIX: &str = "weir-join-";
/// A longer text is no token.
const TEXT_MAX: usize = 4096;
/// Most addresses of managers in a token.
pub const ADDRESSES_MAX: usize = 16;
const ADDRESS_BYTES_MAX: usize = 255;
const VERSION: u8 = 1;
/// The context in which the stored hash is derived from the secret.
const CONTEXT: &str = "weir 2026 hash of a join token's secret";

/// The id of a token. It is not secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TokenId(pub [u8; 16]);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Random bytes that make a token valid. Never shown.
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenSecret([u8; 32]);

impl TokenSecret {
    fn hash(&self) -> blake3::Hash {
        blake3::Hash::from_bytes(blake3::derive_key(CONTEXT, &self.0))
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(not shown)")
    }
}

/// A token for a new node. [`JoinToken::text`] is the form to copy. There is no `Display`, so that no token gets into a
/// log by mistake.
#[derive(Clone, Debug)]
pub struct JoinToken {
    /// Its id.
    pub id: TokenId,
    /// Its secret.
    pub secret: TokenSecret,
    /// The fingerprint of the cluster's authority.
    pub authority: Fingerprint,
    /// The roles that the node may have.
    pub roles: Roles,
    /// When it expires.
    pub expires: Timestamp,
    /// Addresses of managers, as `host:port`; the node tries them in order.
    pub addresses: Vec<String>,
}

/// A token as the managers store it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its id.
    pub id: TokenId,
    /// A hash of its secret. The secret is random, so nobody can guess it from the hash.
    pub hash: [u8; 32],
    /// The roles that the node may have.
    pub roles: Roles,
    /// When it expires.
    pub expires: Timestamp,
    /// How many nodes may join with it.
    pub uses_max: u16,
    /// The nodes that joined with it.
    pub used: Vec<TokenUse>,
}

impl fmt::Debug for TokenRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, roles, expires, uses_max, used, .. } = self;
        write!(f, "TokenRecord({id}, {roles}, until {expires}, {uses_max} uses, used {used:?}, ..)")
    }
}

/// Nodes in words: `node 2`, `nodes 2, 3 and 4`. Of many nodes only the first are named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeList(pub Vec<NodeId>);

/// A [`NodeList`] names no more nodes than this.
const NODES_NAMED_MAX: usize = 8;

impl fmt::Display for NodeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<String> = self.0.iter().take(NODES_NAMED_MAX).map(ToString::to_string).collect();
        let others = self.0.len() - named.len();
        match named.as_slice() {
            [] => f.write_str("no node"),
            [one] => write!(f, "node {one}"),
            many if others > 0 => write!(f, "nodes {} and {others} others", many.join(", ")),
            [first @ .., last] => write!(f, "nodes {} and {last}", first.join(", ")),
        }
    }
}

/// How a token was used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenUse {
    /// The number that the node got.
    pub node: NodeId,
    /// The node's public key at that time.
    pub key: [u8; 32],
}

impl fmt::Debug for TokenUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by node {}", self.node)
    }
}

/// The part of a token that a node shows to a manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PresentedToken {
    /// The token's id.
    pub id: TokenId,
    /// Its secret.
    pub secret: TokenSecret,
}

/// The request of a joining node.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRequest {
    /// The roles that it wants.
    pub roles: Roles,
    /// Its name for people, usually its host name.
    pub name: String,
    /// Its public key (Ed25519). The node has proved that it has the private key.
    pub key: [u8; 32],
}

impl fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wish({:?} as {})", self.name, self.roles)
    }
}

/// The permission to join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// As a new node, which gets a number.
    New,
    /// It already joined with this token and repeats the request with the same key, because the answer was lost. It
    /// keeps its number.
    Again(NodeId),
}

/// Why a token is refused. It contains nothing of the secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// The text is no token.
    #[error("this is no token to join with: {0}; copy the whole line that `weir token create` printed")]
    Malformed(&'static str),
    /// The id is unknown, or the secret is wrong.
    #[error("token {id} is not known to this cluster; make a new one with `weir token create` on a manager")]
    Unknown {
        /// The token's id.
        id: TokenId,
    },
    /// As many other nodes have joined with it as may.
    #[error("token {id} was used already, by {nodes}; make a new one with `weir token create` on a manager")]
    Used {
        /// The token's id.
        id: TokenId,
        /// The nodes.
        nodes: NodeList,
    },
    /// The node that joined with it was removed since.
    #[error(
        "token {id} was used by node {node}, which was removed from this cluster; make a new one with `weir token create` on a manager"
    )]
    Removed {
        /// The token's id.
        id: TokenId,
        /// The node.
        node: NodeId,
    },
    /// It has expired.
    #[error("token {id} expired {} ago by the manager's clock; make a new one with `weir token create` on a manager", units::show_duration(*ago))]
    Expired {
        /// The token's id.
        id: TokenId,
        /// The time since it expired.
        ago: Duration,
    },
    /// It does not allow the requested roles.
    #[error(
        "token {id} lets a node join as {may}, not as {wanted}; make one with `weir token create --role {wanted}` on a manager"
    )]
    Roles {
        /// The token's id.
        id: TokenId,
        /// The allowed roles.
        may: Roles,
        /// The requested roles.
        wanted: Roles,
    },
    /// The addresses are not valid.
    #[error(
        "a token cannot hold {addresses} addresses: it needs at least one, has room for {ADDRESSES_MAX}, and each at most 255 bytes"
    )]
    Addresses {
        /// The number of addresses.
        addresses: usize,
    },
}

#[derive(Serialize, Deserialize)]
struct Bytes {
    version: u8,
    id: TokenId,
    secret: TokenSecret,
    authority: [u8; 32],
    roles: u8,
    expires: i64,
    addresses: Vec<String>,
}

impl JoinToken {
    /// Makes a new token for so many nodes, and the record that the managers store.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub fn make(
        addresses: Vec<String>,
        authority: Fingerprint,
        roles: Roles,
        expires: Timestamp,
        uses_max: u16,
    ) -> Result<(Self, TokenRecord), RandomError> {
        let (id, secret) = (TokenId(random::bytes()?), TokenSecret(random::bytes()?));
        let record = TokenRecord { id, hash: *secret.hash().as_bytes(), roles, expires, uses_max, used: Vec::new() };
        Ok((Self { id, secret, authority, roles, expires, addresses }, record))
    }

    /// One line of text to copy to the new node. Anyone who reads it can join in the node's place: show it only to the
    /// person who made it.
    ///
    /// # Errors
    /// [`TokenError::Addresses`].
    pub fn text(&self) -> Result<String, TokenError> {
        let addresses = self.addresses.len();
        if !addresses_are_good(&self.addresses) {
            return Err(TokenError::Addresses { addresses });
        }
        let bytes = Bytes {
            version: VERSION,
            id: self.id,
            secret: self.secret.clone(),
            authority: self.authority.0,
            roles: self.roles.bits(),
            expires: self.expires.0,
            addresses: self.addresses.clone(),
        };
        let mut bytes = message::encode(&bytes).map_err(|_| TokenError::Addresses { addresses })?;
        bytes.extend(Crc32c::of(&bytes).0.to_le_bytes());
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Parses `text`, ignoring surrounding white space.
    ///
    /// # Errors
    /// [`TokenError::Malformed`].
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let malformed = TokenError::Malformed;
        let text = text.trim();
        if text.len() > TEXT_MAX {
            return Err(malformed("it is too long"));
        }
        let text = text.strip_prefix(PREFIX).ok_or(malformed("it does not begin with `weir-join-`"))?;
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| malformed("it has characters that no token has, or characters are missing"))?;
        let (bytes, sum) = bytes.split_last_chunk().ok_or(malformed("it is too short"))?;
        if Crc32c::of(bytes).0 != u32::from_le_bytes(*sum) {
            return Err(malformed("a part of it is missing or was altered"));
        }
        if bytes.first() != Some(&VERSION) {
            return Err(malformed("a newer version of weir has made it; install that version on the new node"));
        }
        let bytes: Bytes = message::decode(bytes).map_err(|_| malformed("there is something else in it"))?;
        let roles =
            Roles::from_bits(bytes.roles).ok_or(malformed("it is for a role that this version does not know"))?;
        if !addresses_are_good(&bytes.addresses) {
            return Err(malformed("its addresses are not valid"));
        }
        Ok(Self {
            id: bytes.id,
            secret: bytes.secret,
            authority: Fingerprint(bytes.authority),
            roles,
            expires: Timestamp(bytes.expires),
            addresses: bytes.addresses,
        })
    }

    /// The part to show to a manager.
    #[must_use]
    pub fn presented(&self) -> PresentedToken {
        PresentedToken { id: self.id, secret: self.secret.clone() }
    }
}

fn addresses_are_good(addresses: &[String]) -> bool {
    let is_good = |address: &String| !address.is_empty() && address.len() <= ADDRESS_BYTES_MAX;
    (1..=ADDRESSES_MAX).contains(&addresses.len()) && addresses.iter().all(is_good)
}

/// Decides whether a node that shows `presented` may have its `wish`, given the stored `record`. The caller must mark
/// the record as used in the same transaction, so that only one of two nodes with the same token wins.
///
/// # Errors
/// Any [`TokenError`] except those of the text. A node that does not know the secret learns nothing about the token.
pub fn check(
    record: Option<&TokenRecord>,
    presented: &PresentedToken,
    wish: &TokenRequest,
    now: Timestamp,
) -> Result<Admission, TokenError> {
    let id = presented.id;
    // Compared in constant time.
    let known = |record: &&TokenRecord| record.id == id && presented.secret.hash() == record.hash;
    let record = record.filter(known).ok_or(TokenError::Unknown { id })?;
    let before = record.used.iter().find(|used| used.key == wish.key);
    if before.is_none() && record.used.len() >= usize::from(record.uses_max) {
        let nodes = NodeList(record.used.iter().map(|used| used.node).collect());
        return Err(TokenError::Used { id, nodes });
    }
    if now >= record.expires {
        let ago = Duration::from_nanos(now.0.saturating_sub(record.expires.0).unsigned_abs());
        return Err(TokenError::Expired { id, ago });
    }
    if !record.roles.include(wish.roles) {
        return Err(TokenError::Roles { id, may: record.roles, wanted: wish.roles });
    }
    Ok(before.map_or(Admission::New, |used| Admission::Again(used.node)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);

    fn made() -> (JoinToken, TokenRecord) {
        let addresses = vec!["manager.site:1096".to_owned(), "[2001:db8::1]:1096".to_owned()];
        JoinToken::make(addresses, Fingerprint([7; 32]), Roles::DISK, NOW.plus(Duration::from_secs(3600)), 1).unwrap()
    }

    fn wish() -> TokenRequest {
        TokenRequest { roles: Roles::DISK, name: "disk1".into(), key: [1; 32] }
    }

    #[test]
    fn a_token_survives_copying() {
        let (token, record) = made();
        let text = token.text().unwrap();
        let read = JoinToken::parse(&format!("  {text}\n")).unwrap();
        assert_eq!(
            (read.id, read.authority, read.roles, read.expires),
            (token.id, token.authority, token.roles, token.expires)
        );
        assert_eq!(read.addresses, token.addresses);
        assert_eq!(check(Some(&record), &read.presented(), &wish(), NOW), Ok(Admission::New));
        for cut in 0..text.len() {
            assert!(matches!(JoinToken::parse(&text[..cut]), Err(TokenError::Malformed(_))), "{cut}");
        }
        assert!(JoinToken::parse(&"x".repeat(10_000)).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn it_is_valid_for_one_node_until_it_expires() {
        let (token, mut record) = made();
        let shown = token.presented();
        let last = Timestamp(record.expires.0 - 1);
        assert_eq!(check(Some(&record), &shown, &wish(), last), Ok(Admission::New));
        let at_the_moment = check(Some(&record), &shown, &wish(), record.expires);
        assert_eq!(at_the_moment, Err(TokenError::Expired { id: token.id, ago: Duration::ZERO }));
        let late = check(Some(&record), &shown, &wish(), record.expires.plus(Duration::from_secs(600)));
        assert_eq!(late, Err(TokenError::Expired { id: token.id, ago: Duration::from_secs(600) }));
        assert!(late.unwrap_err().to_string().contains("expired 10 min 0 s ago"));

        record.used = vec![TokenUse { node: NodeId(4), key: [1; 32] }];
        assert_eq!(check(Some(&record), &shown, &wish(), NOW), Ok(Admission::Again(NodeId(4))));
        let other = TokenRequest { key: [2; 32], ..wish() };
        let twice = Err(TokenError::Used { id: token.id, nodes: NodeList(vec![NodeId(4)]) });
        assert_eq!(check(Some(&record), &shown, &other, NOW), twice);
        assert_eq!(check(Some(&record), &shown, &other, record.expires), twice);
    }

    #[test]
    fn a_token_for_several_nodes_is_valid_until_it_is_used_up() {
        let (token, mut record) = made();
        record.uses_max = 2;
        let by = |key: u8| TokenRequest { key: [key; 32], ..wish() };
        let judge = |record: &TokenRecord, key, now| check(Some(record), &token.presented(), &by(key), now);
        record.used = vec![TokenUse { node: NodeId(4), key: [1; 32] }];
        assert_eq!(judge(&record, 2, NOW), Ok(Admission::New));
        assert_eq!(judge(&record, 1, NOW), Ok(Admission::Again(NodeId(4))));
        assert!(matches!(judge(&record, 2, record.expires), Err(TokenError::Expired { .. })));
        record.used.push(TokenUse { node: NodeId(5), key: [2; 32] });
        assert_eq!(judge(&record, 2, NOW), Ok(Admission::Again(NodeId(5))));
        let said = judge(&record, 3, NOW).unwrap_err().to_string();
        assert!(said.contains("was used already, by nodes 4 and 5;"), "{said}");
    }

    #[test]
    fn nodes_are_named_in_words() {
        let list = |count: u64| NodeList((2..2 + count).map(NodeId).collect()).to_string();
        assert_eq!([list(1), list(2), list(3)], ["node 2", "nodes 2 and 3", "nodes 2, 3 and 4"]);
        assert_eq!(list(8), "nodes 2, 3, 4, 5, 6, 7, 8 and 9");
        assert_eq!(list(11), "nodes 2, 3, 4, 5, 6, 7, 8, 9 and 3 others");
    }

    #[test]
    fn it_is_valid_only_for_its_roles() {
        let (token, record) = made();
        for wanted in [Roles::MANAGER, Roles::BOTH] {
            let more = check(Some(&record), &token.presented(), &TokenRequest { roles: wanted, ..wish() }, NOW);
            assert_eq!(more, Err(TokenError::Roles { id: token.id, may: Roles::DISK, wanted }));
        }
    }

    #[test]
    fn without_the_secret_a_node_learns_nothing() {
        let (token, mut record) = made();
        let guess = PresentedToken { id: token.id, secret: TokenSecret([0; 32]) };
        let unknown = Err(TokenError::Unknown { id: token.id });
        assert_eq!(check(Some(&record), &guess, &wish(), NOW), unknown);
        record.used = vec![TokenUse { node: NodeId(4), key: [1; 32] }];
        assert_eq!(check(Some(&record), &guess, &wish(), record.expires), unknown);
        assert_eq!(check(None, &token.presented(), &wish(), NOW), unknown);
        let other = made();
        assert_eq!(check(Some(&other.1), &token.presented(), &wish(), NOW), unknown);
    }

    #[test]
    fn a_token_needs_valid_addresses() {
        let (token, _) = made();
        for addresses in [vec![], vec![String::new()], vec!["a:1".into(); 17], vec!["a".repeat(256)]] {
            let count = addresses.len();
            let wrong = JoinToken { addresses, ..token.clone() };
            assert_eq!(wrong.text(), Err(TokenError::Addresses { addresses: count }));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let (token, record) = made();
        let secret = token.secret.0;
        let shown = format!("{token:?} {record:?} {:?} {:?}", token.presented(), wish());
        assert!(shown.contains(&token.id.to_string()) && shown.contains("not shown"), "{shown}");
        for bytes in [secret, record.hash] {
            assert!(!shown.contains(&format!("{}, {}, {}", bytes[0], bytes[1], bytes[2])), "{shown}");
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        let token = JoinToken {
            id: TokenId([1; 16]),
            secret: TokenSecret([2; 32]),
            authority: Fingerprint([3; 32]),
            roles: Roles::DISK,
            expires: Timestamp(4),
            addresses: vec!["m:5".into()],
        };
        assert_eq!(
            token.text().unwrap(),
            "weir-join-AQEBAQEBAQEBAQEBAQEBAQECAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAggBA206NVTvIKw"
        );
    }

    proptest! {
        #[test]
        fn any_altered_character_is_noticed(at in 0usize.., bit in 0u8..7) {
            let (token, _) = made();
            let mut text = token.text().unwrap().into_bytes();
            let at = at % text.len();
            text[at] ^= 1 << bit;
            let text = String::from_utf8(text).unwrap();
            // A character that became white space is trimmed, and then missing.
            prop_assert!(JoinToken::parse(&text).is_err());
        }
    }
}
