//! Whom an inode or an open write counts for, and what follows for three `Q` records.

use kv::{Read, Txn};
use types::{Ino, NsPath, PrincipalId, TreeId};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::planted::{self, Bug};
use crate::principals::table::name_of;
use crate::quota::record::{Amount, QuotaOf, QuotaRecord};
use crate::tree::node::{Located, RecordLocation, get_dir, links_of};
use crate::tree::path_of::path_of;
use crate::writers::begin::busy;
use crate::{Context, FileState, Inode, Kind, NsError, WriterRecord, keys};

/// Whom something counts for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Charge {
    /// The tree.
    pub tree: TreeId,
    /// The owner.
    pub owner: PrincipalId,
    /// The group.
    pub group: PrincipalId,
}

/// What an open write or a kept upload has reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// Whom it counts for, whatever becomes of the file meanwhile.
    pub charge: Charge,
    /// Bytes beyond the file's committed ones. `None`: any number, as no limit was set when the file was opened.
    pub bytes: Option<u64>,
    /// 1 if the end of the open write will make a file that does not count yet.
    pub files: u64,
}

/// A change of usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Delta {
    pub bytes: i64,
    pub files: i64,
    pub reserved_bytes: i64,
    pub reserved_files: i64,
}

/// Longer files and reservations are refused, but a damaged record may have any number.
fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Refuses a length that no file can have.
pub(crate) fn permit_len(len: u64) -> Result<(), NsError> {
    let bound = i64::MAX.unsigned_abs();
    if len > bound { Err(NsError::TooLarge { what: "the length", len, bound }) } else { Ok(()) }
}

impl Delta {
    /// Something new.
    pub(crate) fn one_file(bytes: u64) -> Self {
        Self { bytes: signed(bytes), files: 1, ..Self::default() }
    }

    /// The opposite.
    pub(crate) fn taken(self) -> Self {
        Self {
            bytes: self.bytes.saturating_neg(),
            files: self.files.saturating_neg(),
            reserved_bytes: self.reserved_bytes.saturating_neg(),
            reserved_files: self.reserved_files.saturating_neg(),
        }
    }

    fn of(reservation: &Reservation) -> Self {
        let bytes = reservation.bytes.unwrap_or(0);
        Self { reserved_bytes: signed(bytes), reserved_files: signed(reservation.files), ..Self::default() }
    }

    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
            reserved_bytes: self.reserved_bytes.saturating_add(other.reserved_bytes),
            reserved_files: self.reserved_files.saturating_add(other.reserved_files),
        }
    }

    /// With one reservation in place of another.
    pub(crate) fn and_reserved(self, before: Option<&Reservation>, after: Option<&Reservation>) -> Self {
        let of = |reservation: Option<&Reservation>| reservation.map_or_else(Self::default, Self::of);
        self.and(of(before).taken()).and(of(after))
    }

    pub(crate) fn apply(self, record: &mut QuotaRecord) {
        let add = |to: &mut Amount, bytes, files| {
            *to = Amount { bytes: to.bytes.saturating_add_signed(bytes), files: to.files.saturating_add_signed(files) };
        };
        add(&mut record.used, self.bytes, self.files);
        add(&mut record.reserved, self.reserved_bytes, self.reserved_files);
    }
}

impl Charge {
    /// Whom an inode with a name in this tree counts for.
    pub(crate) fn new(tree: TreeId, inode: &Inode) -> Self {
        Self { tree, owner: inode.access.owner, group: inode.access.group }
    }

    pub(crate) fn parts(self) -> [QuotaOf; 3] {
        [QuotaOf::Tree, QuotaOf::User(self.owner), QuotaOf::Group(self.group)]
    }

    pub(crate) fn load(self, read: &dyn Read) -> Result<[QuotaRecord; 3], NsError> {
        let [tree, user, group] = self.parts();
        let get = |of| QuotaRecord::get(read, self.tree, of);
        Ok([get(tree)?, get(user)?, get(group)?])
    }
}

/// Whom this inode counts for. `None`: it has no name.
pub(crate) fn charge_of(read: &dyn Read, located: &Located) -> Result<Option<Charge>, NsError> {
    let inode = &located.inode;
    let dir = match (&inode.kind, &located.place) {
        (Kind::Directory(dir), _) => return Ok(Some(Charge::new(dir.tree, inode))),
        (_, RecordLocation::Entry(dir, _)) => *dir,
        (_, RecordLocation::Own) if inode.nlink == 0 => return Ok(None),
        (_, RecordLocation::Own) => match links_of(read, inode.ino)?.first() {
            Some((dir, _)) => *dir,
            None => return Ok(None),
        },
    };
    charge_in(read, dir, inode).map(Some)
}

/// Whom this inode counts for, with a name in this directory.
pub(crate) fn charge_in(read: &dyn Read, dir: Ino, inode: &Inode) -> Result<Charge, NsError> {
    Ok(Charge::new(get_dir(read, dir)?.tree, inode))
}

/// Changes the usage, whatever the limits are: what is there, is there.
pub(crate) fn add(txn: &mut dyn Txn, ctx: &Context, charge: Charge, delta: Delta) -> Result<(), NsError> {
    if delta == Delta::default() || planted::is(Bug::UsageIsForgotten) && delta.bytes < 0 {
        return Ok(());
    }
    for mut record in charge.load(txn)? {
        delta.apply(&mut record);
        record.note(ctx.now);
        record.put(txn);
    }
    Ok(())
}

/// Adds `delta`, which must be of no more than one file, unless that would exceed a limit.
pub(crate) fn add_if_room(
    txn: &mut dyn Txn,
    ctx: &Context,
    charge: Charge,
    delta: Delta,
    what: &dyn Fn() -> String,
) -> Result<(), NsError> {
    let mut records = charge.load(txn)?;
    for record in &mut records {
        permit(txn, ctx, record, delta, what)?;
        delta.apply(record);
        record.note(ctx.now);
    }
    records.iter().for_each(|record| record.put(txn));
    Ok(())
}

/// Lets `delta` count for `to` instead of `from`, unless that would exceed a limit of one that did not have it before.
pub(crate) fn move_usage(
    txn: &mut dyn Txn,
    ctx: &Context,
    (from, to): (Charge, Charge),
    delta: Delta,
    what: &dyn Fn() -> String,
) -> Result<(), NsError> {
    for (old, new) in from.parts().into_iter().zip(to.parts()) {
        if (from.tree, old) == (to.tree, new) {
            continue;
        }
        let mut record = QuotaRecord::get(txn, to.tree, new)?;
        permit(txn, ctx, &record, delta, what)?;
        for (record, delta) in [(&mut record, delta), (&mut QuotaRecord::get(txn, from.tree, old)?, delta.taken())] {
            delta.apply(record);
            record.note(ctx.now);
            record.put(txn);
        }
    }
    Ok(())
}

/// Refuses to let an open file count for somebody else, unless no quota is concerned. The end of its open write counts its new length without a further
/// look at the limits, because that was reserved. It was reserved for `from`.
pub(crate) fn permit_open_move(
    read: &dyn Read,
    (from, to): (Charge, Charge),
    inode: &Inode,
    path: &NsPath,
) -> Result<(), NsError> {
    let Some(content) = inode.content() else { return Ok(()) };
    let (FileState::Open(by) | FileState::Updating(by)) = content.state else { return Ok(()) };
    let mut is_limited = false;
    for (old, new) in from.parts().into_iter().zip(to.parts()) {
        let moves = (from.tree, old) != (to.tree, new);
        is_limited |= moves && QuotaRecord::get(read, to.tree, new)?.has_limits();
    }
    let reserves = WriterRecord::get(read, by, content.object)?.is_some_and(|writer| writer.reservation.is_some());
    if from != to && (is_limited || reserves) && !planted::is(Bug::OpenFilesMove) {
        return Err(busy(read, path, by, content.object));
    }
    Ok(())
}

fn permit(
    read: &dyn Read,
    ctx: &Context,
    record: &QuotaRecord,
    delta: Delta,
    what: &dyn Fn() -> String,
) -> Result<(), NsError> {
    let exceeds = |room: Option<u64>, wanted: i64| room.is_some_and(|room| wanted > 0 && room < wanted.cast_unsigned());
    if exceeds(record.room_for_files(ctx.now), delta.files) {
        return Err(over_quota(read, ctx, record, Exceeded::Files, what));
    }
    if exceeds(record.room_for_bytes(ctx.now), delta.bytes) {
        return Err(over_quota(read, ctx, record, Exceeded::Bytes, what));
    }
    Ok(())
}

/// Which limit a request exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exceeded {
    Bytes,
    Files,
}

/// The refusal, with the limit that decides.
pub(crate) fn over_quota(
    read: &dyn Read,
    ctx: &Context,
    record: &QuotaRecord,
    exceeded: Exceeded,
    what: &dyn Fn() -> String,
) -> NsError {
    let (limit, used, reserved, unit) = match exceeded {
        Exceeded::Bytes => (record.bytes, record.used.bytes, record.reserved.bytes, "bytes"),
        Exceeded::Files => (record.files, record.used.files, record.reserved.files, "files"),
    };
    let named = |kind, id: PrincipalId| match name_of(read, id) {
        Ok(Some((_, name))) => format!("{kind} {name}"),
        _ => format!("{kind} {id}"),
    };
    let tree = path_of(read, Ino(record.tree.0)).unwrap_or_else(|_| b"?".to_vec());
    let tree = String::from_utf8_lossy(&tree).into_owned();
    let whose = match record.of {
        QuotaOf::Tree => format!("tree {tree}"),
        QuotaOf::User(id) => format!("{} in tree {tree}", named("user", id)),
        QuotaOf::Group(id) => format!("{} in tree {tree}", named("group", id)),
    };
    let soft = limit.soft.filter(|_| limit.over_since.is_some_and(|since| since.plus(record.grace) <= ctx.now));
    let (limit, rule) = match (soft, limit.hard) {
        (Some(soft), _) => (soft, "soft limit, whose grace has ended,"),
        (None, hard) => (hard.unwrap_or(0), "hard limit"),
    };
    let why = format!("the {rule} of {whose} is {limit} {unit}; {used} are used and {reserved} reserved");
    NsError::OverQuota { what: what(), why }
}

/// Ends a reservation, and changes the usage of the file that it was for.
pub(crate) fn settle(
    txn: &mut dyn Txn,
    ctx: &Context,
    file: Option<(Charge, Delta)>,
    reservation: Option<Reservation>,
) -> Result<(), NsError> {
    match (file, reservation) {
        // The usual case: one look at the records.
        (Some((charge, delta)), Some(reservation)) if charge == reservation.charge => {
            add(txn, ctx, charge, delta.and(Delta::of(&reservation).taken()))
        }
        (file, reservation) => {
            if let Some((charge, delta)) = file {
                add(txn, ctx, charge, delta)?;
            }
            reservation.map_or(Ok(()), |reservation| release(txn, &reservation))
        }
    }
}

/// Ends a reservation.
pub(crate) fn release(txn: &mut dyn Txn, reservation: &Reservation) -> Result<(), NsError> {
    if planted::is(Bug::ReservationsStay) {
        return Ok(());
    }
    change_reserved(txn, reservation.charge, Delta::of(reservation).taken())
}

/// Replaces a reservation by another one for the same.
pub(crate) fn change_reservation(
    txn: &mut dyn Txn,
    before: &Reservation,
    after: Option<&Reservation>,
) -> Result<(), NsError> {
    change_reserved(txn, before.charge, Delta::default().and_reserved(Some(before), after))
}

fn change_reserved(txn: &mut dyn Txn, charge: Charge, delta: Delta) -> Result<(), NsError> {
    // The tree may have been removed since, with all of its records.
    if delta == Delta::default() || txn.get(&keys::tree(charge.tree))?.is_none() {
        return Ok(());
    }
    for mut record in charge.load(txn)? {
        delta.apply(&mut record);
        record.put(txn);
    }
    Ok(())
}

impl Reservation {
    /// Tree u64, owner u32, group u32, bytes u64 (all ones: any number), files u64.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder(Vec::with_capacity(32));
        out.u64(self.charge.tree.0);
        out.u32(self.charge.owner.0);
        out.u32(self.charge.group.0);
        out.u64(self.bytes.unwrap_or(u64::MAX));
        out.u64(self.files);
        out.0
    }

    pub(crate) fn decode(field: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::part(field, "a reservation");
        let tree = TreeId(from.u64()?);
        let charge = Charge { tree, owner: PrincipalId(from.u32()?), group: PrincipalId(from.u32()?) };
        let (bytes, files) = (Some(from.u64()?).filter(|bytes| *bytes != u64::MAX), from.u64()?);
        from.end()?;
        Ok(Self { charge, bytes, files })
    }
}
