//! Reading records while the journal is open.

use std::ops::ControlFlow;
use std::sync::Arc;

use disk::{Access, DiskFile, OpenOptions};
use types::Crc32c;

use crate::frame::{self, Decoded, HEADER_LEN};
use crate::state::Shared;
use crate::walk::{Expected, Window, walk};
use crate::{Damage, JournalError, Location, PAYLOAD_MAX, Seq, StreamId, VisitMany};

/// The part of a segment that a replay reads.
struct Part {
    number: u64,
    path: String,
    incarnation: u64,
    bytes: u64,
    first: u64,
    last: u64,
    end: u64,
}

/// Counts as a running replay until it is dropped.
struct Replaying<'a>(&'a Shared);

impl Drop for Replaying<'_> {
    fn drop(&mut self) {
        self.0.state.lock().replays -= 1;
        self.0.wanted.notify_all();
    }
}

impl Shared {
    pub(crate) fn read(&self, location: Location) -> Result<Vec<u8>, JournalError> {
        let len = usize::try_from(location.len).unwrap_or(usize::MAX);
        let not_there = |what| JournalError::NotThere { segment: location.segment, offset: location.offset, what };
        if len > PAYLOAD_MAX || location.offset < HEADER_LEN as u64 {
            return Err(not_there("no record can be there"));
        }
        let mut bytes = vec![0; HEADER_LEN + len];
        self.copy_out(location, location.offset - HEADER_LEN as u64, &mut bytes)?;
        let Decoded::Frame(header) = frame::decode(&bytes, true) else {
            return Err(not_there("the record's header does not check"));
        };
        if header.len != location.len || header.segment != frame::low_half(location.segment) {
            return Err(not_there("another record is there"));
        }
        bytes.drain(..HEADER_LEN);
        if Crc32c::of(&bytes) != header.payload_crc {
            return Err(not_there("the record does not match its checksum"));
        }
        Ok(bytes)
    }

    pub(crate) fn read_into(&self, location: Location, skip: u32, buf: &mut [u8]) -> Result<(), JournalError> {
        let fits = (u64::from(skip) + buf.len() as u64) <= u64::from(location.len);
        if !fits {
            return Err(JournalError::NotThere {
                segment: location.segment,
                offset: location.offset,
                what: "more bytes were asked for than the record has",
            });
        }
        self.copy_out(location, location.offset + u64::from(skip), buf)
    }

    /// Fills `buf` from a segment, or from memory if the bytes are not written yet.
    fn copy_out(&self, location: Location, offset: u64, buf: &mut [u8]) -> Result<(), JournalError> {
        let not_there = |what| JournalError::NotThere { segment: location.segment, offset: location.offset, what };
        let mut state = self.state.lock();
        let in_memory = |batch: &crate::batch::Batch| {
            batch.unwritten_from(location.segment, offset).and_then(|bytes| bytes.get(..buf.len())).map(<[u8]>::to_vec)
        };
        // Newest first: a record lies completely in one batch or in the file.
        let held = state
            .pending
            .iter()
            .rev()
            .find_map(&in_memory)
            .or_else(|| state.in_flight.iter().find_map(|batch| in_memory(batch)));
        if let Some(bytes) = held {
            drop(state);
            buf.copy_from_slice(&bytes);
            return Ok(());
        }
        let Some(index) = state.segments.iter().position(|s| s.number == location.segment) else {
            return Err(not_there("the segment is not there (any more)"));
        };
        if offset + buf.len() as u64 > state.segments[index].end {
            return Err(not_there("nothing was appended there yet"));
        }
        let reader = match &state.segments[index].reader {
            Some(reader) => Arc::clone(reader),
            None => {
                let reader = self.open_reader(&state.segments[index].path)?;
                state.segments[index].reader = Some(Arc::clone(&reader));
                reader
            }
        };
        drop(state);
        if reader.read_at(buf, offset)? != buf.len() {
            return Err(not_there("the file is too short"));
        }
        Ok(())
    }

    fn open_reader(&self, path: &str) -> Result<Arc<dyn DiskFile>, JournalError> {
        Ok(self.disk.open(path, OpenOptions { access: Access::Read, direct: false })?)
    }

    pub(crate) fn replay(
        &self,
        streams: &[StreamId],
        after: Seq,
        visit: &mut VisitMany<'_>,
    ) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        let written = state.written;
        let oldest = state.segments.front().map_or(1, |s| s.first);
        if after.0 + 1 < oldest {
            return Err(JournalError::Trimmed { after, oldest: Seq(oldest) });
        }
        let parts: Vec<Part> = state
            .segments
            .iter()
            .filter(|s| s.last >= s.first && s.last > after.0 && s.first <= written)
            .map(|s| Part {
                number: s.number,
                path: s.path.clone(),
                incarnation: s.incarnation,
                bytes: s.bytes,
                first: s.first,
                last: s.last.min(written),
                end: s.end,
            })
            .collect();
        state.replays += 1;
        drop(state);
        let _reading = Replaying(self);
        for part in parts {
            if self.replay_part(&part, streams, after.0, visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn replay_part(
        &self,
        part: &Part,
        streams: &[StreamId],
        after: u64,
        visit: &mut VisitMany<'_>,
    ) -> Result<ControlFlow<()>, JournalError> {
        let file = match self.open_reader(&part.path) {
            // Trimmed after the list was made.
            Err(JournalError::Disk(e)) if e.source.kind() == std::io::ErrorKind::NotFound => {
                let oldest = self.state.lock().segments.front().map_or(1, |s| s.first);
                return Err(JournalError::Trimmed { after: Seq(after), oldest: Seq(oldest) });
            }
            other => other?,
        };
        let expected = Expected {
            path: &part.path,
            segment: part.number,
            // Stop before bytes that another thread may be writing.
            segment_bytes: part.end.min(part.bytes),
            incarnation: part.incarnation,
            first: part.first,
            check_crc: self.config.checks_crc(),
            check_origin: self.config.checks_origin(),
        };
        let mut wants_more = ControlFlow::Continue(());
        let end = walk(&mut Window::new(file, part.end), expected, &mut |header, offset, payload| {
            let stream = StreamId(header.stream);
            if header.seq > after && streams.contains(&stream) {
                let location = Location { segment: part.number, offset, len: header.len };
                wants_more = visit(stream, Seq(header.seq), location, payload);
            }
            if header.seq >= part.last { ControlFlow::Break(()) } else { wants_more }
        })?;
        if wants_more.is_continue() && end.last < part.last {
            return Err(JournalError::Damaged(Box::new(Damage {
                segment: part.path.clone(),
                offset: end.offset,
                what: end.bad.unwrap_or_else(|| "zeros stand where a record should".to_owned()),
                first_lost: Seq(end.last + 1),
                last_known: Seq(part.last),
                remedy: "It was whole when the journal was opened: the disk or its cable may be failing.".to_owned(),
            })));
        }
        Ok(wants_more)
    }
}
