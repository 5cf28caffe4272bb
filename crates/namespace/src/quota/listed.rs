//! Shows trees and quotas.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder};
use types::{NsPath, Timestamp, TreeId};

use crate::ahead::{Ahead, tell};
use crate::codec::BadValue;
use crate::quota::record::{QuotaOf, QuotaRecord, decode_at};
use crate::scan::collect;
use crate::tree::node::Dentry;
use crate::tree::walk::{Last, Resolved, Walk, walk};
use crate::{Actor, NsError, PathOperation, TreeRecord, keys};

/// Trees after `after`, by number; at most `limit`.
pub fn trees(read: &dyn Read, after: Option<TreeId>, limit: usize) -> Result<Vec<TreeRecord>, NsError> {
    let mut start = after.map_or_else(|| b"T".to_vec(), |after| keys::tree(after).to_vec());
    if after.is_some() {
        start.push(0);
    }
    let found = collect(read, &start, b"U", limit, |key, _| {
        let bad = || BadValue::Damaged("the key of a tree has a wrong length").at(key);
        keys::number_at(key, 1).map(TreeId).map(Some).ok_or_else(bad)
    })?;
    let record = |tree: TreeId| TreeRecord::get(read, tree).transpose();
    found.into_iter().filter_map(record).collect()
}

/// The usage and limits in trees after `after`, in the order of their trees; at most `limit`. Only those of `tree`, if it is given.
pub fn quotas(
    read: &dyn Read,
    tree: Option<TreeId>,
    after: Option<(TreeId, QuotaOf)>,
    limit: usize,
) -> Result<Vec<QuotaRecord>, NsError> {
    let (first, end) = match tree {
        Some(tree) => (keys::quotas(tree).to_vec(), keys::end_of(&keys::quotas(tree))),
        None => (b"Q".to_vec(), b"R".to_vec()),
    };
    let next = after.map(|(tree, of)| [&keys::quota(tree, of)[..], &[0]].concat());
    let start = next.map_or(first.clone(), |next| next.max(first));
    collect(read, &start, &end, limit, |key, value| decode_at(key, value).map(Some))
}

/// The records of users and groups that have limits, in the order of their trees; at most `limit` of them, among the first `looked_at` records. A large
/// site has many users without limits. Also returns whether there may be further ones.
pub fn limited_owners(read: &dyn Read, looked_at: usize, limit: usize) -> Result<(Vec<QuotaRecord>, bool), NsError> {
    let (mut found, mut bad, mut left, mut and_more) = (Vec::new(), None, looked_at, false);
    read.scan(b"Q", b"R", ScanOrder::Ascending, &mut |key, value| {
        if left == 0 || found.len() >= limit {
            and_more = true;
            return ControlFlow::Break(());
        }
        match decode_at(key, value) {
            Ok(record) if record.of != QuotaOf::Tree && record.has_limits() => found.push(record),
            Ok(_) => {}
            Err(error) => bad = Some(error),
        }
        left -= 1;
        if bad.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bad.map_or(Ok((found, and_more)), Err)
}

/// The usage and limits of a tree, or of a user or group in it. All zero if there are none.
pub fn quota(read: &dyn Read, tree: TreeId, of: QuotaOf) -> Result<QuotaRecord, NsError> {
    QuotaRecord::get(read, tree, of)
}

/// The space that quotas leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaSpace {
    /// The tree.
    pub tree: TreeId,
    /// The lowest hard limit of bytes.
    pub limit: u64,
    /// Bytes that count for it, with the reserved ones.
    pub used: u64,
    /// Bytes that may still be written.
    pub free: u64,
}

/// What quotas leave to `actor` at `path`, or where the path would begin to be made. `None`: no quota limits it there.
pub fn space_at(read: &dyn Read, actor: &Actor, path: &NsPath, now: Timestamp) -> Result<Option<QuotaSpace>, NsError> {
    tell(read, &|| Ahead::walk(path).parent_usage(actor).last_usage(actor).list())?;
    let tree = match walk(read, actor, path, Last::Follow, &[PathOperation::Stat])? {
        Walk::Resolved(Resolved { entry: Some(Dentry::Directory(dir)), .. }) => dir.tree,
        Walk::Resolved(resolved) => resolved.parent.tree,
        Walk::MissingName(missing) => missing.dir.tree,
    };
    let mut least: Option<QuotaSpace> = None;
    let groups = actor.groups.first().map(|group| QuotaOf::Group(*group));
    for of in [Some(QuotaOf::Tree), Some(QuotaOf::User(actor.principal)), groups].into_iter().flatten() {
        let record = QuotaRecord::get(read, tree, of)?;
        let Some(free) = record.room_for_bytes(now) else { continue };
        let used = record.used.bytes.saturating_add(record.reserved.bytes);
        let limit = record.bytes.hard.or(record.bytes.soft).unwrap_or(used);
        if least.is_none_or(|least| free < least.free) {
            least = Some(QuotaSpace { tree, limit, used, free });
        }
    }
    Ok(least)
}
