//! write, pgwrite, writev, sync: bytes from the socket straight into aligned buffers, and from there to the store.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{Crc32c, PAGE_SIZE};
use wire::request::{Pgwrite, Sync, Write, Writev, WritevOptions};
use wire::response::BadPages;
use wire::{ErrorNumber, FileHandle, StreamId, reply};

use crate::config::{INPUT_BYTES, Planted};
use crate::connection::{Connection, Stop};
use crate::node::Counters;
use crate::open_file::{Access, OpenFile, WriteAccess};
use crate::refusal::Refusal;

/// Ranges of one file that may stand uncorrected (kXR_pgMaxEos of XProtocol.hh).
const BAD_PAGES_MAX: usize = 256;
/// How often one upload may end its connection with a pgwrite that is out of step; then it is told why.
const OUT_OF_STEP_MAX: u32 = 3;
/// Bytes of a page's checksum on the wire.
const CRC_BYTES: usize = 4;

/// What one pgwrite brought.
#[derive(Default)]
struct Pages {
    /// Those whose checksum does not match.
    bad: BadPages,
    /// How many.
    bad_count: usize,
    /// There are more of them than can be told.
    too_many: bool,
    refused: Option<Refusal>,
}

impl Connection {
    /// kXR_write.
    pub(crate) fn write(&mut self, stream: StreamId, r: &Write) -> Result<Result<(), Refusal>, Stop> {
        let file = match self.writable(r.handle, r.path_id) {
            Ok(file) => file,
            Err(refusal) => {
                self.skip(u64::from(r.len))?;
                return Ok(Err(refusal));
            }
        };
        let result = self.write_range(&file, r.offset, r.len)?;
        Ok(result.and_then(|()| self.ok(stream, |_| ())))
    }

    /// Receives `len` bytes and writes them at `offset`. The bytes are taken off the connection also if it fails.
    fn write_range(&mut self, file: &OpenFile, offset: u64, len: u32) -> Result<Result<(), Refusal>, Stop> {
        let access = match write_access(file) {
            Ok(access) => access,
            Err(refusal) => {
                self.skip(u64::from(len))?;
                return Ok(Err(refusal));
            }
        };
        let len = len as usize;
        Counters::add(&self.node.counters.bytes_written, len as u64);
        if len <= INPUT_BYTES && self.input.has(len) {
            return Ok(store_bytes(access, offset, self.input.take(len)));
        }
        self.out.leave()?;
        // The data lies in the buffer as it will lie in the file's pages, so that it can go to the disk as it is.
        let mut lead = lead_of(offset);
        let mut buffer = self.node.buffers.take(lead + len);
        let (mut at, mut left) = (offset, len);
        let mut result = Ok(());
        while left > 0 {
            let n = left.min(buffer.len() - lead);
            let part = &mut buffer[lead..lead + n];
            self.input.fill_slice(part)?;
            match &result {
                Ok(()) => result = store_bytes(access, at, part),
                Err(refusal) => access.refused(at, n as u64, refusal),
            }
            at = at.saturating_add(n as u64);
            left -= n;
            lead = 0;
        }
        self.out.back();
        Ok(result)
    }

    /// kXR_pgwrite: pages with their checksums. Pages that do not match are not written but reported, and the file
    /// cannot be closed until they have come again.
    pub(crate) fn pgwrite(&mut self, stream: StreamId, r: &Pgwrite) -> Result<Result<(), Refusal>, Stop> {
        let file = match self.writable(r.handle, r.path_id) {
            Ok(file) => file,
            Err(refusal) => {
                self.skip(u64::from(r.wire_len))?;
                return Ok(Err(refusal));
            }
        };
        let access = match write_access(&file) {
            Ok(access) => access,
            Err(refusal) => {
                self.skip(u64::from(r.wire_len))?;
                return Ok(Err(refusal));
            }
        };
        Counters::add(&self.node.counters.bytes_written, u64::from(r.wire_len));
        let wire_len = r.wire_len as usize;
        if !self.input.has(wire_len) {
            self.out.leave()?;
        }
        let pages = self.receive_pages(access, r.offset, wire_len)?;
        self.out.back();
        if let Some(refusal) = pages.refused {
            return Ok(Err(refusal));
        }
        // XrdCl 5.5, sending a pgwrite again after a lost connection, may send the head and then the rest of the body:
        // all pages are wrong, and where the next request begins nobody knows. On a new connection it begins anew.
        if pages.too_many && access.lease.out_of_step.fetch_add(1, Ordering::Relaxed) < OUT_OF_STEP_MAX {
            return Err(Stop::OutOfStep(pages.bad_count));
        }
        if pages.too_many || access.lease.missing.lock().len() > BAD_PAGES_MAX {
            let text = format!("Cannot write {}: too many checksum errors in the pages that arrived", file.path);
            return Ok(Err(Refusal::new(ErrorNumber::TOO_MANY_ERRORS, text)));
        }
        self.out.answer(|out| reply::pgwrite(out, stream, r.offset, &pages.bad));
        Ok(Ok(()))
    }

    fn receive_pages(&mut self, access: &WriteAccess, offset: u64, wire_len: usize) -> Result<Pages, Stop> {
        let mut pages = Pages::default();
        let believe = self.node.config.has(Planted::StoreBadPages);
        let mut lead = lead_of(offset);
        let mut buffer = self.node.buffers.take(lead + wire_len);
        let mut sums = vec![[0u8; CRC_BYTES]; (wire_len / (PAGE_SIZE + CRC_BYTES) + 2).min(buffer.len() / PAGE_SIZE)];
        let (mut at, mut left) = (offset, wire_len);
        while left > 0 {
            // How many whole units (checksum and page) fit into the buffer.
            let (mut data, mut units, mut wire) = (0, 0, 0);
            while wire < left && units < sums.len() {
                let room = PAGE_SIZE - (lead + data) % PAGE_SIZE;
                if left - wire <= CRC_BYTES || lead + data + room > buffer.len() {
                    break;
                }
                let page = room.min(left - wire - CRC_BYTES);
                data += page;
                wire += CRC_BYTES + page;
                units += 1;
            }
            if units == 0 {
                self.input.skip(left)?;
                pages.refused.get_or_insert_with(|| {
                    Refusal::new(ErrorNumber::ARG_INVALID, "The last page of the pgwrite request has no bytes")
                });
                return Ok(pages);
            }
            let part = &mut buffer[lead..lead + data];
            self.receive_units(&mut sums[..units], part, lead)?;
            match &pages.refused {
                None => pages.refused = store_pages(access, at, part, &sums[..units], &mut pages, believe).err(),
                Some(refusal) => access.refused(at, data as u64, refusal),
            }
            at = at.saturating_add(data as u64);
            left -= wire;
            lead = 0;
        }
        Ok(pages)
    }

    /// Lets the kernel sort checksums and pages apart: one system call, no copy.
    fn receive_units(&mut self, sums: &mut [[u8; CRC_BYTES]], data: &mut [u8], lead: usize) -> Result<(), Stop> {
        let mut slices = Vec::with_capacity(sums.len() * 2);
        let mut rest = data;
        let mut room = PAGE_SIZE - lead;
        for sum in sums {
            let (page, tail) = rest.split_at_mut(room.min(rest.len()));
            slices.push(IoSliceMut::new(sum));
            slices.push(IoSliceMut::new(page));
            rest = tail;
            room = PAGE_SIZE;
        }
        Ok(self.input.fill_slices(&mut slices)?)
    }

    /// kXR_writev: a list of places, then their data.
    pub(crate) fn writev(&mut self, stream: StreamId, r: &Writev) -> Result<Result<(), Refusal>, Stop> {
        let mut result: Result<(), Refusal> = Ok(());
        let mut files: Vec<Arc<OpenFile>> = Vec::new();
        for segment in &r.segments {
            if result.is_ok() {
                match self.writable(segment.handle, 0) {
                    Ok(file) => {
                        result = self.write_range(&file, segment.offset, segment.len)?;
                        if !files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                            files.push(file);
                        }
                        continue;
                    }
                    Err(refusal) => result = Err(refusal),
                }
            } else if let (Err(refusal), Ok(file)) = (&result, self.writable(segment.handle, 0)) {
                // Refused with the rest of the request.
                if let Access::Write(access) = &file.access {
                    access.refused(segment.offset, u64::from(segment.len), refusal);
                }
            }
            self.skip(u64::from(segment.len))?;
        }
        if result.is_ok() && r.options.has(WritevOptions::SYNC) {
            self.out.leave()?;
            result = files.iter().try_for_each(|file| sync_file(file));
            self.out.back();
        }
        Ok(result.and_then(|()| self.ok(stream, |_| ())))
    }

    /// kXR_sync: everything acknowledged on this handle is on the disk when the answer goes out.
    pub(crate) fn sync(&mut self, stream: StreamId, r: &Sync) -> Result<Result<(), Refusal>, Stop> {
        let file = match self.file(r.handle) {
            Ok(file) => file,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.out.leave()?;
        let result = sync_file(&file);
        self.out.back();
        Ok(result.and_then(|()| self.ok(stream, |_| ())))
    }

    fn writable(&self, handle: FileHandle, path_id: u8) -> Result<Arc<OpenFile>, Refusal> {
        if path_id != 0 {
            return Err(Refusal::new(ErrorNumber::ARG_INVALID, "This session has one data stream, number 0"));
        }
        let file = self.file(handle)?;
        write_access(&file)?;
        Ok(file)
    }
}

fn lead_of(offset: u64) -> usize {
    usize::try_from(offset % PAGE_SIZE as u64).unwrap_or(0)
}

fn write_access(file: &OpenFile) -> Result<&WriteAccess, Refusal> {
    match &file.access {
        Access::Write(access) => Ok(access),
        Access::Read(_) => Err(Refusal::read_only(&file.path)),
    }
}

fn store_bytes(access: &WriteAccess, offset: u64, data: &[u8]) -> Result<(), Refusal> {
    let hold = access.hold()?;
    let result = hold.writer().write(offset, data);
    let end = offset.saturating_add(data.len() as u64);
    let mut missing = access.lease.missing.lock();
    match result {
        Ok(()) => {
            missing.written(offset, end);
            Ok(())
        }
        Err(error) => {
            let refusal = Refusal::of_store(&format_args!("write {}", access.lease.path), &error);
            missing.refused(offset, end, refusal.number());
            Err(refusal)
        }
    }
}

/// Writes the pages that match; those that do not go to `bad`.
fn store_pages(
    access: &WriteAccess,
    offset: u64,
    data: &[u8],
    sums: &[[u8; CRC_BYTES]],
    pages: &mut Pages,
    believe: bool,
) -> Result<(), Refusal> {
    let mut good = Vec::new();
    let mut run = 0..0;
    let mut page_start = 0;
    // Refused like any other handle's bytes if it was fenced.
    drop(access.hold()?);
    for sum in sums {
        let at = offset.saturating_add(page_start as u64);
        let len = (PAGE_SIZE - lead_of(at)).min(data.len() - page_start);
        let page = &data[page_start..page_start + len];
        if believe || Crc32c::of(page) == Crc32c(u32::from_be_bytes(*sum)) {
            run.end = page_start + len;
        } else {
            access.lease.missing.lock().refused(at, at.saturating_add(len as u64), ErrorNumber::CHECKSUM);
            pages.bad_count += 1;
            pages.too_many |= pages.bad.add(at, len).is_err();
            good.push(run);
            run = page_start + len..page_start + len;
        }
        page_start += len;
    }
    good.push(run);
    let mut result = Ok(());
    for run in good.into_iter().filter(|run| !run.is_empty()) {
        let at = offset.saturating_add(run.start as u64);
        match &result {
            Ok(()) => result = store_bytes(access, at, &data[run]),
            Err(refusal) => access.refused(at, run.len() as u64, refusal),
        }
    }
    result
}

fn sync_file(file: &OpenFile) -> Result<(), Refusal> {
    match &file.access {
        // What can be read is on the disk already.
        Access::Read(_) => Ok(()),
        Access::Write(access) => {
            let hold = access.hold()?;
            hold.writer()
                .sync()
                .map(|_| ())
                .map_err(|error| Refusal::of_store(&format_args!("sync {}", file.path), &error))
        }
    }
}
