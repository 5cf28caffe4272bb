//! Sets the limits of a tree, or of a user or group in it.

use std::time::Duration;

use kv::{Prefetch, Txn};
use types::NsPath;

use crate::ahead::Ahead;
use crate::format::{is_usage_counted, mark_ahead};
use crate::quota::record::{QuotaOf, QuotaRecord};
use crate::trees::owner::tree_of_root;
use crate::{Context, NsError, OpTag, Operation};

/// A change of one limit: `None` keeps it, `Some(None)` removes it.
pub type LimitEdit = Option<Option<u64>>;

/// Sets limits. A limit below the usage is no error: it refuses what is new. The administrator may, and the owner of the tree, or of a tree around it.
/// But an owner only tightens the limits of a tree itself: what is in an inner tree does not count in the tree around it, so otherwise an owner could
/// get more space than the administrator has given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetQuota {
    /// The root of the tree.
    pub path: NsPath,
    /// Whose limits.
    pub of: QuotaOf,
    /// The hard limit of bytes.
    pub hard_bytes: LimitEdit,
    /// The soft limit of bytes.
    pub soft_bytes: LimitEdit,
    /// The hard limit of files.
    pub hard_files: LimitEdit,
    /// The soft limit of files.
    pub soft_files: LimitEdit,
    /// How long the usage may stay above a soft limit. `None` keeps it.
    pub grace: Option<Duration>,
}

/// See [`SetQuota`]. [`NsError::Invalid`] if the directory is not the root of a tree, or a soft limit is above the hard one.
pub fn set_quota(txn: &mut dyn Txn, ctx: &Context, request: &SetQuota) -> Result<(), NsError> {
    let path = &request.path;
    let tree = tree_of_root(txn, &ctx.actor, path)?;
    if !is_usage_counted(txn)? {
        let why = "what is used is not known yet, because some records cannot be read; stop the node, run `weir fsck`, and start it again";
        return Err(NsError::Invalid { what: path.to_string(), why });
    }
    let before = QuotaRecord::get(txn, tree, request.of)?;
    let mut record = before;
    for (limit, edit) in [
        (&mut record.bytes.hard, request.hard_bytes),
        (&mut record.bytes.soft, request.soft_bytes),
        (&mut record.files.hard, request.hard_files),
        (&mut record.files.soft, request.soft_files),
    ] {
        *limit = edit.unwrap_or(*limit);
    }
    record.grace = request.grace.map_or(record.grace, |grace| Duration::from_secs(grace.as_secs()));
    for limit in [record.bytes, record.files] {
        if limit.soft.zip(limit.hard).is_some_and(|(soft, hard)| soft > hard) {
            let why = "a soft limit must not be above the hard one; set both";
            return Err(NsError::Invalid { what: path.to_string(), why });
        }
    }
    if request.grace.is_some() && !record.has_limits() {
        let why = "a grace without a limit has no effect; set a soft limit too";
        return Err(NsError::Invalid { what: path.to_string(), why });
    }
    if !ctx.actor.is_admin() && request.of == QuotaOf::Tree && is_looser(&record, &before) {
        let rule = "only an administrator raises or removes limits of a tree itself; its owner may lower them, and set those of the users and groups in it";
        return Err(NsError::Denied { path: path.to_string(), rule: rule.into() });
    }
    record.note(ctx.now);
    record.put(txn);
    Ok(())
}

/// Whether the limits of `new` leave room, or time, that those of `old` do not.
fn is_looser(new: &QuotaRecord, old: &QuotaRecord) -> bool {
    let is_higher = |new: Option<u64>, old: Option<u64>| old.is_some_and(|old| new.is_none_or(|new| new > old));
    is_higher(new.bytes.hard, old.bytes.hard)
        || is_higher(new.bytes.soft, old.bytes.soft)
        || is_higher(new.files.hard, old.files.hard)
        || is_higher(new.files.soft, old.files.soft)
        // Also without a soft limit: the grace would stay, and hold for one that the administrator sets later.
        || new.grace > old.grace
}

impl Operation for SetQuota {
    const TAG: OpTag = OpTag::SetQuota;
    type Reply = ();
    fn ahead(&self, _: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).quota(self.of).more([mark_ahead()]).list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        set_quota(txn, ctx, self)
    }
}
