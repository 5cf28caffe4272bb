//! Reading a whole replica and comparing everything.

use types::ReplicaId;

use crate::reader::Reader;
use crate::sums::RunningSum;
use crate::{ReplicaState, ReplicaStatus, StoreError, Verified};

/// Bytes read in one step.
const STEP: usize = 1 << 20;

pub(crate) fn verify(
    reader: &Reader,
    status: Option<ReplicaStatus>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Verified, StoreError> {
    let mut sum = RunningSum::EMPTY;
    let mut buf = vec![0; STEP];
    loop {
        sum.push_zero_pages(reader.empty_pages(sum.len)?);
        let got = reader.read(sum.len, &mut buf)?;
        if got == 0 {
            break;
        }
        sum.append(RunningSum::of(&buf[..got]));
        if !progress(sum.len) {
            return Err(StoreError::Stopped { replica: reader.replica() });
        }
    }
    let verified = Verified { len: sum.len, adler32: sum.adler32, crc32c: sum.crc32c };
    match status.map(|status| (status.len, status.state)) {
        Some((len, ReplicaState::Complete { adler32, crc32c }))
            if len == sum.len && (adler32 != sum.adler32 || crc32c != sum.crc32c) =>
        {
            Err(whole_mismatch(reader.replica()))
        }
        _ => Ok(verified),
    }
}

/// The error for matching pages with a wrong total: pages were exchanged, or the record is wrong.
pub(crate) fn whole_mismatch(replica: ReplicaId) -> StoreError {
    StoreError::damaged(format!("every page of {replica} matches, but not the sums of the whole"))
}
