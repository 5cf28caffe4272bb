//! Kept uploads (`U`), and the memory of ended writers (`Y`).

use kv::{Read, Txn};
use types::{ObjectId, Timestamp, UploadId};

use crate::codec::BadValue;
use crate::groups::deletion::queue;
use crate::scan::collect;
use crate::writers::request::MAKES;
use crate::writers::returning::permit_upload;
use crate::{
    AccessKind, Context, EndedWriter, NsError, OpTag, Operation, UploadRecord, UploadState, WriterEnd, WriterKey,
    WriterRecord, keys, permit,
};

fn scan_from(after: Option<UploadId>) -> Vec<u8> {
    match after {
        None => b"U".to_vec(),
        Some(after) => {
            let mut start = keys::upload(after).to_vec();
            start.push(0);
            start
        }
    }
}

/// The record of an upload. `None`: there is none with this number.
pub fn upload(read: &dyn Read, upload: UploadId) -> Result<Option<UploadRecord>, NsError> {
    UploadRecord::get(read, upload)
}

/// All uploads after `after`, at most `limit`: unfinished, interrupted or refused.
pub fn uploads(read: &dyn Read, after: Option<UploadId>, limit: usize) -> Result<Vec<UploadRecord>, NsError> {
    collect(read, &scan_from(after), b"V", limit, |key, value| {
        let bad = || BadValue::Damaged("the key of an upload has a wrong length").at(key);
        let upload = keys::number_at(key, 1).map(UploadId).ok_or_else(bad)?;
        UploadRecord::decode(upload, value).map(Some).map_err(|error| error.at(key))
    })
}

/// The expired uploads among the next `limit` after `after`, and where to continue (`None`: this was the end).
pub fn due_uploads(
    read: &dyn Read,
    now: Timestamp,
    after: Option<UploadId>,
    limit: usize,
) -> Result<(Vec<UploadRecord>, Option<UploadId>), NsError> {
    let mut found = uploads(read, after, limit)?;
    let next = if found.len() < limit { None } else { found.last().map(|upload| upload.upload) };
    found.retain(|upload| upload.deadline.is_some_and(|deadline| deadline <= now));
    Ok((found, next))
}

/// Deletes an upload, and fences its writer if it has one. The owner of the upload may. Returns the object, whose deletion is queued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForgetUpload {
    /// The upload.
    pub upload: UploadId,
    /// Only if its deadline is not after this time: somebody may have resumed it meanwhile. `None`: in any case.
    pub expired_by: Option<Timestamp>,
}

/// See [`ForgetUpload`].
pub fn forget_upload(txn: &mut dyn Txn, ctx: &Context, request: &ForgetUpload) -> Result<ObjectId, NsError> {
    let Some(upload) = UploadRecord::get(txn, request.upload)? else {
        return Err(NsError::NotFound(format!("upload {}", request.upload), "upload"));
    };
    permit_own(ctx, &upload)?;
    permit_upload(txn, &ctx.actor, &upload, MAKES)?;
    let is_due = |now| upload.state != UploadState::BeingWritten && upload.deadline.is_some_and(|due| due <= now);
    if request.expired_by.is_some_and(|now| !is_due(now)) {
        let why = "it has been resumed meanwhile";
        return Err(NsError::Stale { what: format!("upload {}", request.upload), why });
    }
    if upload.state == UploadState::BeingWritten
        && let Some(writer) = WriterRecord::get(txn, upload.writer, upload.object)?
    {
        writer.delete(txn)?;
        writer.entomb(txn, WriterEnd::Dropped, ctx.now.plus(ctx.limits.tombstone_keep));
    }
    upload.delete(txn)?;
    queue(txn, ctx, upload.placed, upload.object)?;
    Ok(upload.object)
}

/// Only the owner of an upload may change it.
pub(crate) fn permit_own(ctx: &Context, upload: &UploadRecord) -> Result<(), NsError> {
    permit(&ctx.actor, &upload.access(), AccessKind::Own, &|| format!("upload {}", upload.upload))
}

/// Forgets expired records of ended writers. Examines `limit` of them after `after`. Returns where to continue, or `None` at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropTombstones {
    /// Where to continue.
    pub after: Option<u64>,
    /// How many to examine, at most 4,096.
    pub limit: u32,
}

/// See [`DropTombstones`].
pub fn drop_tombstones(txn: &mut dyn Txn, ctx: &Context, request: &DropTombstones) -> Result<Option<u64>, NsError> {
    let limit = request.limit.clamp(1, 4_096) as usize;
    let mut start = b"Y".to_vec();
    if let Some(after) = request.after {
        start = keys::ended(WriterKey(after)).to_vec();
        start.push(0);
    }
    let found = collect(txn, &start, b"Z", limit, |key, value| {
        let bad = || BadValue::Damaged("the key of an ended writer has a wrong length").at(key);
        let number = keys::number_at(key, 1).map(WriterKey).ok_or_else(bad)?;
        EndedWriter::decode(number, value).map(Some).map_err(|error| error.at(key))
    })?;
    for ended in found.iter().filter(|ended| ended.until <= ctx.now) {
        txn.delete(&keys::ended(ended.key));
    }
    Ok(if found.len() < limit { None } else { found.last().map(|ended| ended.key.0) })
}

impl Operation for ForgetUpload {
    const TAG: OpTag = OpTag::ForgetUpload;
    type Reply = ObjectId;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<ObjectId, NsError> {
        forget_upload(txn, ctx, self)
    }
}

impl Operation for DropTombstones {
    const TAG: OpTag = OpTag::DropTombstones;
    type Reply = Option<u64>;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Option<u64>, NsError> {
        drop_tombstones(txn, ctx, self)
    }
}
