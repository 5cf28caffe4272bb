//! The end of the journal at opening, which nothing proves to be durable.

use disk::{Access, Disk, OpenOptions};

use crate::JournalError;
use crate::scan::{Scan, ScannedSegment};
use crate::segment::PAGE_U64;
use crate::walk::{Expected, Window, walk};

const CHUNK: usize = 1 << 20;

/// Rewrites all records after the last one known to be durable, and syncs them. A sync alone would prove nothing: after
/// a failed one, perhaps in an earlier process, the kernel treats unwritten bytes as written.
pub(crate) fn rewrite(disk: &dyn Disk, scan: &Scan) -> Result<(), JournalError> {
    for segment in &scan.segments {
        if let Some(from) = first_unsure_byte(disk, segment, scan.synced_to)? {
            rewrite_from(disk, segment, from)?;
        }
    }
    Ok(())
}

/// The first offset of a segment that may not be durable; `None` if all of it is.
fn first_unsure_byte(disk: &dyn Disk, segment: &ScannedSegment, synced_to: u64) -> Result<Option<u64>, JournalError> {
    if segment.header.first > synced_to {
        // The header is written together with the first records.
        return Ok(Some(0));
    }
    if segment.last <= synced_to {
        return Ok(None);
    }
    let expected = Expected {
        path: &segment.path,
        segment: segment.header.segment,
        segment_bytes: segment.header.segment_bytes,
        incarnation: segment.header.incarnation,
        first: segment.header.first,
        check_crc: false,
        check_origin: false,
    };
    let mut window = Window::new(disk.open(&segment.path, past_the_cache())?, segment.end);
    let mut last_sure = segment.header.first;
    let end = walk(&mut window, expected, &mut |frame, _, _| {
        last_sure = frame.seq;
        if frame.seq < synced_to { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
    })?;
    debug_assert_eq!(last_sure, synced_to);
    Ok(Some(end.offset))
}

fn past_the_cache() -> OpenOptions {
    OpenOptions { access: Access::Read, direct: true }
}

fn rewrite_from(disk: &dyn Disk, segment: &ScannedSegment, from: u64) -> Result<(), JournalError> {
    let mut window = Window::new(disk.open(&segment.path, past_the_cache())?, segment.end);
    let file = disk.open(&segment.path, OpenOptions { access: Access::ReadWrite, direct: false })?;
    let end = segment.end.next_multiple_of(PAGE_U64);
    let mut at = from - from % PAGE_U64;
    while at < end {
        let len = usize::try_from((end - at).min(CHUNK as u64)).unwrap_or(CHUNK);
        let bytes = window.get(at, len)?;
        if bytes.is_empty() {
            break;
        }
        file.write_at(bytes, at)?;
        at += bytes.len() as u64;
    }
    file.sync_data()?;
    // The scan, and long writes, bypass the cache.
    file.drop_cache(0, end);
    Ok(())
}
