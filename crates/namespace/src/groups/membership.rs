//! Who belongs to a cluster: nodes join it, get addresses, and are removed. What a key or a role means is not known here.
//!
//! All of this is the administrator's; nodes come here through a manager, which is.

use kv::Txn;
use types::NodeId;

use crate::codec::{Decoder, Encoder};
use crate::context::operations;
use crate::groups::members::{ADDRESS_MAX, ADDRESSES_MAX, NODE_NAME_MAX, must_be_member, put_member};
use crate::groups::registry::{administrator, get};
use crate::groups::tokens::put_token;
use crate::{Context, MemberEntry, NsError, TokenEntry, keys, member, token};

/// The number of the manager that a cluster begins with.
pub const FIRST_NODE: NodeId = NodeId(1);

/// The mark of the next number of a node.
const MARK: &[u8] = b"nodes";

/// Lets a node in: marks the token as used by its key, and gives it the next number. The same key gets the same number again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinNode {
    /// The token, as it was when it was found good. If it is not so any more the request is [`NsError::Stale`]: read and judge again.
    pub token: TokenEntry,
    /// What the node is for, as bits.
    pub roles: u8,
    /// How people call it.
    pub name: String,
    /// Its public key.
    pub key: [u8; 32],
}

/// The manager that the cluster begins with is a member of it, too, with [`FIRST_NODE`]. Said again, the present name and key are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundCluster {
    /// What it is for, as bits.
    pub roles: u8,
    /// How people call it.
    pub name: String,
    /// Its public key.
    pub key: [u8; 32],
}

/// A node says where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAddresses {
    /// Which.
    pub node: NodeId,
    /// Where nodes reach it.
    pub for_nodes: Vec<String>,
    /// Where clients reach it.
    pub for_clients: Vec<String>,
}

/// Forgets a node: it is let in no more. Its number is not given out again. Its era stays known, and so do its stores: the node that brings one of them
/// back has that from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveMember {
    /// Which.
    pub node: NodeId,
}

/// See [`JoinNode`]. [`NsError::Stale`] if the token is not as it was read any more; [`NsError::NotFound`] if the node that has used it was removed.
pub fn join_node(txn: &mut dyn Txn, ctx: &Context, request: &JoinNode) -> Result<NodeId, NsError> {
    administrator(ctx)?;
    check_name(&request.name)?;
    let there = token(txn, &request.token.id)?;
    if there.as_ref() != Some(&request.token) {
        return Err(NsError::Stale { what: "the token".into(), why: "it was used or removed meanwhile" });
    }
    match request.token.used {
        Some((node, key)) if key == request.key => return must_be_member(txn, node).map(|member| member.node),
        Some(_) => return Err(NsError::Stale { what: "the token".into(), why: "another node has used it" }),
        None => {}
    }
    let node = next_node(txn)?;
    let JoinNode { roles, name, key, .. } = request.clone();
    put_token(txn, &TokenEntry { used: Some((node, key)), ..request.token.clone() });
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
    // What is known of its kernel's runs stays: nobody else is given the number of one, and its stores may have forgotten something in no other.
    txn.delete(&keys::member(request.node));
    Ok(())
}

fn check_name(name: &str) -> Result<(), NsError> {
    match name.len() {
        1..=NODE_NAME_MAX => Ok(()),
        0 => Err(NsError::Invalid { what: "the name of a node".into(), why: "it is empty" }),
        len => Err(NsError::TooLarge { what: "the name of a node", len: len as u64, bound: NODE_NAME_MAX as u64 }),
    }
}

/// A number that no node ever had.
fn next_node(txn: &mut dyn Txn) -> Result<NodeId, NsError> {
    let key = keys::mark(MARK);
    let next = get(txn, &key, |value| {
        let mut from = Decoder::new(value, "the mark of nodes")?;
        let next = from.u64()?;
        from.end()?;
        Ok(next)
    })?;
    let next = next.unwrap_or(FIRST_NODE.0 + 1);
    let after = next.checked_add(1).ok_or(NsError::TooMany { what: "nodes", bound: u64::MAX })?;
    let mut out = Encoder::new(9);
    out.u64(after);
    txn.put(&key, &out.0);
    Ok(NodeId(next))
}

operations! {
    JoinNode, join_node -> NodeId;
    FoundCluster, found_cluster -> ();
    SetAddresses, set_addresses -> ();
    RemoveMember, remove_member -> ();
}
