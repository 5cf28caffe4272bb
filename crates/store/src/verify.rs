//! Reading a piece through and comparing everything.

use types::PieceId;

use crate::reader::Reader;
use crate::sums::RunningSum;
use crate::{PieceState, PieceStatus, StoreError, Verified};

/// Bytes read in one step.
const STEP: usize = 1 << 20;

pub(crate) fn verify(
    reader: &Reader,
    status: Option<PieceStatus>,
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
        let part = RunningSum::of(&buf[..got]);
        let before = sum;
        sum = RunningSum {
            crc32c: before.crc32c.combine(part.crc32c, part.len),
            adler32: before.adler32.combine(part.adler32, part.len),
            len: before.len + part.len,
        };
        if !progress(sum.len) {
            break;
        }
    }
    let verified = Verified { len: sum.len, adler32: sum.adler32, crc32c: sum.crc32c };
    match status.map(|status| (status.len, status.state)) {
        Some((len, PieceState::Complete { adler32, crc32c }))
            if len == sum.len && (adler32 != sum.adler32 || crc32c != sum.crc32c) =>
        {
            Err(whole_differs(reader.piece()))
        }
        _ => Ok(verified),
    }
}

/// Pages were exchanged, or the record is wrong.
pub(crate) fn whole_differs(piece: PieceId) -> StoreError {
    StoreError::damaged(format!("every page of {piece} matches, but not the sums of the whole"))
}
