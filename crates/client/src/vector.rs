//! Reads many ranges of a file in few requests (`kXR_readv`), as analysis frameworks do.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use wire::request::{Readv, SEGMENTS_MAX, Segment};
use wire::{FileHandle, Request, Response, ResponseStatus, StreamId};

use crate::pace::{Pace, WaitLimit};
use crate::{ClientError, Incoming, RemoteFile, Url};

/// The most bytes of one segment. Stock servers take no more (their buffers of 2 MiB less the segment's header).
pub const SEGMENT_MAX: usize = (2 << 20) - SEGMENT_HEADER;
/// The header before the data of each segment: the request's 16 bytes again.
const SEGMENT_HEADER: usize = 16;
/// The most bytes of one answer, including headers. The protocol would allow 2 GiB, but such an answer takes too
/// long.
const ANSWER_MAX: usize = 256 << 20;

/// A requested part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its offset in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: usize,
}

impl Span {
    /// Returns the offset behind its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len as u64)
    }
}

/// The number of requests that a read took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RoundTrips {
    /// Requests.
    pub requests: u64,
    /// The number of requests that had to be waited for one after the other. Requests that are under way together
    /// count once.
    pub in_turn: u64,
}

impl RemoteFile {
    /// Reads all `spans`, one behind the other, into the front of `into`, which must be long enough. Each request
    /// has at most 1,024 segments of at most 2 MiB - 16 bytes; a longer span becomes several segments. Up to the
    /// settings' `window` requests are under way at a time. Every segment of an answer is compared with the
    /// request.
    ///
    /// # Errors
    /// The server refuses, for example because a span ends behind the end of the file. The connection fails and
    /// cannot be restored. [`ClientError::Unexpected`]: an answer has other segments than requested.
    /// [`ClientError::Shorter`]: `into` is too short, or a span ends behind the longest possible file.
    pub fn read_spans(&mut self, spans: &[Span], into: &mut [u8]) -> Result<RoundTrips, ClientError> {
        let into = place_of(spans, into, &self.url)?;
        self.begin_to_read(Parts::new(spans, into)).finish(self)
    }

    /// Sends the first requests for `parts`. Until the answers have come ([`VectorRead::finish`]), the file must not be
    /// used for anything else.
    pub(crate) fn begin_to_read<'a>(&mut self, parts: Parts<'a>) -> VectorRead<'a> {
        let requests = split(&parts.parts);
        let window = self.settings.window.max(1);
        let trips = RoundTrips { requests: requests.len() as u64, in_turn: requests.len().div_ceil(window) as u64 };
        let Parts { parts, rooms } = parts;
        let (requests, pace) = (requests.into(), Pace::new(Instant::now()));
        let mut read = VectorRead { parts, rooms, requests, under_way: Vec::new(), pace, window, trips, lost: None };
        if !read.is_done() {
            self.session.take_up(&format!("read {}", self.url), self.session.deadline());
            self.session.has_asked(false);
            read.lost = read.send_more(self).and_then(|()| self.session.flush()).err();
            self.session.deadline_mut().pause(Instant::now());
        }
        read
    }
}

/// Returns the front of `into`, where the bytes of all `spans` go.
pub(crate) fn place_of<'a>(spans: &[Span], into: &'a mut [u8], url: &Url) -> Result<&'a mut [u8], ClientError> {
    if let Some(span) = spans.iter().find(|span| span.offset.checked_add(span.len as u64).is_none()) {
        let what = format!("read {} bytes at {} of {url}", span.len, span.offset);
        return Err(ClientError::Shorter { what, end: u64::MAX - span.offset, expected: span.len as u64 });
    }
    let wanted: usize = spans.iter().fold(0, |sum, span| sum.saturating_add(span.len));
    let room = into.len();
    into.get_mut(..wanted).ok_or_else(|| {
        let what = format!("read {wanted} bytes of {url} into a buffer of {room}");
        ClientError::Shorter { what, end: room as u64, expected: wanted as u64 }
    })
}

/// A segment, and where its data go in the caller's memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    len: usize,
    /// The first of the places for its data. The other ones follow.
    room: usize,
}

impl Part {
    fn segment(&self, handle: FileHandle) -> Segment {
        Segment { handle, len: u32::try_from(self.len).unwrap_or(u32::MAX), offset: self.offset }
    }
}

/// The segments to read, and the places for their data, in the same order.
#[derive(Debug, Default)]
pub(crate) struct Parts<'a> {
    parts: Vec<Part>,
    rooms: Vec<&'a mut [u8]>,
}

impl<'a> Parts<'a> {
    /// The data of all `spans` go into `into`, one behind the other. It has room for them.
    fn new(spans: &[Span], into: &'a mut [u8]) -> Self {
        let (mut parts, mut left) = (Self::default(), into);
        for span in spans {
            let (room, later) = left.split_at_mut(span.len.min(left.len()));
            left = later;
            parts.add(span.offset, room, false);
        }
        parts
    }

    /// Adds the bytes from `offset` on, whose place is `room`. If they `follow` the ones that were added last, both can
    /// be in one segment.
    pub(crate) fn add(&mut self, offset: u64, room: &'a mut [u8], follow: bool) {
        let (mut at, mut left, mut follow) = (offset, room, follow);
        while !left.is_empty() {
            let free = match self.parts.last() {
                Some(last) if follow && last.offset.saturating_add(last.len as u64) == at => SEGMENT_MAX - last.len,
                _ => 0,
            };
            if free == 0 {
                self.parts.push(Part { offset: at, len: 0, room: self.rooms.len() });
                follow = true;
                continue;
            }
            let (room, later) = left.split_at_mut(free.min(left.len()));
            left = later;
            at = at.saturating_add(room.len() as u64);
            if let Some(last) = self.parts.last_mut() {
                last.len += room.len();
            }
            self.rooms.push(room);
        }
    }

    /// Whether nothing must be read.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The offset, length and number of places of each segment.
    #[cfg(test)]
    pub(crate) fn shape(&self) -> Vec<(u64, usize, usize)> {
        let ends = self.parts.iter().skip(1).map(|next| next.room).chain([self.rooms.len()]);
        self.parts.iter().zip(ends).map(|(part, end)| (part.offset, part.len, end - part.room)).collect()
    }

    /// Puts the bytes that `read` returns for an offset and a length to their places.
    #[cfg(test)]
    pub(crate) fn fill(mut self, read: impl Fn(u64, usize) -> Vec<u8>) {
        for ((offset, len, count), first) in self.shape().into_iter().zip(self.parts.iter().map(|part| part.room)) {
            let (data, mut done) = (read(offset, len), 0);
            for room in &mut self.rooms[first..first + count] {
                room.copy_from_slice(&data[done..done + room.len()]);
                done += room.len();
            }
            assert_eq!(done, len);
        }
    }
}

/// Divides the parts among requests.
fn split(parts: &[Part]) -> Vec<Range<usize>> {
    let mut requests = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (index, part) in parts.iter().enumerate() {
        let more = SEGMENT_HEADER + part.len;
        if index > begin && (index - begin == SEGMENTS_MAX || bytes + more > ANSWER_MAX) {
            requests.push(begin..index);
            (begin, bytes) = (index, 0);
        }
        bytes += more;
    }
    if begin < parts.len() {
        requests.push(begin..parts.len());
    }
    requests
}

/// The requests of one call.
pub(crate) struct VectorRead<'a> {
    parts: Vec<Part>,
    rooms: Vec<&'a mut [u8]>,
    /// Requests that are not sent yet.
    requests: VecDeque<Range<usize>>,
    under_way: Vec<PendingRead>,
    pace: Pace,
    /// How many requests may be under way.
    window: usize,
    trips: RoundTrips,
    /// Why the first requests could not be sent.
    lost: Option<ClientError>,
}

/// A request whose answer is not complete.
struct PendingRead {
    stream: StreamId,
    request: Range<usize>,
    /// The part whose header or data come next.
    part: usize,
    header: [u8; SEGMENT_HEADER],
    /// The bytes received of the header, then of the data.
    got: usize,
    /// The place that the next data go to, and how many bytes of it are there.
    room: usize,
    filled: usize,
    waits: WaitLimit,
}

impl PendingRead {
    fn new(request: Range<usize>) -> Self {
        let part = request.start;
        Self {
            stream: StreamId::default(),
            request,
            part,
            header: [0; SEGMENT_HEADER],
            got: 0,
            room: 0,
            filled: 0,
            waits: WaitLimit::default(),
        }
    }

    fn send(&mut self, file: &mut RemoteFile, parts: &[Part]) -> Result<(), ClientError> {
        (self.part, self.got) = (self.request.start, 0);
        let of = parts.get(self.request.clone()).unwrap_or_default();
        (self.room, self.filled) = (of.first().map_or(0, |part| part.room), 0);
        // The handle changes when the file is opened again.
        let segments = of.iter().map(|part| part.segment(file.handle)).collect();
        file.session.has_asked(true);
        self.stream = file.session.queue(&Request::Readv(Readv { path_id: 0, segments }))?;
        self.waits.sent();
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.part == self.request.end
    }
}

impl VectorRead<'_> {
    fn is_done(&self) -> bool {
        self.requests.is_empty() && self.under_way.is_empty()
    }

    /// Waits for all answers, and sends the other requests meanwhile.
    ///
    /// # Errors
    /// Those of [`RemoteFile::read_spans`]. Answers may still be on their way over the connection then.
    pub(crate) fn finish(mut self, file: &mut RemoteFile) -> Result<RoundTrips, ClientError> {
        let now = Instant::now();
        file.session.deadline_mut().resume(now);
        self.pace = Pace::new(now);
        if let Some(lost) = self.lost.take() {
            self.resend_all(file, lost)?;
        }
        while !self.is_done() {
            match self.step(file) {
                Ok(()) => {}
                Err(lost) => self.resend_all(file, lost)?,
            }
        }
        // For other ranges, a server's damaged replica may be usable.
        file.damaged.clear();
        Ok(self.trips)
    }

    /// Sends requests as far as the window allows.
    fn send_more(&mut self, file: &mut RemoteFile) -> Result<(), ClientError> {
        while self.under_way.len() < self.window
            && let Some(request) = self.requests.pop_front()
        {
            self.under_way.push(PendingRead::new(request));
            if let Some(last) = self.under_way.last_mut() {
                last.send(file, &self.parts)?;
            }
        }
        Ok(())
    }

    /// Sends requests as far as the window allows, and takes one answer, or a part of one.
    fn step(&mut self, file: &mut RemoteFile) -> Result<(), ClientError> {
        self.send_more(file)?;
        let now = Instant::now();
        for one in &mut self.under_way {
            if one.waits.is_due(now) {
                one.send(file, &self.parts)?;
            }
        }
        let due = self.under_way.iter().filter_map(|one| one.waits.until()).min();
        let answers = self.under_way.iter().any(|one| one.waits.until().is_none());
        if !file.session.ready_or_due(due, answers)? {
            return Ok(());
        }
        let came = self.receive(file)?;
        file.has_moved(came);
        if due.is_some() {
            // The client does not count the time that the server has asked for as slowness.
            self.pace = Pace::new(Instant::now());
            return Ok(());
        }
        file.session.keep_pace(&mut self.pace, came)
    }

    /// Sends all pending requests again, after `lost`.
    fn resend_all(&mut self, file: &mut RemoteFile, mut lost: ClientError) -> Result<(), ClientError> {
        loop {
            file.recover(lost)?;
            self.pace = Pace::new(Instant::now());
            let sent = self.under_way.iter_mut().try_for_each(|one| one.send(file, &self.parts));
            match sent.and_then(|()| file.session.flush()) {
                Ok(()) => return Ok(()),
                Err(error) => lost = error,
            }
        }
    }

    /// Takes one frame. Returns the number of data bytes in it.
    fn receive(&mut self, file: &mut RemoteFile) -> Result<usize, ClientError> {
        let incoming = file.session.incoming()?;
        let place = self.under_way.iter().position(|one| one.stream == incoming.stream);
        match (incoming.status, place) {
            (ResponseStatus::Ok | ResponseStatus::OkSoFar, Some(index)) => {
                let len = usize::try_from(incoming.len).unwrap_or(usize::MAX);
                let came = self.take_frame(file, index, len, Source::Connection)?;
                self.end_frame(file, index, incoming.status == ResponseStatus::Ok)?;
                Ok(came)
            }
            _ => self.take_other(file, incoming),
        }
    }

    fn take_other(&mut self, file: &mut RemoteFile, incoming: Incoming) -> Result<usize, ClientError> {
        let body = file.session.body(incoming.len)?;
        let Some((stream, response)) = file.session.understand(incoming, &body)? else { return Ok(0) };
        let Some(index) = self.under_way.iter().position(|one| one.stream == stream) else {
            return Err(unexpected(file, "an answer to a request that was not sent".to_owned()));
        };
        match response {
            Response::WaitResp { .. } => {
                file.session.deadline_mut().put_off(Instant::now());
                Ok(0)
            }
            Response::Wait { seconds, text } => {
                let what = format!("read {}", file.url);
                file.session.put_off(&mut self.under_way[index].waits, &what, seconds, &text)?;
                Ok(0)
            }
            // The answer to a deferred request.
            Response::Ok(data) | Response::OkSoFar(data) => {
                let came = self.take_frame(file, index, data.len(), Source::Memory(&data))?;
                self.end_frame(file, index, true)?;
                Ok(came)
            }
            other => {
                let error = file.session.refused(&format!("read {}", file.url), other);
                // A refusal is the answer, except if the server redirects, or another replica may be undamaged.
                // Then the request is sent again.
                if !error.is_connection() && !file.may_be_whole_elsewhere(&error) {
                    self.under_way.swap_remove(index);
                }
                Err(error)
            }
        }
    }

    /// Takes `len` bytes of an answer. Headers and data alternate, and may be cut anywhere.
    fn take_frame(
        &mut self,
        file: &mut RemoteFile,
        index: usize,
        len: usize,
        mut source: Source<'_>,
    ) -> Result<usize, ClientError> {
        let one = &mut self.under_way[index];
        let (mut left, mut came) = (len, 0);
        while left > 0 {
            let part = (one.part < one.request.end).then(|| self.parts.get(one.part)).flatten();
            let Some(part) = part else {
                return Err(unexpected(file, format!("{left} bytes more than were asked for")));
            };
            if one.got < SEGMENT_HEADER {
                let take = (SEGMENT_HEADER - one.got).min(left);
                source.read(file, &mut one.header[one.got..one.got + take])?;
                one.got += take;
                left -= take;
                let asked = part.segment(file.handle);
                if one.got == SEGMENT_HEADER && one.header != header(asked) {
                    return Err(unexpected(file, other_segment(&one.header, asked)));
                }
            } else {
                let Some(room) = self.rooms.get_mut(one.room).and_then(|room| room.get_mut(one.filled..)) else {
                    return Err(unexpected(file, "a segment that was not asked for".to_owned()));
                };
                let take = room.len().min(left);
                source.read(file, &mut room[..take])?;
                one.got += take;
                one.filled += take;
                if take == room.len() {
                    (one.room, one.filled) = (one.room + 1, 0);
                }
                left -= take;
                came += take;
            }
            if one.got == SEGMENT_HEADER + part.len {
                (one.part, one.got) = (one.part + 1, 0);
            }
        }
        Ok(came)
    }

    /// Checks that the last frame of an answer has completed it.
    fn end_frame(&mut self, file: &mut RemoteFile, index: usize, last: bool) -> Result<(), ClientError> {
        if last {
            file.session.has_moved();
            let one = self.under_way.swap_remove(index);
            if !one.is_complete() {
                let (got, asked) = (one.part - one.request.start, one.request.len());
                return Err(unexpected(file, format!("an answer of {got} segments where {asked} were asked for")));
            }
        }
        Ok(())
    }
}

/// Where the bytes of an answer come from.
enum Source<'a> {
    Connection,
    Memory(&'a [u8]),
}

impl Source<'_> {
    fn read(&mut self, file: &mut RemoteFile, into: &mut [u8]) -> Result<(), ClientError> {
        match self {
            Self::Connection => file.session.body_into(into),
            Self::Memory(data) => {
                let (now, later) = data.split_at(into.len().min(data.len()));
                into[..now.len()].copy_from_slice(now);
                *data = later;
                Ok(())
            }
        }
    }
}

fn header(segment: Segment) -> [u8; SEGMENT_HEADER] {
    wire::response::ReadvSegment(segment).to_bytes()
}

fn other_segment(found: &[u8; SEGMENT_HEADER], asked: Segment) -> String {
    let (len, offset) = (u64::from(asked.len), asked.offset);
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let (found_len, found_offset) = (number(&found[4..8]), number(&found[8..16]));
    format!("{found_len} bytes at {found_offset} where {len} bytes at {offset} were asked for")
}

fn unexpected(file: &RemoteFile, what: String) -> ClientError {
    ClientError::Unexpected { server: file.url.server.clone(), what: format!("read {}: {what}", file.url) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(spans: &[Span]) -> Vec<(u64, usize, usize)> {
        let mut into = vec![0; spans.iter().map(|span| span.len).sum()];
        Parts::new(spans, &mut into).shape()
    }

    fn requests(spans: &[Span]) -> Vec<Range<usize>> {
        let (mut parts, mut room) = (Vec::new(), 0);
        for span in spans {
            parts.push(Part { offset: span.offset, len: span.len, room });
            room += 1;
        }
        split(&parts)
    }

    #[test]
    fn long_spans_and_many_are_split() {
        let spans = [Span { offset: 10, len: SEGMENT_MAX + 1 }, Span { offset: 5, len: 0 }, Span { offset: 0, len: 7 }];
        let max = SEGMENT_MAX;
        assert_eq!(shape(&spans), [(10, max, 1), (10 + max as u64, 1, 1), (0, 7, 1)]);
        let many: Vec<Span> = (0..2500).map(|n| Span { offset: n * 10, len: 3 }).collect();
        assert_eq!(requests(&many), [0..1024, 1024..2048, 2048..2500]);
        let large: Vec<Span> = (0..200).map(|n| Span { offset: n, len: SEGMENT_MAX }).collect();
        assert_eq!(requests(&large), [0..128, 128..200]);
        assert!(requests(&[]).is_empty());
    }

    #[test]
    fn bytes_that_follow_others_share_a_segment_up_to_its_longest_length() {
        let mut into = vec![0; SEGMENT_MAX + 12];
        let (first, left) = into.split_at_mut(SEGMENT_MAX - 2);
        let (second, third) = left.split_at_mut(4);
        let mut parts = Parts::default();
        parts.add(100, first, false);
        parts.add(100 + SEGMENT_MAX as u64 - 2, second, true);
        // The same offset as the end of the last one, but of another span.
        parts.add(100 + SEGMENT_MAX as u64 + 2, third, false);
        let end = 100 + SEGMENT_MAX as u64;
        assert_eq!(parts.shape(), [(100, SEGMENT_MAX, 2), (end, 2, 1), (end + 2, 10, 1)]);
    }
}
