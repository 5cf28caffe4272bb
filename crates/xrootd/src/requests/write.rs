//! write, pgwrite, writev, sync: data from the socket goes directly into aligned buffers, and from there to the
//! store.

use std::io::IoSliceMut;
use std::sync::Arc;

use service::{
    Answer, Class, Error, Judged, OpenFile, PageSum, PlantedBug, TransferSlot, WritePart, lead_of, pages_in,
};
use types::{ErrorCode, PAGE_SIZE};
use wire::request::{Pgwrite, Sync, Write, Writev, WritevOptions};
use wire::response::BadPages;
use wire::{ErrorNumber, FileHandle, StreamId, reply};

use crate::answer::Reply;
use crate::config::INPUT_BYTES;
use crate::connection::{Connection, Stop};
use crate::data_streams::Task;
use crate::from_wire;
use crate::input::{Input, InputEnd};
use crate::to_wire::RequestError;

/// Maximum number of uncorrected ranges of a file (kXR_pgMaxEos of XProtocol.hh).
const BAD_PAGES_MAX: usize = 256;
/// How often an out-of-step pgwrite of one upload ends its connection. After that the client gets an error instead.
const OUT_OF_STEP_MAX: u32 = 3;
/// Bytes of a page's checksum on the wire.
const CRC_BYTES: usize = 4;
/// Bytes that are received before they are summed: few enough to be still in the processor's cache.
const SUMMED_AT_ONCE: usize = 512 << 10;

/// The time that a client is told to wait for the end of a third-party copy.
const COPY_SECONDS: u32 = 24 * 3600;

/// Parts of at least this size are stored while the next one is received.
const BEHIND_MIN: usize = 512 << 10;

/// The state of a write request whose data has arrived.
enum Stored {
    /// The request must be answered now.
    Now(Result<(), Error>),
    /// The request is answered when its last part is stored.
    Later,
}

/// The pages of a pgwrite.
struct Pages {
    judged: Judged,
    refused: Option<Error>,
}

impl Connection {
    /// kXR_write.
    pub(crate) fn write(&mut self, stream: StreamId, r: &Write) -> Result<Result<(), RequestError>, Stop> {
        if let Some(handed) = self.elsewhere(stream, r.path_id, || Task::Write(r.clone())) {
            return Ok(handed);
        }
        let file = match self.writable(r.handle) {
            Ok(file) => file,
            Err(request_error) => {
                self.skip(u64::from(r.len))?;
                return Ok(Err(request_error));
            }
        };
        match self.write_range(&file, r.offset, r.len, Some(stream))? {
            Stored::Now(result) => Ok(result.map_err(RequestError::from).and_then(|()| self.ok(stream, |_| ()))),
            Stored::Later => Ok(Ok(())),
        }
    }

    /// Receives `len` bytes and writes them at `offset`. Even if it fails, it takes the bytes off the connection.
    /// `to` is the stream of the request, which is answered when all data is stored; `None`: the caller answers.
    fn write_range(
        &mut self,
        file: &Arc<OpenFile>,
        offset: u64,
        len: u32,
        to: Option<StreamId>,
    ) -> Result<Stored, Stop> {
        let len = len as usize;
        self.front.service.counters().written(len as u64);
        if len <= INPUT_BYTES && self.input.has(len) {
            self.settle();
            return Ok(Stored::Now(file.write(offset, self.input.take(len), None)));
        }
        self.out.leave()?;
        let (service, session) = (Arc::clone(&self.front.service), Arc::clone(&self.session.open));
        let mut turn = service.transfers().of(&*session, self.number, Class::Record, file.in_turns(len));
        // The data has the same offset within a page in the buffer and in the file. So it can go to the disk without
        // a copy.
        let mut lead = lead_of(offset);
        let mut spare = None;
        let (mut at, mut left) = (offset, len);
        let mut result = Ok(());
        while left > 0 {
            // Use a slot for a whole buffer. A switch in the middle would leave both transfers with a cold cache.
            turn.let_others();
            let mut buffer = spare.take().unwrap_or_else(|| service.buffers().take_for_write(lead + left));
            let n = left.min(buffer.len() - lead);
            let part = &mut buffer[lead..lead + n];
            let mut sums = Vec::with_capacity(n / PAGE_SIZE + 2);
            let mut begin = 0;
            while begin < n {
                // Whole pages, except the first and the last.
                let end = n.min(begin + SUMMED_AT_ONCE - (lead + begin) % PAGE_SIZE);
                self.input.fill_slice(&mut part[begin..end], Some(&mut turn))?;
                sums.extend(pages_in(&part[begin..end], (lead + begin) % PAGE_SIZE).map(PageSum::of));
                begin = end;
            }
            let part = WritePart::new(file, at, buffer, lead..lead + n, sums);
            at = at.saturating_add(n as u64);
            left -= n;
            lead = 0;
            result = result.and(self.wait_behind(&mut turn));
            match &result {
                Err(request_error) => part.refuse(request_error),
                Ok(()) if n < BEHIND_MIN => {
                    turn.take(|| n as u64);
                    result = part.store();
                    spare = Some(part.into_buffer());
                }
                Ok(()) => {
                    turn.end();
                    let reply = to.filter(|_| left == 0).map(|stream| self.hand_on(stream)).transpose()?;
                    let last = reply.is_some();
                    self.behind.store(&service, &session, self.number, part, reply);
                    if last {
                        self.out.back();
                        return Ok(Stored::Later);
                    }
                }
            }
        }
        // Without an answer of its own, the last part is waited for here.
        let result = result.and(self.wait_behind(&mut turn));
        self.out.back();
        Ok(Stored::Now(result))
    }

    /// Waits for the part that is being stored. Others may use the slot meanwhile.
    fn wait_behind(&mut self, turn: &mut TransferSlot<'_>) -> Result<(), Error> {
        if !self.behind.is_under_way() {
            return Ok(());
        }
        turn.end();
        self.behind.wait()
    }

    /// Waits until the earlier requests are done.
    pub(crate) fn settle(&mut self) {
        if self.behind.is_under_way()
            && let Err(error) = self.behind.wait()
        {
            // This request was cut off by the end of the connection.
            tracing::debug!(client = %self.session, %error, "a write was not stored");
        }
    }

    /// kXR_pgwrite: pages with their checksums. Pages that do not match are reported instead of written. The file
    /// cannot be closed until the client has sent them again.
    pub(crate) fn pgwrite(&mut self, stream: StreamId, r: &Pgwrite) -> Result<Result<(), RequestError>, Stop> {
        if let Some(handed) = self.elsewhere(stream, r.path_id, || Task::Pgwrite(r.clone())) {
            return Ok(handed);
        }
        let file = match self.writable(r.handle) {
            Ok(file) => file,
            Err(request_error) => {
                self.skip(u64::from(r.wire_len))?;
                return Ok(Err(request_error));
            }
        };
        self.front.service.counters().written(u64::from(r.wire_len));
        let wire_len = r.wire_len as usize;
        if !self.input.has(wire_len) {
            self.out.leave()?;
        }
        let Some(pages) = self.receive_pages(&file, stream, r.offset, wire_len)? else {
            self.out.back();
            return Ok(Ok(()));
        };
        self.out.back();
        if let Some(error) = pages.refused {
            return Ok(Err(error.into()));
        }
        // After a lost connection XrdCl 5.5 may resend the header of a pgwrite with only the end of its body. Then
        // all pages are wrong, and the beginning of the next request is unknown. On a new connection the client
        // starts again.
        let judged = &pages.judged;
        if judged.too_many() && file.count_out_of_step() < OUT_OF_STEP_MAX {
            return Err(Stop::OutOfStep(judged.bad_count));
        }
        if judged.too_many() || file.missing_ranges() > BAD_PAGES_MAX {
            return Ok(Err(too_many_bad(&file)));
        }
        let bad = bad_pages(&judged.bad);
        self.out.answer(|out| reply::pgwrite(out, stream, r.offset, &bad));
        Ok(Ok(()))
    }

    /// Receives the pages and stores them; `None`: the request is answered when its last pages are stored.
    fn receive_pages(
        &mut self,
        file: &Arc<OpenFile>,
        stream: StreamId,
        offset: u64,
        wire_len: usize,
    ) -> Result<Option<Pages>, Stop> {
        let mut pages = Pages { judged: Judged::new(BadPages::MAX), refused: None };
        let believe = self.front.service.config().has(PlantedBug::StoreBadPages);
        let (service, session) = (Arc::clone(&self.front.service), Arc::clone(&self.session.open));
        let mut turn = service.transfers().of(&*session, self.number, Class::Record, file.in_turns(wire_len));
        let mut lead = lead_of(offset);
        let mut spare = None;
        let mut claimed = Vec::new();
        let (mut at, mut left) = (offset, wire_len);
        while left > 0 {
            turn.let_others();
            let mut buffer = spare.take().unwrap_or_else(|| service.buffers().take_for_write(lead + left));
            let room = (left / (PAGE_SIZE + CRC_BYTES) + 2).min(buffer.len() / PAGE_SIZE);
            claimed.clear();
            claimed.reserve(room);
            let mut sums = Vec::with_capacity(room);
            let mut end = lead;
            // Fill the buffer in portions.
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
            let n = end - lead;
            if n == 0 {
                self.input.skip(left)?;
                let empty = Error::new(ErrorCode::Invalid, "The last page of the pgwrite request has no bytes");
                let result = self.wait_behind(&mut turn);
                pages.refused = pages.refused.or(result.err()).or(Some(empty));
                return Ok(Some(pages));
            }
            let mut part = WritePart::new(file, at, buffer, lead..end, sums);
            at = at.saturating_add(n as u64);
            lead = 0;
            // The earlier data must be stored first. Otherwise it would fill a range that a bad page leaves missing.
            let result = self.wait_behind(&mut turn);
            pages.refused = pages.refused.or(result.err());
            if pages.refused.is_none() && !believe {
                pages.refused = part.judge(&claimed, &mut pages.judged).err();
            }
            if let Some(request_error) = &pages.refused {
                part.refuse(request_error);
            } else if n < BEHIND_MIN || pages.judged.too_many() {
                turn.take(|| n as u64);
                pages.refused = part.store().err();
                spare = Some(part.into_buffer());
            } else {
                turn.end();
                let answer = if left == 0 {
                    let reply = self.hand_on(stream)?;
                    Some(WhenStored { file: Arc::clone(file), reply, offset, bad: bad_pages(&pages.judged.bad) })
                } else {
                    None
                };
                let last = answer.is_some();
                self.behind.store(&service, &session, self.number, part, answer);
                if last {
                    return Ok(None);
                }
            }
        }
        let result = self.wait_behind(&mut turn);
        pages.refused = pages.refused.or(result.err());
        Ok(Some(pages))
    }

    /// kXR_writev: a list of ranges, then their data.
    pub(crate) fn writev(&mut self, stream: StreamId, r: &Writev) -> Result<Result<(), RequestError>, Stop> {
        // Check all ranges before the first byte is written.
        let found: Vec<_> = r.segments.iter().map(|segment| self.writable_file(segment.handle)).collect();
        let result = found.iter().find_map(|file| file.as_ref().err().cloned()).map_or(Ok(()), Err);
        let mut result = result.and_then(|()| self.must_take_unsigned("writev"));
        let mut files: Vec<Arc<OpenFile>> = Vec::new();
        for (segment, file) in r.segments.iter().zip(found) {
            match (&result, file) {
                (Ok(()), Ok(file)) => {
                    result = match self.write_range(&file, segment.offset, segment.len, None)? {
                        Stored::Now(result) => result,
                        Stored::Later => Ok(()),
                    };
                    if !files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                        files.push(file);
                    }
                }
                (Err(error), Ok(file)) => {
                    // Refuse this range together with the rest of the request.
                    file.refused(segment.offset, u64::from(segment.len), error);
                    self.skip(u64::from(segment.len))?;
                }
                (_, Err(_)) => self.skip(u64::from(segment.len))?,
            }
        }
        if result.is_ok() && r.options.has(WritevOptions::SYNC) {
            self.out.leave()?;
            result = files.iter().try_for_each(|file| file.sync());
            self.out.back();
        }
        Ok(result.map_err(RequestError::from).and_then(|()| self.ok(stream, |_| ())))
    }

    /// kXR_sync: when it is answered, all acknowledged data of the handle is on the disk.
    #[inline(never)] // see `dispatch`
    pub(crate) fn sync(&mut self, stream: StreamId, r: &Sync) -> Result<Result<(), RequestError>, Stop> {
        let file = match self.file(r.handle) {
            Ok(file) => file,
            Err(request_error) => return Ok(Err(request_error)),
        };
        if file.is_fetched() {
            let reply = self.hand_on(stream)?;
            self.front.service.sync_copy(&file, COPY_SECONDS, reply);
            return Ok(Ok(()));
        }
        self.out.leave()?;
        let result = file.sync();
        self.out.back();
        Ok(result.map_err(RequestError::from).and_then(|()| self.ok(stream, |_| ())))
    }

    /// The open file of `handle`, if the handle can change it.
    pub(super) fn writable(&self, handle: FileHandle) -> Result<Arc<OpenFile>, RequestError> {
        Ok(self.writable_file(handle)?)
    }

    fn writable_file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Error> {
        let file = self.front.service.file(&self.session.open, from_wire::handle(handle))?;
        file.must_be_writable()?;
        Ok(file)
    }
}

/// Receives checksums and pages into separate buffers, with one system call and without a copy.
fn receive_units(
    input: &mut Input,
    turn: &mut TransferSlot<'_>,
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

fn too_many_bad(file: &OpenFile) -> RequestError {
    let text = format!("Cannot write {}: too many checksum errors in the pages that arrived", file.path);
    RequestError::new(ErrorNumber::TOO_MANY_ERRORS, text)
}

/// The answer to a pgwrite after its last pages are stored.
struct WhenStored {
    file: Arc<OpenFile>,
    reply: Reply,
    offset: u64,
    bad: BadPages,
}

impl Answer<()> for WhenStored {
    fn give(self, outcome: Result<(), Error>) {
        let Self { file, reply, offset, bad } = self;
        let missing = file.missing_ranges();
        match outcome {
            Err(error) => reply.refuse(&error.into()),
            Ok(()) if missing > BAD_PAGES_MAX => reply.refuse(&too_many_bad(&file)),
            Ok(()) => reply.frame(|out, stream| reply::pgwrite(out, stream, offset, &bad)),
        }
    }
}

/// The bad pages in the form of the protocol.
fn bad_pages(bad: &[(u64, usize)]) -> BadPages {
    let mut pages = BadPages::default();
    for (offset, len) in bad {
        // It has room for all judged pages.
        let _ = pages.add(*offset, *len);
    }
    pages
}

/// Checksums with their pages, in the form of a pgwrite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Units {
    count: usize,
    /// Bytes of the pages, without and with the checksums.
    data: usize,
    wire: usize,
}

impl Units {
    /// The units of the next `left` bytes of a request that fit into the buffer between `at` and `stop`. Each page is
    /// counted with its whole room. Zero data bytes at the end mean a checksum without a page.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_end_at_page_boundaries_and_within_the_buffer() {
        let unit = PAGE_SIZE + CRC_BYTES;
        let units = |count, data| Units { count, data, wire: data + count * CRC_BYTES };
        assert_eq!(Units::that_fit(3 * unit, 0, 2 * PAGE_SIZE), units(2, 2 * PAGE_SIZE));
        assert_eq!(Units::that_fit(2 * unit + 10, 0, 8 * PAGE_SIZE), units(3, 2 * PAGE_SIZE + 6));
        assert_eq!(Units::that_fit(2 * unit, 100, 4 * PAGE_SIZE), units(3, 2 * PAGE_SIZE - CRC_BYTES));
        assert_eq!(Units::that_fit(unit + CRC_BYTES, 0, 8 * PAGE_SIZE), units(1, PAGE_SIZE));
        assert_eq!(Units::that_fit(CRC_BYTES, PAGE_SIZE, 8 * PAGE_SIZE), units(0, 0));
        assert_eq!(Units::that_fit(unit, 4096, 8191), units(0, 0));
    }
}
