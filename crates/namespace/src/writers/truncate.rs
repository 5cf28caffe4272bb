//! Truncation by path.

use kv::{Prefetch, Txn};
use types::{BootId, ClientIdentity, NsPath};

use crate::ahead::Ahead;
use crate::tree::node::{Dentry, locate_entry};
use crate::tree::walk::{Last, resolve_existing};
use crate::writers::recover::begin_update;
use crate::writers::session::remember;
use crate::{
    AccessKind, Actor, Context, FileState, NsError, OpTag, OpenWrite, OpenedWrite, Operation, PathOperation,
    RequestNumber, WriteMode, permit, permit_client,
};

/// Starts to cut or extend a complete file as an in-place update. The server then truncates the replica, completes it and commits. `None`: the file
/// has that length already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Truncate {
    /// The path.
    pub path: NsPath,
    /// The new length in bytes.
    pub len: u64,
    /// The client.
    pub client: ClientIdentity,
    /// This kernel's boot.
    pub boot: BootId,
    /// The number of the client's request, if it has one. The commit that follows a change has it. If the file has that length already, none follows,
    /// and the answer is remembered here.
    pub request: Option<RequestNumber>,
}

/// See [`Truncate`]. A file with an open write is busy, also for its own writer: that one truncates by its handle.
pub fn truncate(txn: &mut dyn Txn, ctx: &Context, request: &Truncate) -> Result<Option<OpenedWrite>, NsError> {
    let path = &request.path;
    permit_client(&ctx.actor, &request.client, &|| path.to_string())?;
    if request.len > i64::MAX.unsigned_abs() {
        return Err(NsError::TooLarge { what: "the length", len: request.len, bound: i64::MAX.unsigned_abs() });
    }
    let (parent, name, entry) = resolve_existing(txn, &ctx.actor, path, Last::Follow, PathOperation::ModifyFile)?;
    if matches!(entry, Dentry::Directory(_)) {
        return Err(NsError::IsDirectory(path.to_string()));
    }
    let located = locate_entry(txn, parent.ino, &name, entry)?;
    permit(&ctx.actor, &located.inode.access, AccessKind::Write, &|| path.to_string())?;
    let content = located.inode.content();
    if content.is_some_and(|content| content.state == FileState::Complete && content.len == request.len) {
        if let Some(number) = request.request {
            remember::<Truncate>(txn, ctx, number, None)?;
        }
        return Ok(None);
    }
    let open = OpenWrite {
        mode: 0,
        expected_len: Some(request.len),
        ..OpenWrite::new(path.clone(), WriteMode::Update, request.client.clone(), request.boot)
    };
    begin_update(txn, ctx, &open, located, false).map(Some)
}

impl Operation for Truncate {
    const TAG: OpTag = OpTag::Truncate;
    type Reply = Option<OpenedWrite>;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).record().object().parent_changes(ctx).parent_usage(&ctx.actor).list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Option<OpenedWrite>, NsError> {
        truncate(txn, ctx, self)
    }
    fn permit_again(&self, actor: &Actor) -> Result<(), NsError> {
        actor.permit_path(&[PathOperation::ModifyFile], &self.path, &self.path)
    }
}
