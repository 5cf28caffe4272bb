//! The end of the log that an opening finds, and of which nothing says that it was durable.

use disk::{Access, Disk, OpenOptions};

use crate::JournalError;
use crate::scan::{Scan, ScannedSegment};
use crate::segment::PAGE_U64;
use crate::walk::{Expected, Window, walk};

const CHUNK: usize = 1 << 20;

/// Writes all records after the last that is known to have been durable once more, and syncs them. A sync alone would prove nothing: after one that has
/// failed, perhaps before this process was there, the kernel takes what it could not write for written.
pub(crate) fn rewrite(disk: &dyn Disk, scan: &Scan) -> Result<(), JournalError> {
    for segment in &scan.segments {
        if let Some(from) = unsure_from(disk, segment, scan.synced_to)? {
            rewrite_from(disk, segment, from)?;
        }
    }
    Ok(())
}

/// From which byte on it is not known whether a segment is durable.
fn unsure_from(disk: &dyn Disk, segment: &ScannedSegment, synced_to: u64) -> Result<Option<u64>, JournalError> {
    if segment.header.first > synced_to {
        // It is written with its first records.
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
    // Later reads and writes of this file go past the cache.
    file.drop_cache(0, end);
    Ok(())
}
