//! Holds of sessions on inodes (`H`): a held inode stays when its last name goes.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};
use types::{Ino, ObjectId, SessionId};

use crate::tree::node::locate;
use crate::writers::session_record::permit_session;
use crate::{Context, NsError, OpTag, Operation, keys};

/// The inodes that `session` holds, after `after`, at most `limit`.
pub fn holds(read: &dyn Read, session: SessionId, after: Option<Ino>, limit: usize) -> Result<Vec<Ino>, NsError> {
    let start = keys::hold(session, Ino(after.map_or(0, |ino| ino.0.saturating_add(1))));
    let end = keys::end_of(&keys::hold(session, Ino(u64::MAX)));
    let mut found = Vec::new();
    if limit > 0 {
        read.scan(&start, &end, ScanOrder::Ascending, &mut |key, _| {
            found.extend(keys::number_at(key, 9).map(Ino));
            if found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    Ok(found)
}

/// A session (a mount) holds a file open. Repeating the request changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The session.
    pub session: SessionId,
    /// The inode.
    pub ino: Ino,
}

/// See [`Hold`].
pub fn hold(txn: &mut dyn Txn, ctx: &Context, request: &Hold) -> Result<(), NsError> {
    permit_session(txn, ctx, request.session)?;
    let Some(mut located) = locate(txn, request.ino)? else {
        return Err(NsError::NotFound(format!("inode {}", request.ino), "inode"));
    };
    if located.inode.is_dir() {
        return Err(NsError::IsDirectory(format!("inode {}", request.ino)));
    }
    let key = keys::hold(request.session, request.ino);
    if txn.get(&key)?.is_some() {
        return Ok(());
    }
    txn.put(&key, &[crate::codec::VERSION]);
    located.inode.holders += 1;
    located.store(txn, ctx);
    Ok(())
}

/// Ends a hold. The last hold of an inode without names deletes the inode. Returns the object whose deletion was queued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseHold {
    /// The session.
    pub session: SessionId,
    /// The inode.
    pub ino: Ino,
}

/// See [`ReleaseHold`].
pub fn release_hold(txn: &mut dyn Txn, ctx: &Context, request: &ReleaseHold) -> Result<Option<ObjectId>, NsError> {
    permit_session(txn, ctx, request.session)?;
    let key = keys::hold(request.session, request.ino);
    if txn.get(&key)?.is_none() {
        return Err(NsError::NotFound(format!("inode {}", request.ino), "hold of this session"));
    }
    txn.delete(&key);
    let Some(mut located) = locate(txn, request.ino)? else {
        return Ok(None);
    };
    located.inode.holders = located.inode.holders.saturating_sub(1);
    if located.inode.holders == 0 && located.inode.nlink == 0 {
        return crate::groups::deletion::drop_inode(txn, ctx, &located.inode);
    }
    located.store(txn, ctx);
    Ok(None)
}

impl Operation for Hold {
    const TAG: OpTag = OpTag::Hold;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        hold(txn, ctx, self)
    }
}

impl Operation for ReleaseHold {
    const TAG: OpTag = OpTag::ReleaseHold;
    type Reply = Option<ObjectId>;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Option<ObjectId>, NsError> {
        release_hold(txn, ctx, self)
    }
}
