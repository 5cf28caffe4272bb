//! write, pgwrite, writev, sync: bytes from the socket straight into aligned buffers, and from there to the store.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::PageSum;
use types::{Crc32c, PAGE_SIZE};
use wire::request::{Pgwrite, Sync, Write, Writev, WritevOptions};
use wire::response::BadPages;
use wire::{ErrorNumber, FileHandle, StreamId, reply};

use crate::config::{INPUT_BYTES, Planted};
use crate::connection::{Connection, Stop};
use crate::input::{Input, InputEnd};
use crate::node::Counters;
use crate::open_file::{Access, Copying, OpenFile, WriteAccess};
use crate::refusal::Refusal;
use crate::third_party::Synced;
use crate::transfers::Turn;

/// Ranges of one file that may stand uncorrected (kXR_pgMaxEos of XProtocol.hh).
const BAD_PAGES_MAX: usize = 256;
/// How often one upload may end its connection with a pgwrite that is out of step; then it is told why.
const OUT_OF_STEP_MAX: u32 = 3;
/// Bytes of a page's checksum on the wire.
const CRC_BYTES: usize = 4;
/// Bytes that are received at once and summed before more are: few enough to be in the processor's cache still.
const SUMMED_AT_ONCE: usize = 512 << 10;

/// A client is told that the end of a third-party copy comes within this time.
const COPY_SECONDS: u32 = 24 * 3600;

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
            return Ok(store_bytes(access, offset, self.input.take(len), None));
        }
        self.out.leave()?;
        // The data lies in the buffer as it will lie in the file's pages, so that it can go to the disk as it is.
        let mut lead = lead_of(offset);
        let mut buffer = self.node.buffers.take_for_write(lead + len);
        let mut turn = self.node.transfers.of(&self.session, self.number, len);
        let mut sums = Vec::with_capacity(buffer.len() / PAGE_SIZE);
        let (mut at, mut left) = (offset, len);
        let mut result = Ok(());
        while left > 0 {
            let n = left.min(buffer.len() - lead);
            let part = &mut buffer[lead..lead + n];
            sums.clear();
            let mut begin = 0;
            while begin < n {
                // Whole pages, but for the first and the last.
                let end = n.min(begin + SUMMED_AT_ONCE - (lead + begin) % PAGE_SIZE);
                self.input.fill_slice(&mut part[begin..end], Some(&mut turn))?;
                sums.extend(pages_in(&part[begin..end], (lead + begin) % PAGE_SIZE).map(PageSum::of));
                begin = end;
            }
            turn.take(|| n as u64);
            match &result {
                Ok(()) => result = store_bytes(access, at, part, Some(&sums)),
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
        let mut buffer = self.node.buffers.take_for_write(lead + wire_len);
        let mut turn = self.node.transfers.of(&self.session, self.number, wire_len);
        let room = (wire_len / (PAGE_SIZE + CRC_BYTES) + 2).min(buffer.len() / PAGE_SIZE);
        let (mut claimed, mut sums) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let (mut at, mut left) = (offset, wire_len);
        while left > 0 {
            claimed.clear();
            sums.clear();
            let mut end = lead;
            // As much as goes into the buffer, portion by portion.
            while left > 0 {
                let stop = buffer.len().min(end + SUMMED_AT_ONCE - end % PAGE_SIZE);
                let units = Units::that_fit(left, end, stop);
                if units.count == 0 {
                    break;
                }
                let known = claimed.len();
                claimed.resize(known + units.count, [0; CRC_BYTES]);
                let part = &mut buffer[end..end + units.data];
                receive_units(&mut self.input, &mut turn, &mut claimed[known..], part, end % PAGE_SIZE)?;
                sums.extend(pages_in(part, end % PAGE_SIZE).map(PageSum::of));
                end += units.data;
                left -= units.wire;
            }
            let data = &buffer[lead..end];
            if data.is_empty() {
                self.input.skip(left)?;
                pages.refused.get_or_insert_with(|| {
                    Refusal::new(ErrorNumber::ARG_INVALID, "The last page of the pgwrite request has no bytes")
                });
                return Ok(pages);
            }
            turn.take(|| data.len() as u64);
            match &pages.refused {
                None => pages.refused = store_pages(access, at, data, &claimed, &sums, &mut pages, believe).err(),
                Some(refusal) => access.refused(at, data.len() as u64, refusal),
            }
            at = at.saturating_add(data.len() as u64);
            lead = 0;
        }
        Ok(pages)
    }

    /// kXR_writev: a list of places, then their data.
    pub(crate) fn writev(&mut self, stream: StreamId, r: &Writev) -> Result<Result<(), Refusal>, Stop> {
        // All places are looked at before the first byte is written.
        let found: Vec<_> = r.segments.iter().map(|segment| self.writable(segment.handle, 0)).collect();
        let mut result = found.iter().find_map(|file| file.as_ref().err().cloned()).map_or(Ok(()), Err);
        let mut files: Vec<Arc<OpenFile>> = Vec::new();
        for (segment, file) in r.segments.iter().zip(found) {
            match (&result, file) {
                (Ok(()), Ok(file)) => {
                    result = self.write_range(&file, segment.offset, segment.len)?;
                    if !files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                        files.push(file);
                    }
                }
                (Err(refusal), Ok(file)) => {
                    // Refused with the rest of the request.
                    if let Access::Write(access) = &file.access {
                        access.refused(segment.offset, u64::from(segment.len), refusal);
                    }
                    self.skip(u64::from(segment.len))?;
                }
                (_, Err(_)) => self.skip(u64::from(segment.len))?,
            }
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
        if let Copying::Fetched(job) = &file.copying {
            let reply = self.hand_on(stream)?;
            if let Synced::Now(reply, result) = job.sync(&self.node, reply, |reply| reply.put_off(COPY_SECONDS)) {
                reply.settle(result);
            }
            return Ok(Ok(()));
        }
        self.out.leave()?;
        let result = sync_file(&file);
        self.out.back();
        Ok(result.and_then(|()| self.ok(stream, |_| ())))
    }

    fn writable(&self, handle: FileHandle, path_id: u8) -> Result<Arc<OpenFile>, Refusal> {
        if path_id != 0 {
            return Err(Refusal::new(
                ErrorNumber::ARG_INVALID,
                "Data to be written comes on the session's own connection, data stream 0",
            ));
        }
        let file = self.file(handle)?;
        write_access(&file)?;
        file.must_not_be_fetched()?;
        Ok(file)
    }
}

/// Lets the kernel sort checksums and pages apart: one system call, no copy.
fn receive_units(
    input: &mut Input,
    turn: &mut Turn<'_>,
    sums: &mut [[u8; CRC_BYTES]],
    data: &mut [u8],
    lead: usize,
) -> Result<(), InputEnd> {
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
    input.fill_slices(&mut slices, Some(turn))
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

/// The pages in `data`, of which the first begins `lead` bytes into its own.
fn pages_in(data: &[u8], lead: usize) -> impl Iterator<Item = &[u8]> {
    let (first, rest) = data.split_at(data.len().min((PAGE_SIZE - lead) % PAGE_SIZE));
    std::iter::once(first).filter(|first| !first.is_empty()).chain(rest.chunks(PAGE_SIZE))
}

/// Checksums with their pages, as a pgwrite sends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Units {
    count: usize,
    /// Bytes of the pages alone, and of pages and checksums.
    data: usize,
    wire: usize,
}

impl Units {
    /// Those of the next `left` bytes of a request whose data, with all of the page that it ends in, has room from `at`
    /// to `stop` in the buffer. Without data at the end: a checksum that has no page.
    fn that_fit(left: usize, at: usize, stop: usize) -> Self {
        let mut units = Self { count: 0, data: 0, wire: 0 };
        while left - units.wire > CRC_BYTES {
            let room = PAGE_SIZE - (at + units.data) % PAGE_SIZE;
            if at + units.data + room > stop {
                break;
            }
            let page = room.min(left - units.wire - CRC_BYTES);
            units.data += page;
            units.wire += CRC_BYTES + page;
            units.count += 1;
        }
        units
    }
}

/// Writes `data` at `offset`; `sums`: of each page of it, if they are known.
fn store_bytes(access: &WriteAccess, offset: u64, data: &[u8], sums: Option<&[PageSum]>) -> Result<(), Refusal> {
    let hold = access.hold()?;
    let writer = if data.is_empty() { hold.writer() } else { hold.writer_to_change() };
    let result = match sums {
        Some(sums) => writer.write_summed(offset, data, sums),
        None => writer.write(offset, data),
    };
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

/// Writes the pages whose sums are what the client `claimed`; those of which it is not go to `bad`.
fn store_pages(
    access: &WriteAccess,
    offset: u64,
    data: &[u8],
    claimed: &[[u8; CRC_BYTES]],
    sums: &[PageSum],
    pages: &mut Pages,
    believe: bool,
) -> Result<(), Refusal> {
    let mut good = Vec::new();
    // Bytes of `data` and their pages' places in `sums`.
    let (mut run, mut run_sums) = (0..0, 0..0);
    let mut page_start = 0;
    // Refused like any other handle's bytes if it was fenced.
    drop(access.hold()?);
    for (number, (sum, claimed)) in sums.iter().zip(claimed).enumerate() {
        let at = offset.saturating_add(page_start as u64);
        let len = (PAGE_SIZE - lead_of(at)).min(data.len() - page_start);
        if believe || sum.crc32c() == Crc32c(u32::from_be_bytes(*claimed)) {
            run.end = page_start + len;
            run_sums.end = number + 1;
        } else {
            access.lease.missing.lock().refused(at, at.saturating_add(len as u64), ErrorNumber::CHECKSUM);
            pages.bad_count += 1;
            pages.too_many |= pages.bad.add(at, len).is_err();
            good.push((run, run_sums));
            run = page_start + len..page_start + len;
            run_sums = number + 1..number + 1;
        }
        page_start += len;
    }
    good.push((run, run_sums));
    let mut result = Ok(());
    for (run, run_sums) in good.into_iter().filter(|(run, _)| !run.is_empty()) {
        let at = offset.saturating_add(run.start as u64);
        match &result {
            Ok(()) => result = store_bytes(access, at, &data[run], Some(&sums[run_sums])),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_end_where_pages_end_and_never_pass_the_buffer() {
        let unit = PAGE_SIZE + CRC_BYTES;
        let units = |count, data| Units { count, data, wire: data + count * CRC_BYTES };
        assert_eq!(Units::that_fit(3 * unit, 0, 2 * PAGE_SIZE), units(2, 2 * PAGE_SIZE));
        assert_eq!(Units::that_fit(2 * unit + 10, 0, 8 * PAGE_SIZE), units(3, 2 * PAGE_SIZE + 6));
        assert_eq!(Units::that_fit(2 * unit, 100, 4 * PAGE_SIZE), units(3, 2 * PAGE_SIZE - CRC_BYTES));
        assert_eq!(Units::that_fit(unit + CRC_BYTES, 0, 8 * PAGE_SIZE), units(1, PAGE_SIZE));
        assert_eq!(Units::that_fit(CRC_BYTES, PAGE_SIZE, 8 * PAGE_SIZE), units(0, 0));
        assert_eq!(Units::that_fit(unit, 4096, 8191), units(0, 0));
    }

    #[test]
    fn pages_are_cut_as_they_lie_in_the_file() {
        let data = vec![0; 2 * PAGE_SIZE + 5];
        let lens = |data, lead| pages_in(data, lead).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lens(&data[..], 0), [PAGE_SIZE, PAGE_SIZE, 5]);
        assert_eq!(lens(&data[..], 1), [PAGE_SIZE - 1, PAGE_SIZE, 6]);
        assert_eq!(lens(&data[..10], 4000), [10]);
        assert!(lens(&data[..0], 7).is_empty());
    }
}
