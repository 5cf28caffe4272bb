//! Writes a striped file at the servers of its units, from buffers of the caller. Each unit has its own thread.
//!
//! Several units may share a buffer. The caller gets it back when all of them have acknowledged their parts. As
//! with any written file, a lost connection is restored, and unacknowledged parts are sent again.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use types::striping::StripedOpenWrite;
use types::{Crc32c, Timestamp};

use crate::striped::{AGAIN_MAX, StripedWriter, WriteSummary, WriteUnit, open_writer, say_complete, with_retries};
use crate::written::{SumsOfWritten, WrittenSums};
use crate::{Chunk, ClientError, Kind, RemoteFile, Sent, Settings, StripedAt, Writer};

/// The most requests of a unit under way. The number of buffers is the real bound.
const WINDOW: usize = 64;
/// How long a unit's thread waits for an answer before it looks for more to send.
const LOOK: Duration = Duration::from_millis(2);
/// How long the caller waits for units before it checks whether it must stop.
const TICK: Duration = Duration::from_millis(500);

/// A striped file that is open for writing, all units at the same time.
#[derive(Debug)]
pub struct UnitsWriter<B> {
    at: StripedAt,
    of: StripedOpenWrite,
    settings: Settings,
    units: Vec<Sender<Order<B>>>,
    events: Receiver<Event<B>>,
    window: usize,
    /// Buffers with an unacknowledged part.
    buffers: usize,
    /// Parts that the units have not acknowledged.
    under_way: usize,
    /// The checksums of the file.
    sums: SumsOfWritten,
    end: u64,
    /// An error occurred. Nothing more is written.
    failed: bool,
}

/// An order for the thread of a unit.
#[derive(Debug)]
enum Order<B> {
    Write(Part<B>),
    /// All is written. The unit must get this length in bytes.
    Close(u64),
}

/// A report from the thread of a unit.
#[derive(Debug)]
enum Event<B> {
    Written(Part<B>),
    /// Its CRC32C, if known.
    Closed(u8, Option<Crc32c>),
    Failed(ClientError),
}

/// A unit's part of a buffer.
#[derive(Debug)]
struct Part<B> {
    shared: Arc<Chunk<B>>,
    /// The start in the buffer.
    start: usize,
    len: usize,
    in_unit: u64,
    in_file: u64,
    /// The checksums of its bytes, after it was sent.
    sums: Option<WrittenSums>,
}

impl<B: Deref<Target = [u8]>> Deref for Part<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.shared.buffer[self.start..self.start + self.len]
    }
}

impl<B: Deref<Target = [u8]> + Send + Sync + 'static> UnitsWriter<B> {
    pub(crate) fn new(opened: StripedWriter, window: usize) -> Self {
        let (tell, events) = channel();
        let (end, lens) = (opened.len(), opened.lens());
        let StripedWriter { at, of, settings, units, is_new, expected_len, .. } = opened;
        let begin = |((number, unit), len): ((u8, parking_lot::Mutex<WriteUnit>), u64)| {
            let (orders, taken) = channel();
            let file = unit.into_inner().writer.and_then(Writer::into_file);
            let sums = SumsOfWritten::new(is_new);
            let expected_len = expected_len.map(|len| at.stripe.unit_len(number, len));
            let (at, settings, tell) = (at.clone(), settings.clone(), tell.clone());
            let thread = Unit { number, at, of, expected_len, settings, len, sums, tell };
            std::thread::spawn(move || thread.run(file, &taken));
            orders
        };
        let units = (0..).zip(units).zip(lens).map(begin).collect();
        let sums = SumsOfWritten::new(is_new);
        let window = window.max(1);
        Self { at, of, settings, units, events, window, buffers: 0, under_way: 0, sums, end, failed: false }
    }

    /// Returns how many buffers are under way at most.
    #[must_use]
    pub fn window(&self) -> usize {
        self.window
    }

    /// Sends a part of the file (at least a byte). Returns a part that all its units have acknowledged, if there is
    /// one. If the window is full, it waits for one.
    ///
    /// # Errors
    /// A unit's server refuses, or its connection fails and cannot be restored. Afterwards nothing more can be
    /// written.
    pub fn put(&mut self, chunk: Chunk<B>) -> Result<Sent<B>, ClientError> {
        let shared = Arc::new(chunk);
        let mut start = 0;
        for run in self.at.stripe.runs(shared.offset, shared.len as u64) {
            let len = usize::try_from(run.len).unwrap_or(usize::MAX);
            let (shared, in_unit, in_file) = (Arc::clone(&shared), run.in_unit, run.in_file);
            let part = Part { shared, start, len, in_unit, in_file, sums: None };
            start += len;
            self.under_way += 1;
            // A thread that has ended has reported why.
            let _ = self.units[usize::from(run.unit)].send(Order::Write(part));
        }
        self.end = self.end.max(shared.offset + shared.len as u64);
        drop(shared);
        self.buffers += 1;
        self.take(self.buffers >= self.window)
    }

    /// Waits until all units have acknowledged one more part of the file, and returns it. `None`: no part is under
    /// way.
    ///
    /// # Errors
    /// The same as those of [`UnitsWriter::put`].
    pub fn answered(&mut self) -> Result<Sent<B>, ClientError> {
        self.take(true)
    }

    fn take(&mut self, waits: bool) -> Result<Sent<B>, ClientError> {
        while self.under_way > 0 {
            let Some(event) = self.next_event(waits)? else { return Ok(None) };
            let Event::Written(part) = event else { continue };
            self.under_way -= 1;
            match part.sums {
                Some(sums) => self.sums.add(part.in_file, part.len as u64, sums),
                None => self.sums.forget(),
            }
            if let Some(chunk) = Arc::into_inner(part.shared) {
                self.buffers -= 1;
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    /// Returns the next report of a unit. `None`: there is none yet, and `waits` is false.
    fn next_event(&mut self, waits: bool) -> Result<Option<Event<B>>, ClientError> {
        loop {
            let event = match waits {
                true => self.events.recv_timeout(TICK),
                false => self.events.try_recv().map_err(|_| RecvTimeoutError::Timeout),
            };
            match event {
                Ok(Event::Failed(error)) => {
                    self.failed = true;
                    return Err(error);
                }
                Ok(event) => return Ok(Some(event)),
                Err(RecvTimeoutError::Timeout) if !waits => return Ok(None),
                Err(RecvTimeoutError::Timeout) if !self.failed => self.settings.stop.sleep(Duration::ZERO)?,
                Err(_) => return Err(ClientError::Stopped),
            }
        }
    }

    /// Returns the end of the last written byte.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
    pub fn len(&self) -> u64 {
        self.end
    }

    /// Waits for all answers, closes the units, and asks the manager to make the file of them, if they have the
    /// checksums of the sent bytes.
    ///
    /// # Errors
    /// The file is not complete, or the result is unknown.
    pub fn finish(mut self, mtime: Option<Timestamp>) -> Result<(), ClientError> {
        while self.answered()?.is_some() {}
        let len = self.end;
        for (number, unit) in (0..).zip(&self.units) {
            let _ = unit.send(Order::Close(self.at.stripe.unit_len(number, len)));
        }
        let mut unit_sums = vec![None; self.units.len()];
        let mut left = self.units.len();
        while left > 0 {
            if let Some(Event::Closed(unit, sum)) = self.next_event(true)? {
                unit_sums[usize::from(unit)] = sum;
                left -= 1;
            }
        }
        let unit_sums = unit_sums.into_iter().collect::<Option<Vec<Crc32c>>>();
        let summary = WriteSummary { len, sums: self.sums.whole(len), unit_sums, mtime, request: None };
        say_complete(&self.at, self.of, &self.settings, &summary)
    }
}

/// A unit as its thread sees it.
struct Unit<B> {
    number: u8,
    at: StripedAt,
    of: StripedOpenWrite,
    /// The unit's final length, if it was announced.
    expected_len: Option<u64>,
    settings: Settings,
    len: u64,
    sums: SumsOfWritten,
    tell: Sender<Event<B>>,
}

/// Reports that a unit's thread has ended unexpectedly, so that the caller does not wait for it.
struct Ending<B>(Option<Sender<Event<B>>>);

impl<B> Ending<B> {
    /// The thread reports its end itself.
    fn said(mut self) {
        self.0 = None;
    }
}

impl<B> Drop for Ending<B> {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            let _ = tell.send(Event::Failed(ClientError::Stopped));
        }
    }
}

impl<B: Deref<Target = [u8]>> Unit<B> {
    fn run(mut self, file: Option<RemoteFile>, orders: &Receiver<Order<B>>) {
        let ending = Ending(Some(self.tell.clone()));
        let ended = self.write(file, orders);
        let event = match ended {
            Ok(Some(sum)) => Event::Closed(self.number, sum),
            // The file was abandoned. Cutting the connection keeps the server from treating the unit as complete.
            Ok(None) => return ending.said(),
            Err(error) => Event::Failed(error),
        };
        let _ = self.tell.send(event);
        ending.said();
    }

    fn open(&self) -> Result<Writer<Part<B>>, ClientError> {
        let file = open_writer(&self.at, self.number, (self.of, false), self.expected_len, &self.settings)?;
        Ok(Writer::new(file.with_window(WINDOW)))
    }

    /// Carries out the orders. Returns the checksum of the unit when it is closed.
    fn write(
        &mut self,
        file: Option<RemoteFile>,
        orders: &Receiver<Order<B>>,
    ) -> Result<Option<Option<Crc32c>>, ClientError> {
        let mut writer = match file {
            Some(file) => Writer::new(file.with_window(WINDOW)),
            None => self.open()?,
        };
        let mut under_way = 0usize;
        loop {
            let order = match under_way {
                0 => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                _ => orders.try_recv().map_err(|error| match error {
                    std::sync::mpsc::TryRecvError::Empty => RecvTimeoutError::Timeout,
                    std::sync::mpsc::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                }),
            };
            match order {
                Ok(Order::Write(mut part)) => {
                    let sums = WrittenSums::of(&part);
                    part.sums = Some(sums);
                    self.sums.add(part.in_unit, part.len as u64, sums);
                    let (offset, len) = (part.in_unit, part.len);
                    self.len = self.len.max(offset + len as u64);
                    under_way += 1;
                    let sent = writer.put(Chunk { offset, len, buffer: part })?;
                    under_way -= self.report_acknowledged(sent);
                }
                Ok(Order::Close(len)) => {
                    while let Some(done) = writer.answered()? {
                        self.report_acknowledged(Some(done));
                    }
                    return self.close(writer, len).map(Some);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let sent = writer.answered_until(Instant::now() + LOOK)?;
                    under_way -= self.report_acknowledged(sent);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Reports the acknowledged parts. Returns their number.
    fn report_acknowledged(&self, sent: Sent<Part<B>>) -> usize {
        let Some(Chunk { buffer, .. }) = sent else { return 0 };
        let _ = self.tell.send(Event::Written(buffer));
        1
    }

    /// Closes the unit. If the result is unknown, the manager finds it out: it makes no file of a unit that is not
    /// closed.
    fn close(&mut self, writer: Writer<Part<B>>, len: u64) -> Result<Option<Crc32c>, ClientError> {
        let mut writer = writer;
        let mut tries = 0;
        loop {
            if self.len < len {
                // A gap at the end of a unit reads as zeros, like any other.
                if let Some(file) = writer.file_mut() {
                    with_retries(file, |file| file.truncate(len))?;
                }
                self.len = len;
                self.sums.forget();
            }
            match writer.finish() {
                Ok(_) => break,
                Err(error) if error.may_help_to_retry() && tries < AGAIN_MAX => tries += 1,
                Err(error) => return Err(error),
            }
            writer = match self.open() {
                Ok(writer) => writer,
                // The close may have succeeded although its answer was lost.
                Err(error) if error.kind() != Kind::Connection => break,
                Err(error) => return Err(error),
            };
        }
        Ok(self.sums.whole(len).map(|sums| sums.crc32c))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn the_unexpected_end_of_a_thread_is_reported() {
        let (tell, events) = channel::<Event<Vec<u8>>>();
        let guarded = tell.clone();
        let thread = std::thread::spawn(move || {
            let _ending = Ending(Some(guarded));
            std::panic::resume_unwind(Box::new("gone"));
        });
        assert!(thread.join().is_err());
        assert!(matches!(events.try_recv(), Ok(Event::Failed(ClientError::Stopped))));
        Ending(Some(tell)).said();
        assert!(events.try_recv().is_err(), "nothing more is said of one that has said how it ended");
    }
}
