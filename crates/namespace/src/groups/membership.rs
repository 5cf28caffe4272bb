//! Membership of a cluster: nodes join, report addresses, and are removed. This module does not interpret keys and roles.
//!
//! Only the administrator may make these changes. Nodes come here through a manager, which acts as the administrator.

use std::collections::BTreeSet;

use kv::Txn;
use types::NodeId;

use crate::codec::{BadValue, Decoder, Encoder};
use crate::context::operations;
use crate::groups::members::{ADDRESS_MAX, ADDRESSES_MAX, NODE_NAME_MAX, must_be_member, put_member};
use crate::groups::registry::{administrator, get};
use crate::groups::tokens::put_token;
use crate::{Context, MemberEntry, NsError, Read, TokenEntry, keys, member, token};

/// The number of the first manager of a cluster.
pub const FIRST_NODE: NodeId = NodeId(1);

/// The mark that holds the next node number.
const MARK: &[u8] = b"nodes";
/// The mark that holds the nodes that are cut off.
const CUT_OFF: &[u8] = b"cut-off";
/// More nodes are not cut off at a time.
pub const CUT_OFF_MAX: usize = 1024;

/// Lets a node join: records in the token that the node's key has used it, and gives the node the next number. The same key gets the same number
/// again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinNode {
    /// The token as it was when the caller verified it. If its record has changed since, the request fails with [`NsError::Stale`]: read and verify
    /// it again.
    pub token: TokenEntry,
    /// The roles of the node, as bits.
    pub roles: u8,
    /// Its name for people.
    pub name: String,
    /// Its public key.
    pub key: [u8; 32],
}

/// Makes the first manager a member of the cluster, with [`FIRST_NODE`]. A repeated request updates its roles, name and key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundCluster {
    /// Its roles, as bits.
    pub roles: u8,
    /// Its name for people.
    pub name: String,
    /// Its public key.
    pub key: [u8; 32],
}

/// A node reports its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAddresses {
    /// The node.
    pub node: NodeId,
    /// The addresses for other nodes.
    pub for_nodes: Vec<String>,
    /// The addresses for clients.
    pub for_clients: Vec<String>,
}

/// Removes a node: it may not log in again. Its number is never handed out again. Its boot generation and its stores stay on record. If another node
/// brings one of the stores back, the store belongs to that node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveMember {
    /// The node.
    pub node: NodeId,
}

/// Cuts a node off, to be removed by [`RemoveMember`] when its lease has ended: it may not log in again, also after a restart of the manager.
/// The caller sees to it that it is not the manager itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutOffMember {
    /// The node.
    pub node: NodeId,
}

/// The nodes that are cut off and not removed yet.
pub fn cut_off(read: &dyn Read) -> Result<BTreeSet<NodeId>, NsError> {
    let nodes = get(read, &keys::mark(CUT_OFF), |value| {
        let mut from = Decoder::new(value, "the mark of nodes that are cut off")?;
        let count = from.u64()?;
        if count > CUT_OFF_MAX as u64 {
            return Err(BadValue::Damaged("more than 1024 nodes that are cut off"));
        }
        let nodes = (0..count).map(|_| from.u64().map(NodeId)).collect::<Result<_, _>>()?;
        from.end()?;
        Ok(nodes)
    })?;
    Ok(nodes.unwrap_or_default())
}

/// See [`JoinNode`]. [`NsError::Stale`] if the token has changed since it was read; [`NsError::NotFound`] if the node that used it was removed.
pub fn join_node(txn: &mut dyn Txn, ctx: &Context, request: &JoinNode) -> Result<NodeId, NsError> {
    administrator(ctx)?;
    check_name(&request.name)?;
    let there = token(txn, &request.token.id)?;
    if there.as_ref() != Some(&request.token) {
        return Err(NsError::Stale { what: "the token".into(), why: "it was used or removed meanwhile" });
    }
    if let Some((node, _)) = request.token.used.iter().find(|(_, key)| *key == request.key) {
        return must_be_member(txn, *node).map(|member| member.node);
    }
    if request.token.is_used_up() {
        return Err(NsError::Stale { what: "the token".into(), why: "another node has used it" });
    }
    let node = next_node(txn)?;
    let JoinNode { mut token, roles, name, key } = request.clone();
    token.used.push((node, key));
    put_token(txn, &token);
    put_member(
        txn,
        &MemberEntry { node, roles, name, key, joined: ctx.now, for_nodes: Vec::new(), for_clients: Vec::new() },
    );
    Ok(node)
}

/// See [`FoundCluster`].
pub fn found_cluster(txn: &mut dyn Txn, ctx: &Context, request: &FoundCluster) -> Result<(), NsError> {
    administrator(ctx)?;
    check_name(&request.name)?;
    let FoundCluster { roles, name, key } = request.clone();
    let founded = match member(txn, FIRST_NODE)? {
        Some(there) => MemberEntry { roles, name, key, ..there },
        None => {
            let (for_nodes, for_clients) = (Vec::new(), Vec::new());
            MemberEntry { node: FIRST_NODE, roles, name, key, joined: ctx.now, for_nodes, for_clients }
        }
    };
    put_member(txn, &founded);
    Ok(())
}

/// See [`SetAddresses`].
pub fn set_addresses(txn: &mut dyn Txn, ctx: &Context, request: &SetAddresses) -> Result<(), NsError> {
    administrator(ctx)?;
    let there = must_be_member(txn, request.node)?;
    for addresses in [&request.for_nodes, &request.for_clients] {
        if addresses.len() > ADDRESSES_MAX {
            return Err(NsError::TooMany { what: "addresses of a node", bound: ADDRESSES_MAX as u64 });
        }
        if let Some(long) = addresses.iter().find(|address| address.len() > ADDRESS_MAX) {
            let (len, bound) = (long.len() as u64, ADDRESS_MAX as u64);
            return Err(NsError::TooLarge { what: "an address of a node", len, bound });
        }
    }
    let SetAddresses { for_nodes, for_clients, .. } = request.clone();
    let entry = MemberEntry { for_nodes, for_clients, ..there.clone() };
    if entry != there {
        put_member(txn, &entry);
    }
    Ok(())
}

/// See [`RemoveMember`].
pub fn remove_member(txn: &mut dyn Txn, ctx: &Context, request: &RemoveMember) -> Result<(), NsError> {
    administrator(ctx)?;
    must_be_member(txn, request.node)?;
    // The boot generation stays on record. The number is never given to another node. Its stores can have forgotten bytes only in a boot of this
    // node.
    txn.delete(&keys::member(request.node));
    let mut nodes = cut_off(txn)?;
    if nodes.remove(&request.node) {
        put_cut_off(txn, &nodes);
    }
    Ok(())
}

/// See [`CutOffMember`].
pub fn cut_off_member(txn: &mut dyn Txn, ctx: &Context, request: &CutOffMember) -> Result<(), NsError> {
    administrator(ctx)?;
    must_be_member(txn, request.node)?;
    let mut nodes = cut_off(txn)?;
    if nodes.len() >= CUT_OFF_MAX {
        return Err(NsError::TooMany { what: "nodes that are cut off", bound: CUT_OFF_MAX as u64 });
    }
    if nodes.insert(request.node) {
        put_cut_off(txn, &nodes);
    }
    Ok(())
}

fn put_cut_off(txn: &mut dyn Txn, nodes: &BTreeSet<NodeId>) {
    let key = keys::mark(CUT_OFF);
    if nodes.is_empty() {
        return txn.delete(&key);
    }
    let mut out = Encoder::new(9 + 8 * nodes.len());
    out.u64(nodes.len() as u64);
    nodes.iter().for_each(|node| out.u64(node.0));
    txn.put(&key, &out.0);
}

fn check_name(name: &str) -> Result<(), NsError> {
    match name.len() {
        1..=NODE_NAME_MAX => Ok(()),
        0 => Err(NsError::Invalid { what: "the name of a node".into(), why: "it is empty" }),
        len => Err(NsError::TooLarge { what: "the name of a node", len: len as u64, bound: NODE_NAME_MAX as u64 }),
    }
}

/// Takes a number that no node ever had.
fn next_node(txn: &mut dyn Txn) -> Result<NodeId, NsError> {
    let next = untaken(txn)?;
    put_untaken(txn, next.checked_add(1))?;
    Ok(NodeId(next))
}

/// Leaves out the next `count` numbers: nodes may have them that this namespace does not know.
pub(crate) fn pass_over_nodes(txn: &mut dyn Txn, count: u64) -> Result<(), NsError> {
    let next = untaken(txn)?;
    put_untaken(txn, next.checked_add(count))
}

fn untaken(txn: &dyn Txn) -> Result<u64, NsError> {
    let next = get(txn, &keys::mark(MARK), |value| {
        let mut from = Decoder::new(value, "the mark of nodes")?;
        let next = from.u64()?;
        from.end()?;
        Ok(next)
    })?;
    Ok(next.unwrap_or(FIRST_NODE.0 + 1))
}

fn put_untaken(txn: &mut dyn Txn, next: Option<u64>) -> Result<(), NsError> {
    let next = next.ok_or(NsError::TooMany { what: "nodes", bound: u64::MAX })?;
    let mut out = Encoder::new(9);
    out.u64(next);
    txn.put(&keys::mark(MARK), &out.0);
    Ok(())
}

operations! {
    JoinNode, join_node -> NodeId;
    FoundCluster, found_cluster -> ();
    SetAddresses, set_addresses -> ();
    RemoveMember, remove_member -> ();
    CutOffMember, cut_off_member -> ();
}
