//! A store has a damaged replica: it counts as missing, so that repair replaces it.

use kv::Txn;
use types::{GroupId, ObjectId, StoreId};

use crate::context::operations;
use crate::groups::placing::{holds, put_missing_replica};
use crate::{Context, NsError, WantedState, at_rest, group, missing_of, store};

/// Records a damaged replica as missing. Another member must hold the object, so the damaged replica is never the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissDamaged {
    /// The group.
    pub group: GroupId,
    /// The object.
    pub object: ObjectId,
    /// The state of the object ([`crate::AtRest::state`]) when its replica was found damaged.
    pub state: u32,
    /// The store with the damaged replica.
    pub store: StoreId,
    /// A store that holds the object and from which it can be copied.
    pub source: StoreId,
}

/// See [`MissDamaged`]. [`NsError::Stale`] if the object has changed meanwhile or has an open write, if the store does not hold it any more, or if
/// the other store does not hold it or was removed as lost.
pub fn miss_damaged(txn: &mut dyn Txn, _ctx: &Context, request: &MissDamaged) -> Result<(), NsError> {
    let MissDamaged { group: number, object, state, store: damaged, source } = *request;
    let stale = |why| NsError::Stale { what: format!("the damaged replica of object {:016x}", object.0), why };
    if at_rest(txn, number, object)?.is_none_or(|now| now.state != state) {
        return Err(stale("the object has been changed or removed meanwhile"));
    }
    let members = group(txn, number)?.map(|group| group.members).unwrap_or_default();
    let mut missing = missing_of(txn, number, object)?;
    let has = |store: StoreId| members.iter().any(|member| member.store == store && holds(member, object, &missing));
    if !has(damaged) {
        return Err(stale("the store does not count as holding it"));
    }
    let is_lost = store(txn, source)?.is_none_or(|entry| entry.state == WantedState::Lost);
    if source == damaged || is_lost || !has(source) {
        return Err(stale("it may be the last replica"));
    }
    missing.push(damaged);
    put_missing_replica(txn, number, object, &missing);
    Ok(())
}

operations! {
    MissDamaged, miss_damaged -> ();
}
