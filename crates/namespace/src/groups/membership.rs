//! Who belongs to a cluster: tokens to join with (`J`), nodes (`M`) and their stores (`S`). What a token's hash, a key or a role means is not known
//! here: whether a token is good is judged by who knows, on the record as it was read, and the transaction compares that it still is so.
//!
//! All of this is the administrator's; nodes come here through a manager, which is.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};
use types::{Location, Member, NodeId, PrincipalId, StoreClass, StoreId, Timestamp};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::context::operations;
use crate::groups::placing::groups;
use crate::writers::scan::collect;
use crate::{Access, Context, NsError, Want, keys, permit};

/// Tokens that are kept at a time.
pub const TOKENS_MAX: usize = 10_000;
/// A token is forgotten so long after its end: until then who comes with it is told that it has expired.
const TOKENS_KEPT_NANOS: i64 = 30 * 86_400 * 1_000_000_000;
/// Longest name of a node, in bytes.
pub const NODE_NAME_MAX: usize = 255;
/// Stores of one node, those that it has not brought for long among them.
pub const STORES_OF_NODE_MAX: usize = 1024;
/// Most addresses of a node, of each kind.
pub const ADDRESSES_MAX: usize = 16;
/// Longest address, in bytes.
pub const ADDRESS_MAX: usize = 255;
/// The number of the manager that a cluster begins with.
pub const FIRST_NODE: NodeId = NodeId(1);
/// The mark of the next number of a node.
const MARK: &[u8] = b"nodes";
const TAG_USED: u8 = 0x80;
const TAG_CLASS: u8 = 0x01;
/// Groups that are read at a time.
const PAGE: usize = 1024;

/// `J`: what is kept of a token to join with.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// Which it is.
    pub id: [u8; 16],
    /// A hash of its secret.
    pub hash: [u8; 32],
    /// What a node may become with it, as bits.
    pub roles: u8,
    /// When it was made.
    pub made: Timestamp,
    /// Until when it is good.
    pub expires: Timestamp,
    /// The node that has joined with it, and its public key.
    pub used: Option<(NodeId, [u8; 32])>,
}

impl std::fmt::Debug for TokenEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, roles, expires, used, .. } = self;
        let id = u128::from_be_bytes(*id);
        let used = used.map(|(node, _)| node);
        write!(f, "TokenEntry({id:032x}, roles {roles}, until {expires}, used by {used:?}, ..)")
    }
}

/// `M`: a node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberEntry {
    /// Its number, which no other ever gets.
    pub node: NodeId,
    /// What it is for, as bits.
    pub roles: u8,
    /// How people call it.
    pub name: String,
    /// The public key that it joined with.
    pub key: [u8; 32],
    /// When it joined.
    pub joined: Timestamp,
    /// Where nodes reach it, as it said last.
    pub for_nodes: Vec<String>,
    /// Where clients reach it.
    pub for_clients: Vec<String>,
}

/// What the administrator wants of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WantedState {
    /// It is used.
    Online,
    /// It gives, and takes nothing.
    ReadOnly,
    /// It is being emptied.
    Draining,
    /// It is gone for good.
    Lost,
}

impl WantedState {
    const ALL: [WantedState; 4] = [Self::Online, Self::ReadOnly, Self::Draining, Self::Lost];

    fn byte(self) -> u8 {
        self as u8 + 1
    }
}

/// `S`: a store of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreEntry {
    /// Which.
    pub store: StoreId,
    /// The node that has it.
    pub node: NodeId,
    /// Where it stands.
    pub location: Location,
    /// What its administrator calls its kind.
    pub class: Option<StoreClass>,
    /// What is wanted of it.
    pub state: WantedState,
}

/// Keeps a new token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MakeToken {
    /// What is kept of it.
    pub token: TokenEntry,
}

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

/// A node says that it has a store. What is wanted of the store stays as it was. Refused if another node of the cluster has it; whoever has had it
/// and was removed does not count: the disk has come to another machine, or its machine has joined anew.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutStore {
    /// Which.
    pub store: StoreId,
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub location: Location,
    /// What its administrator calls its kind.
    pub class: Option<StoreClass>,
}

/// The administrator wants something else of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetStoreState {
    /// Which.
    pub store: StoreId,
    /// What.
    pub state: WantedState,
}

/// Forgets a store. Refused as long as a group counts on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveStore {
    /// Which.
    pub store: StoreId,
}

/// Forgets a node: it is let in no more. Its number is not given out again. Its era stays known, and so do its stores: the node that brings one of them
/// back has that from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveMember {
    /// Which.
    pub node: NodeId,
}

/// Forgets a token that nobody has joined with: nobody does any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveToken {
    /// Which.
    pub id: [u8; 16],
}

/// A token.
pub fn token(read: &dyn Read, id: &[u8; 16]) -> Result<Option<TokenEntry>, NsError> {
    get(read, &keys::token(id), |value| decode_token(*id, value))
}

/// All tokens that are kept, in the order of their ids.
pub fn tokens(read: &dyn Read) -> Result<Vec<TokenEntry>, NsError> {
    collect(read, b"J", &keys::end_of(b"J"), TOKENS_MAX, |key, value| {
        let id = key.get(1..).and_then(|id| id.try_into().ok());
        let id = id.ok_or_else(|| BadValue::Damaged("the key of a token has a wrong length").at(key))?;
        decode_token(id, value).map(Some).map_err(|bad| bad.at(key))
    })
}

/// A node of the cluster.
pub fn member(read: &dyn Read, node: NodeId) -> Result<Option<MemberEntry>, NsError> {
    get(read, &keys::member(node), |value| decode_member(node, value))
}

/// All nodes of the cluster, by number.
pub fn members(read: &dyn Read) -> Result<Vec<MemberEntry>, NsError> {
    all(read, b"M", |number, value| decode_member(NodeId(number), value))
}

/// A store of the cluster.
pub fn store(read: &dyn Read, store: StoreId) -> Result<Option<StoreEntry>, NsError> {
    get(read, &keys::store(store), |value| decode_store(store, value))
}

/// All stores of the cluster, by number.
pub fn stores(read: &dyn Read) -> Result<Vec<StoreEntry>, NsError> {
    all(read, b"S", |number, value| decode_store(StoreId(number), value))
}

fn get<T>(read: &dyn Read, key: &[u8], decode: impl Fn(&[u8]) -> Result<T, BadValue>) -> Result<Option<T>, NsError> {
    read.get(key)?.map(|value| decode(&value).map_err(|bad| bad.at(key))).transpose()
}

fn all<T>(
    read: &dyn Read,
    letter: &[u8; 1],
    decode: impl Fn(u64, &[u8]) -> Result<T, BadValue>,
) -> Result<Vec<T>, NsError> {
    collect(read, letter, &keys::end_of(letter), usize::MAX, |key, value| {
        let number = keys::number_at(key, 1).filter(|_| key.len() == 9);
        let number = number.ok_or_else(|| BadValue::Damaged("the key has a wrong length").at(key))?;
        decode(number, value).map(Some).map_err(|bad| bad.at(key))
    })
}

/// See [`MakeToken`]. Tokens whose end is long over are forgotten with it.
pub fn make_token(txn: &mut dyn Txn, ctx: &Context, request: &MakeToken) -> Result<(), NsError> {
    administrator(ctx)?;
    let there = tokens(txn)?;
    let is_over = |entry: &TokenEntry| entry.expires.0.saturating_add(TOKENS_KEPT_NANOS) < ctx.now.0;
    for entry in there.iter().filter(|entry| is_over(entry)) {
        txn.delete(&keys::token(&entry.id));
    }
    if there.iter().filter(|entry| !is_over(entry)).count() >= TOKENS_MAX {
        return Err(NsError::TooMany { what: "tokens to join with", bound: TOKENS_MAX as u64 });
    }
    if there.iter().any(|entry| entry.id == request.token.id) {
        return Err(NsError::Exists("a token of this number".into()));
    }
    put_token(txn, &request.token);
    Ok(())
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

/// See [`PutStore`]. [`NsError::StoreElsewhere`] if another node has it; [`NsError::TooMany`].
pub fn put_store(txn: &mut dyn Txn, ctx: &Context, request: &PutStore) -> Result<(), NsError> {
    administrator(ctx)?;
    must_be_member(txn, request.node)?;
    let there = self::store(txn, request.store)?;
    if let Some(other) = there.as_ref().filter(|there| there.node != request.node)
        && let Some(member) = member(txn, other.node)?
    {
        return Err(NsError::StoreElsewhere { store: request.store, node: other.node, name: member.name });
    }
    if there.as_ref().is_none_or(|there| there.node != request.node)
        && stores_of(txn, request.node)? >= STORES_OF_NODE_MAX
    {
        return Err(NsError::TooMany { what: "stores of a node", bound: STORES_OF_NODE_MAX as u64 });
    }
    let PutStore { store, node, location, class } = request.clone();
    let state = there.as_ref().map_or(WantedState::Online, |there| there.state);
    let entry = StoreEntry { store, node, location, class, state };
    if there.as_ref() != Some(&entry) {
        put_store_entry(txn, &entry);
    }
    Ok(())
}

/// See [`SetStoreState`].
pub fn set_store_state(txn: &mut dyn Txn, ctx: &Context, request: &SetStoreState) -> Result<(), NsError> {
    administrator(ctx)?;
    let there = must_be_store(txn, request.store)?;
    if there.state == WantedState::Lost && request.state != WantedState::Lost {
        let what = format!("store {}", request.store);
        return Err(NsError::Invalid { what, why: "it is removed as lost, and other stores replace it" });
    }
    put_store_entry(txn, &StoreEntry { state: request.state, ..there });
    Ok(())
}

/// See [`RemoveStore`].
pub fn remove_store(txn: &mut dyn Txn, ctx: &Context, request: &RemoveStore) -> Result<(), NsError> {
    administrator(ctx)?;
    must_be_store(txn, request.store)?;
    let mut last = None;
    loop {
        let page = groups(txn, last, PAGE)?;
        let counts_on_it = |member: &Member| member.store == request.store;
        if let Some(group) = page.iter().find(|group| group.members.iter().any(counts_on_it)) {
            let (what, by) = (format!("store {}", request.store), format!("group {} counts on it", group.group));
            return Err(NsError::StillNeeded { what, by });
        }
        last = page.last().map(|group| group.group);
        if page.len() < PAGE {
            break;
        }
    }
    txn.delete(&keys::store(request.store));
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

/// See [`RemoveToken`]. [`NsError::Stale`] if a node has joined with it.
pub fn remove_token(txn: &mut dyn Txn, ctx: &Context, request: &RemoveToken) -> Result<(), NsError> {
    administrator(ctx)?;
    let id = request.id;
    let shown = || format!("{:032x}", u128::from_be_bytes(id));
    let there = token(txn, &id)?.ok_or_else(|| NsError::NotFound(shown(), "token"))?;
    if there.used.is_some() {
        return Err(NsError::Stale { what: format!("token {}", shown()), why: "a node has joined with it meanwhile" });
    }
    txn.delete(&keys::token(&id));
    Ok(())
}

/// How many stores a node has. Of all that there are no more is looked at than whose they are: there may be thousands.
fn stores_of(read: &dyn Read, node: NodeId) -> Result<usize, NsError> {
    let mut count = 0;
    read.scan(b"S", &keys::end_of(b"S"), ScanOrder::Ascending, &mut |_, value| {
        count += usize::from(keys::number_at(value, 1) == Some(node.0));
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

fn administrator(ctx: &Context) -> Result<(), NsError> {
    let root = Access { owner: PrincipalId(0), group: PrincipalId(0), mode: 0 };
    permit(&ctx.actor, &root, Want::Own, &|| "the cluster".into())
}

fn check_name(name: &str) -> Result<(), NsError> {
    match name.len() {
        1..=NODE_NAME_MAX => Ok(()),
        0 => Err(NsError::Invalid { what: "the name of a node".into(), why: "it is empty" }),
        len => Err(NsError::TooLarge { what: "the name of a node", len: len as u64, bound: NODE_NAME_MAX as u64 }),
    }
}

pub(crate) fn must_be_member(read: &dyn Read, node: NodeId) -> Result<MemberEntry, NsError> {
    member(read, node)?.ok_or_else(|| NsError::NotFound(node.to_string(), "node of this cluster"))
}

fn must_be_store(read: &dyn Read, store: StoreId) -> Result<StoreEntry, NsError> {
    self::store(read, store)?.ok_or_else(|| NsError::NotFound(store.to_string(), "store of this cluster"))
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

fn put_token(txn: &mut dyn Txn, token: &TokenEntry) {
    let mut out = Encoder::new(100);
    out.0.extend_from_slice(&token.hash);
    out.u8(token.roles);
    out.i64(token.made.0);
    out.i64(token.expires.0);
    if let Some((node, key)) = token.used {
        out.tag(TAG_USED, &[&node.0.to_be_bytes()[..], &key].concat());
    }
    txn.put(&keys::token(&token.id), &out.0);
}

pub(crate) fn decode_token(id: [u8; 16], value: &[u8]) -> Result<TokenEntry, BadValue> {
    let mut from = Decoder::new(value, "a token to join with")?;
    let hash = bytes_of(from.take(32)?)?;
    let (roles, made, expires) = (from.u8()?, Timestamp(from.i64()?), Timestamp(from.i64()?));
    let mut used = None;
    from.tags(|tag, field| {
        if tag == TAG_USED {
            let mut from = Decoder::part(field, "the use of a token");
            used = Some((NodeId(from.u64()?), bytes_of(from.rest())?));
        }
        Ok(tag == TAG_USED)
    })?;
    Ok(TokenEntry { id, hash, roles, made, expires, used })
}

fn bytes_of(bytes: &[u8]) -> Result<[u8; 32], BadValue> {
    bytes.try_into().map_err(|_| BadValue::Damaged("a key or a hash has a wrong length"))
}

fn put_member(txn: &mut dyn Txn, member: &MemberEntry) {
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

fn text(bytes: &[u8]) -> Result<String, BadValue> {
    String::from_utf8(bytes.to_vec()).map_err(|_| BadValue::Damaged("a name or an address is no text"))
}

fn put_store_entry(txn: &mut dyn Txn, entry: &StoreEntry) {
    let mut out = Encoder::new(64);
    out.u64(entry.node.0);
    out.u8(entry.state.byte());
    out.bytes(entry.location.as_str().as_bytes());
    if let Some(class) = &entry.class {
        out.tag(TAG_CLASS, class.as_str().as_bytes());
    }
    txn.put(&keys::store(entry.store), &out.0);
}

pub(crate) fn decode_store(store: StoreId, value: &[u8]) -> Result<StoreEntry, BadValue> {
    let mut from = Decoder::new(value, "a store of the cluster")?;
    let node = NodeId(from.u64()?);
    let state = from.u8()?;
    let known = WantedState::ALL.into_iter().find(|known| known.byte() == state);
    let state = known.ok_or(BadValue::Newer("the state of a store", u64::from(state)))?;
    let location = text(from.bytes(LOCATION_BYTES_MAX)?)?;
    let location = location.parse().map_err(|_| BadValue::Damaged("the location of a store is not valid"))?;
    let mut class = None;
    from.tags(|tag, field| {
        if tag == TAG_CLASS {
            let parsed = text(field)?.parse();
            class = Some(parsed.map_err(|_| BadValue::Damaged("the class of a store is not valid"))?);
        }
        Ok(tag == TAG_CLASS)
    })?;
    Ok(StoreEntry { store, node, location, class, state })
}

/// Three names and what is between them.
const LOCATION_BYTES_MAX: usize = 3 * types::LOCATION_NAME_MAX + 2;

operations! {
    MakeToken, make_token -> ();
    JoinNode, join_node -> NodeId;
    FoundCluster, found_cluster -> ();
    SetAddresses, set_addresses -> ();
    PutStore, put_store -> ();
    SetStoreState, set_store_state -> ();
    RemoveStore, remove_store -> ();
    RemoveMember, remove_member -> ();
    RemoveToken, remove_token -> ();
}
