//! Sets the limits of a tree, or of a user or group in it.

use std::time::Duration;

use kv::Txn;
use types::NsPath;

use crate::format::is_usage_counted;
use crate::quota::listed::tree_of_root;
use crate::quota::record::{QuotaOf, QuotaRecord};
use crate::{Access, AccessKind, Context, NsError, permit};

/// A change of one limit: `None` keeps it, `Some(None)` removes it.
pub type LimitEdit = Option<Option<u64>>;

/// Sets limits. A limit below the usage is no error: it refuses what is new. Only the administrator may.
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
    let nobody_else = Access::new(types::PrincipalId(0), types::PrincipalId(0), 0);
    permit(&ctx.actor, &nobody_else, AccessKind::Own, &|| path.to_string())?;
    let tree = tree_of_root(txn, &ctx.actor, path)?;
    if !is_usage_counted(txn)? {
        let why = "what is used is not known yet, because some records cannot be read; stop the node, run `weir fsck`, and start it again";
        return Err(NsError::Invalid { what: path.to_string(), why });
    }
    let mut record = QuotaRecord::get(txn, tree, request.of)?;
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
    record.note(ctx.now);
    record.put(txn);
    Ok(())
}

crate::context::operations! {
    SetQuota, set_quota -> ();
}
