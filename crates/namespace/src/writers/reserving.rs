//! What an open write reserves that changes a file, or goes on with an upload.

use kv::Txn;

use crate::quota::charge::{Delta, Reservation, charge_of};
use crate::quota::reserve::{Wanted, reserve_for_open};
use crate::tree::node::Located;
use crate::{Context, NsError, OpenWrite, UploadRecord};

/// Reserves what a visible file may grow. A full quota refuses only that: what is there may be changed.
pub(crate) fn reserve_for_update(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    located: &Located,
) -> Result<Option<Reservation>, NsError> {
    // The open write of a striped file reserves for all of its units. These have no names, and so count for nobody.
    let Some(charge) = charge_of(txn, located)? else { return Ok(None) };
    let wanted = Wanted { base: located.inode.len(), announced: request.expected_len, ..Wanted::default() };
    reserve_for_open(txn, ctx, charge, (&wanted, Delta::default(), None), &|| request.path.to_string())
}

/// Reserves for an upload that was kept, beside what it has kept.
pub(crate) fn reserve_for_upload(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: &OpenWrite,
    upload: &mut UploadRecord,
) -> Result<Option<Reservation>, NsError> {
    let before = upload.reservation.take();
    // Without its directory, it can only be kept again.
    let Some(charge) = upload.charge(txn)?.or(before.map(|before| before.charge)) else { return Ok(None) };
    let wanted = Wanted {
        announced: request.expected_len,
        kept: upload.kept_len,
        files: u64::from(upload.replaces.is_none()),
        ..Wanted::default()
    };
    reserve_for_open(txn, ctx, charge, (&wanted, Delta::default(), before), &|| request.path.to_string())
}
