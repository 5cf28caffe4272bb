//! The nodes of a cluster (`M`).

use kv::Txn;
use types::{NodeId, Timestamp};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::groups::registry::{all, bytes_of, get, text};
use crate::{NsError, Read, keys};

/// Longest name of a node, in bytes.
pub const NODE_NAME_MAX: usize = 255;
/// Most addresses of a node, of each kind.
pub const ADDRESSES_MAX: usize = 16;
/// Longest address, in bytes.
pub const ADDRESS_MAX: usize = 255;

/// `M`: a node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberEntry {
    /// Its number, which no other node ever gets.
    pub node: NodeId,
    /// Its roles, as bits.
    pub roles: u8,
    /// Its name for people.
    pub name: String,
    /// The public key that it joined with.
    pub key: [u8; 32],
    /// When it joined.
    pub joined: Timestamp,
    /// The addresses for other nodes, as the node reported them last.
    pub for_nodes: Vec<String>,
    /// The addresses for clients.
    pub for_clients: Vec<String>,
}

/// The record of a node.
pub fn member(read: &dyn Read, node: NodeId) -> Result<Option<MemberEntry>, NsError> {
    get(read, &keys::member(node), |value| decode_member(node, value))
}

/// All nodes of the cluster, by number.
pub fn members(read: &dyn Read) -> Result<Vec<MemberEntry>, NsError> {
    all(read, b"M", |number, value| decode_member(NodeId(number), value))
}

pub(crate) fn must_be_member(read: &dyn Read, node: NodeId) -> Result<MemberEntry, NsError> {
    member(read, node)?.ok_or_else(|| NsError::NotFound(node.to_string(), "node of this cluster"))
}

pub(crate) fn put_member(txn: &mut dyn Txn, member: &MemberEntry) {
    let mut out = Encoder::new(128);
    out.u8(member.roles);
    out.0.extend_from_slice(&member.key);
    out.i64(member.joined.0);
    out.bytes(member.name.as_bytes());
    for addresses in [&member.for_nodes, &member.for_clients] {
        out.u8(u8::try_from(addresses.len()).unwrap_or(u8::MAX));
        addresses.iter().for_each(|address| out.bytes(address.as_bytes()));
    }
    txn.put(&keys::member(member.node), &out.0);
}

pub(crate) fn decode_member(node: NodeId, value: &[u8]) -> Result<MemberEntry, BadValue> {
    let mut from = Decoder::new(value, "a node of the cluster")?;
    let roles = from.u8()?;
    let (key, joined) = (bytes_of(from.take(32)?)?, Timestamp(from.i64()?));
    let name = text(from.bytes(NODE_NAME_MAX)?)?;
    let mut addresses = || {
        let count = usize::from(from.u8()?);
        if count > ADDRESSES_MAX {
            return Err(BadValue::Damaged("a node with more than 16 addresses"));
        }
        (0..count).map(|_| text(from.bytes(ADDRESS_MAX)?)).collect::<Result<Vec<_>, _>>()
    };
    let (for_nodes, for_clients) = (addresses()?, addresses()?);
    from.end()?;
    Ok(MemberEntry { node, roles, name, key, joined, for_nodes, for_clients })
}
