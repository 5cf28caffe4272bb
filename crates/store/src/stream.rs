//! Writing whole pages to a file while computing their checksums: the disk and a core work at the same time.

use std::sync::mpsc::sync_channel;
use std::thread;

use disk::{DiskError, DiskFile};
use types::PAGE_SIZE;

use crate::StoreError;
use crate::buffers::{BUFFER, Buffer, Buffers};
use crate::sums::PageSum;

/// Shorter writes do not justify a thread: it costs about 100 microseconds of processor time, the checksums of a MiB
/// 25.
const OVERLAP_MIN: usize = 4 << 20;

fn sums_of(data: &[u8]) -> Vec<PageSum> {
    data.chunks(PAGE_SIZE).map(PageSum::of).collect()
}

/// Writes `data`, whole pages, at `start`. Returns the pages' checksums; the caller passes them as `known` if it has
/// them. Data at an aligned address is written in place, other data through a buffer.
pub(crate) fn write_pages(
    file: &dyn DiskFile,
    buffers: &Buffers,
    start: u64,
    data: &[u8],
    known: Option<&[PageSum]>,
) -> Result<Vec<PageSum>, StoreError> {
    let aligned = (data.as_ptr() as usize).is_multiple_of(PAGE_SIZE);
    if let (true, Some(sums)) = (aligned, known) {
        debug_assert_eq!(sums, sums_of(data), "sums that are not those of the pages");
        file.write_at(data, start)?;
        return Ok(sums.to_vec());
    }
    match (aligned, data.len() >= OVERLAP_MIN) {
        (true, true) => write_aligned(file, start, data),
        (true, false) => {
            file.write_at(data, start)?;
            Ok(sums_of(data))
        }
        (false, _) if data.len() > BUFFER => write_copied(file, buffers, start, data),
        (false, _) => {
            let mut buffer = buffers.take();
            let buffer = &mut buffer[..data.len()];
            buffer.copy_from_slice(data);
            let sums = sums_of(buffer);
            file.write_at(buffer, start)?;
            Ok(sums)
        }
    }
}

/// One thread writes while this one computes checksums.
fn write_aligned(file: &dyn DiskFile, start: u64, data: &[u8]) -> Result<Vec<PageSum>, StoreError> {
    thread::scope(|scope| {
        let writing =
            thread::Builder::new().name("store-write".into()).spawn_scoped(scope, || file.write_at(data, start));
        let sums = sums_of(data);
        match writing {
            Ok(writing) => joined(writing)?,
            // No more threads are available: write first, compute later.
            Err(_) => file.write_at(data, start)?,
        }
        Ok(sums)
    })
}

/// One thread writes buffers while this one fills them.
fn write_copied(file: &dyn DiskFile, buffers: &Buffers, start: u64, data: &[u8]) -> Result<Vec<PageSum>, StoreError> {
    let mut sums = Vec::with_capacity(data.len() / PAGE_SIZE);
    thread::scope(|scope| {
        // One buffer is being written, one waits, one is being filled. Their holders wait only for the disk.
        let (sender, receiver) = sync_channel::<(Buffer<'_>, usize, u64)>(1);
        let writing = thread::Builder::new().name("store-write".into()).spawn_scoped(scope, move || {
            while let Ok((buffer, len, at)) = receiver.recv() {
                file.write_at(&buffer[..len], at)?;
            }
            Ok(())
        });
        for (at, chunk) in (start..).step_by(BUFFER).zip(data.chunks(BUFFER)) {
            let mut buffer = buffers.take();
            let filled = &mut buffer[..chunk.len()];
            filled.copy_from_slice(chunk);
            sums.extend(filled.chunks(PAGE_SIZE).map(PageSum::of));
            if let Err(unsent) = sender.send((buffer, chunk.len(), at)) {
                if writing.is_ok() {
                    // The other thread has failed; its error is fetched below.
                    break;
                }
                let (buffer, len, at) = unsent.0;
                file.write_at(&buffer[..len], at)?;
            }
        }
        drop(sender);
        writing.map_or(Ok(()), joined)
    })?;
    Ok(sums)
}

fn joined(writing: thread::ScopedJoinHandle<'_, Result<(), DiskError>>) -> Result<(), StoreError> {
    match writing.join() {
        Ok(result) => Ok(result?),
        Err(_) => Err(StoreError::damaged("the thread that writes has panicked")),
    }
}
