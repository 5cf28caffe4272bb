//! The stores of a cluster (`S`), and the state that the administrator has set for each.

use std::ops::ControlFlow;

use kv::{ScanOrder, Txn};
use types::{Location, Member, NodeId, StoreClass, StoreId};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::context::operations;
use crate::groups::members::must_be_member;
use crate::groups::registry::{administrator, all, get, text};
use crate::{Context, NsError, Read, groups, keys, member};

/// The most stores of one node, including those that it has not reported for a long time.
pub const STORES_OF_NODE_MAX: usize = 1024;

const TAG_CLASS: u8 = 0x01;

/// Groups read at a time.
const PAGE: usize = 1024;

/// The state that the administrator has set for a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WantedState {
    /// The store is in use.
    Online,
    /// The store serves reads and gets no new objects.
    ReadOnly,
    /// The store is draining.
    Draining,
    /// The store is removed as lost.
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
    /// The store.
    pub store: StoreId,
    /// The node that has it.
    pub node: NodeId,
    /// Its location.
    pub location: Location,
    /// Its class, as the administrator named it.
    pub class: Option<StoreClass>,
    /// The state that the administrator has set.
    pub state: WantedState,
}

/// A node reports a store. The state set by the administrator stays. The request fails if another member of the cluster has the store. A removed node
/// does not count: the disk has moved to another machine, or its machine has joined again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutStore {
    /// The store.
    pub store: StoreId,
    /// The node.
    pub node: NodeId,
    /// Its location.
    pub location: Location,
    /// Its class, as the administrator named it.
    pub class: Option<StoreClass>,
}

/// The administrator sets another state for a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetStoreState {
    /// The store.
    pub store: StoreId,
    /// The new state.
    pub state: WantedState,
}

/// Removes a store. The request fails while the store is a member of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveStore {
    /// The store.
    pub store: StoreId,
}

/// The record of a store.
pub fn store(read: &dyn Read, store: StoreId) -> Result<Option<StoreEntry>, NsError> {
    get(read, &keys::store(store), |value| decode_store(store, value))
}

/// All stores of the cluster, by number.
pub fn stores(read: &dyn Read) -> Result<Vec<StoreEntry>, NsError> {
    all(read, b"S", |number, value| decode_store(StoreId(number), value))
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
            let (what, by) = (format!("store {}", request.store), format!("group {} depends on it", group.group));
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

/// How many stores a node has. Reads only the node of each record, because there may be thousands.
pub(crate) fn stores_of(read: &dyn Read, node: NodeId) -> Result<usize, NsError> {
    let mut count = 0;
    read.scan(b"S", &keys::end_of(b"S"), ScanOrder::Ascending, &mut |_, value| {
        count += usize::from(keys::number_at(value, 1) == Some(node.0));
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

fn must_be_store(read: &dyn Read, store: StoreId) -> Result<StoreEntry, NsError> {
    self::store(read, store)?.ok_or_else(|| NsError::NotFound(store.to_string(), "store of this cluster"))
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

/// Three names and their separators.
const LOCATION_BYTES_MAX: usize = 3 * types::LOCATION_NAME_MAX + 2;

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

operations! {
    PutStore, put_store -> ();
    SetStoreState, set_store_state -> ();
    RemoveStore, remove_store -> ();
}
