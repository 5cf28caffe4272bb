//! What an open write reserves before its bytes are acknowledged.

use kv::{Prefetch, Read, Txn};
use types::Timestamp;

use crate::ahead::{end_ahead, tell, writer_ahead};
use crate::planted::{self, Bug};
use crate::quota::charge::{
    Charge, Delta, Exceeded, Reservation, change_reservation, charge_of, over_quota, permit_len,
};
use crate::quota::record::QuotaRecord;
use crate::writers::located::located_writing;
use crate::writers::record::current_writer;
use crate::{Context, NsError, OpTag, Operation, UploadRecord, WriterKind, WriterRecord, WriterToken, keys};

/// What an open wants to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wanted {
    /// The committed length of the file, which counts already. 0 for an upload.
    pub base: u64,
    /// The length that the client has announced.
    pub announced: Option<u64>,
    /// Bytes that an earlier open write of the same object has kept, and that do not count as the file's.
    pub kept: u64,
    /// A file that its end will make.
    pub files: u64,
    /// A full quota refuses the open, and not only each write beyond the present end.
    pub is_new: bool,
}

/// Reserves space for an open write: what the client has announced, or else a step that is small against what is free. `None`: nothing is limited now,
/// so the open write may become as long as it likes. `made` is what the open itself makes. `before` is what was reserved for the same object.
pub(crate) fn reserve_for_open(
    txn: &mut dyn Txn,
    ctx: &Context,
    charge: Charge,
    (wanted, made, before): (&Wanted, Delta, Option<Reservation>),
    what: &dyn Fn() -> String,
) -> Result<Option<Reservation>, NsError> {
    let charge = before.map_or(charge, |before| before.charge);
    let mut records = charge.load(txn)?;
    // What the open removes makes room for what it writes.
    let freed = Delta { bytes: made.bytes.min(0), ..Delta::default() };
    for record in &mut records {
        freed.apply(record);
        record.note(ctx.now);
    }
    let made = Delta { bytes: made.bytes.max(0), ..made };
    let files = wanted.files.saturating_add(made.files.cast_unsigned());
    let least_files = scarcest(&records, |record| record.room_for_files(ctx.now));
    let refuses = !planted::is(Bug::NewFilesIgnoreTheQuota);
    if let Some((0, record)) = least_files.filter(|_| files > 0 && before.is_none() && refuses) {
        return Err(over_quota(txn, ctx, record, Exceeded::Files, what));
    }
    let bytes = match scarcest(&records, |record| record.room_for_bytes(ctx.now)) {
        None => None,
        Some((room, record)) => {
            let has = wanted.base.saturating_add(wanted.kept);
            // A file from another server may have no length that is known beforehand.
            let announced = wanted.announced.filter(|len| *len != u64::MAX);
            announced.map_or(Ok(()), permit_len)?;
            // An upload that was kept while nothing limited it may have reserved nothing.
            let owed = wanted.kept.saturating_sub(before.and_then(|before| before.bytes).unwrap_or(0));
            let left = room.saturating_sub(owed);
            let more = announced.map_or_else(|| step(ctx, left), |len| len.saturating_sub(has));
            if (wanted.is_new && room == 0 || owed.saturating_add(more) > room) && refuses {
                return Err(over_quota(txn, ctx, record, Exceeded::Bytes, what));
            }
            let reserved = wanted.kept.saturating_add(more);
            permit_len(reserved)?;
            Some(reserved)
        }
    };
    let nothing_is_limited = bytes.is_none() && (wanted.files == 0 || least_files.is_none());
    let after = (before.is_some() || !nothing_is_limited).then_some(Reservation { charge, bytes, files: wanted.files });
    let change = made.and_reserved(before.as_ref(), after.as_ref());
    // The tree of an earlier reservation may have been removed since, with all of its records.
    if (change != Delta::default() || freed != Delta::default())
        && (before.is_none() || txn.get(&keys::tree(charge.tree))?.is_some())
    {
        for record in &mut records {
            change.apply(record);
            record.note(ctx.now);
            record.put(txn);
        }
    }
    Ok(after)
}

/// The record with the least room, if one limits it.
fn scarcest(records: &[QuotaRecord; 3], room: impl Fn(&QuotaRecord) -> Option<u64>) -> Option<(u64, &QuotaRecord)> {
    let limited = records.iter().filter_map(|record| room(record).map(|room| (room, record)));
    limited.min_by_key(|(room, _)| *room)
}

/// How much a client reserves that has announced no length. Where little is free, many clients must still find some.
fn step(ctx: &Context, room: u64) -> u64 {
    let (least, most) = ctx.limits.reserve_step;
    (room / 64).clamp(least, most.max(least)).min(room)
}

/// Lets an open write grow to this length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// The open write.
    pub writer: WriterToken,
    /// The end of what its client wants to write, in bytes.
    pub len: u64,
}

/// See [`Reserve`]. Returns the length that the open write may reach; `None`: nothing limits it now. Ask again from time to time then, because a quota may
/// be set: it holds for what is written after that. [`NsError::OverQuota`] if a quota has no room; then nothing has
/// changed. [`NsError::Stale`] if the writer was fenced or has ended.
pub fn reserve(txn: &mut dyn Txn, ctx: &Context, request: &Reserve) -> Result<Option<u64>, NsError> {
    permit_len(request.len)?;
    let mut writer = current_writer(txn, &request.writer)?;
    tell(txn, &|| end_ahead(txn, ctx, &writer))?;
    let before = match writer.reservation {
        Some(before) if before.bytes.is_some() => before,
        before => match began_unlimited(txn, ctx.now, &writer, before)? {
            Some(before) => before,
            None => return Ok(None),
        },
    };
    let Reservation { charge, bytes, .. } = before;
    let bytes = bytes.unwrap_or(0);
    let base = match writer.kind {
        WriterKind::Upload(_) => 0,
        WriterKind::New | WriterKind::Update => located_writing(txn, &writer)?.map_or(0, |(_, content)| content.len),
    };
    let reached = base.saturating_add(bytes);
    let Some(more) = request.len.checked_sub(reached).filter(|more| *more > 0) else { return Ok(Some(reached)) };
    let records = charge.load(txn)?;
    let more = match scarcest(&records, |record| record.room_for_bytes(ctx.now)) {
        Some((room, record)) if room < more && !planted::is(Bug::GrowthIgnoresTheQuota) => {
            let what = || writer.path.escape_ascii().to_string();
            return Err(over_quota(txn, ctx, record, Exceeded::Bytes, &what));
        }
        Some((room, _)) => more.max(step(ctx, room)),
        None => more.max(ctx.limits.reserve_step.1),
    };
    permit_len(reached.saturating_add(more))?;
    let after = Reservation { bytes: Some(bytes.saturating_add(more)), ..before };
    change_reservation(txn, &before, Some(&after))?;
    writer.reservation = Some(after);
    writer.put(txn);
    Ok(Some(reached.saturating_add(more)))
}

/// The empty reservation of an open write that has reserved no bytes, if something limits it now: what it has written since it was opened is to be
/// reserved together with what it wants to write.
fn began_unlimited(
    read: &dyn Read,
    now: Timestamp,
    writer: &WriterRecord,
    before: Option<Reservation>,
) -> Result<Option<Reservation>, NsError> {
    let charge = match (before, writer.kind) {
        (Some(before), _) => Some(before.charge),
        (None, WriterKind::Upload(upload)) => match UploadRecord::get(read, upload)? {
            Some(upload) => upload.charge(read)?,
            None => None,
        },
        // A unit of a striped file has no name, and counts for nobody.
        (None, WriterKind::New | WriterKind::Update) => match located_writing(read, writer)? {
            Some((located, _)) => charge_of(read, &located)?,
            None => None,
        },
    };
    let Some(charge) = charge else { return Ok(None) };
    let is_limited = scarcest(&charge.load(read)?, |record| record.room_for_bytes(now)).is_some();
    let files = before.map_or(0, |before| before.files);
    Ok((is_limited && !planted::is(Bug::GrowthIgnoresTheQuota)).then_some(Reservation {
        charge,
        bytes: Some(0),
        files,
    }))
}

/// Whether [`Reserve`] would change nothing for this open write, and answer that nothing limits it. [`NsError::Stale`] if the writer was fenced or has
/// ended.
pub fn is_unlimited(read: &dyn Read, now: Timestamp, writer: &WriterToken) -> Result<bool, NsError> {
    tell(read, &|| writer_ahead(writer, None))?;
    let writer = current_writer(read, writer)?;
    match writer.reservation {
        Some(before) if before.bytes.is_some() => Ok(false),
        before => Ok(began_unlimited(read, now, &writer, before)?.is_none()),
    }
}

impl Operation for Reserve {
    const TAG: OpTag = OpTag::Reserve;
    type Reply = Option<u64>;
    fn ahead(&self, ctx: &Context) -> Vec<Prefetch> {
        writer_ahead(&self.writer, Some(ctx))
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Option<u64>, NsError> {
        reserve(txn, ctx, self)
    }
}
