//! Writes a striped file at the servers of its units, each from a thread of its own, from buffers of the caller.
//!
//! A buffer is shared by the units that have something of it, and given back when all of them have answered for theirs. As of any file that is
//! written, a connection that is lost is made again, and what was not answered for is sent again.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use types::striping::StripedOpenWrite;
use types::{Crc32c, Timestamp};

use crate::striped::{AGAIN_MAX, Said, StripedWriter, WriteUnit, again, open_writer, say_complete};
use crate::written::{SumsOfWritten, WrittenSums};
use crate::{Chunk, ClientError, RemoteFile, Sent, Settings, StripedAt, Writer};

/// Requests of a unit under way at most: their buffers are what bounds them.
const WINDOW: usize = 64;
/// How long an answer is waited for before it is looked whether there is more to send.
const LOOK: Duration = Duration::from_millis(2);
/// How long the caller waits for units before it looks again whether it was told to stop.
const TICK: Duration = Duration::from_millis(500);

/// A striped file that is written, all its units at the same time.
#[derive(Debug)]
pub struct UnitsWriter<B> {
    at: StripedAt,
    of: StripedOpenWrite,
    settings: Settings,
    units: Vec<Sender<Order<B>>>,
    events: Receiver<Event<B>>,
    window: usize,
    /// Buffers of which a unit has not answered for its part.
    buffers: usize,
    /// Parts that the units have not answered for.
    under_way: usize,
    /// Of the file.
    sums: SumsOfWritten,
    end: u64,
    /// Something went wrong: nothing more is written.
    failed: bool,
}

/// For the thread of a unit.
#[derive(Debug)]
enum Order<B> {
    Write(Part<B>),
    /// All is written; the unit is to have so many bytes.
    Close(u64),
}

/// From the thread of a unit.
#[derive(Debug)]
enum Event<B> {
    Written(Part<B>),
    /// Its CRC32C, if that is known.
    Closed(u8, Option<Crc32c>),
    Failed(ClientError),
}

/// What one unit has of a buffer.
#[derive(Debug)]
struct Part<B> {
    shared: Arc<Chunk<B>>,
    /// Where in the buffer.
    start: usize,
    len: usize,
    in_unit: u64,
    in_file: u64,
    /// Of its bytes, when it has been sent.
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

    /// How many buffers are under way at most.
    #[must_use]
    pub fn window(&self) -> usize {
        self.window
    }

    /// Sends a part of the file (at least a byte). Gives back a part that all its units have answered for, if there is one by now; where as many as
    /// the window has are under way, one is waited for.
    ///
    /// # Errors
    /// Of a unit's server; of the connection, when it cannot be made again. After one nothing more can be written.
    pub fn put(&mut self, chunk: Chunk<B>) -> Result<Sent<B>, ClientError> {
        let shared = Arc::new(chunk);
        let mut start = 0;
        for run in self.at.stripe.runs(shared.offset, shared.len as u64) {
            let len = usize::try_from(run.len).unwrap_or(usize::MAX);
            let (shared, in_unit, in_file) = (Arc::clone(&shared), run.in_unit, run.in_file);
            let part = Part { shared, start, len, in_unit, in_file, sums: None };
            start += len;
            self.under_way += 1;
            // One that has ended has said why.
            let _ = self.units[usize::from(run.unit)].send(Order::Write(part));
        }
        self.end = self.end.max(shared.offset + shared.len as u64);
        drop(shared);
        self.buffers += 1;
        self.take(self.buffers >= self.window)
    }

    /// Waits until all units have answered for one part more of the file, and gives it back; `None`: nothing is under way.
    ///
    /// # Errors
    /// As [`UnitsWriter::put`].
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

    /// What a unit says next; `None`: nothing yet, and nobody wants to wait.
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

    /// Where the last byte ends that was written.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
    pub fn len(&self) -> u64 {
        self.end
    }

    /// Waits for all answers, closes the units, and has the manager make a file of them, if they are what was sent.
    ///
    /// # Errors
    /// It is no file, or nobody knows.
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
        let said = Said { len, sums: self.sums.whole(len), unit_sums, mtime };
        say_complete(&self.at, self.of, &self.settings, &said)
    }
}

/// A unit, as its thread has it.
struct Unit<B> {
    number: u8,
    at: StripedAt,
    of: StripedOpenWrite,
    /// Of the unit, as far as it was announced.
    expected_len: Option<u64>,
    settings: Settings,
    len: u64,
    sums: SumsOfWritten,
    tell: Sender<Event<B>>,
}

/// Says that a unit's thread has ended without a word, so that nobody waits for it.
struct Ending<B>(Option<Sender<Event<B>>>);

impl<B> Ending<B> {
    /// It has said, or says, how it ended.
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
            // The file was given up: its connection is cut, so that the server does not take the unit for complete.
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

    /// Writes what comes; the checksum of the unit when it is closed.
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
                    under_way -= self.told(sent);
                }
                Ok(Order::Close(len)) => {
                    while let Some(done) = writer.answered()? {
                        self.told(Some(done));
                    }
                    return self.close(writer, len).map(Some);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let sent = writer.answered_until(Instant::now() + LOOK)?;
                    under_way -= self.told(sent);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Says what was answered for; how many that are.
    fn told(&self, sent: Sent<Part<B>>) -> usize {
        let Some(Chunk { buffer, .. }) = sent else { return 0 };
        let _ = self.tell.send(Event::Written(buffer));
        1
    }

    /// Where it cannot be told whether it is closed, the manager can: it makes no file of a unit that is not.
    fn close(&mut self, writer: Writer<Part<B>>, len: u64) -> Result<Option<Crc32c>, ClientError> {
        let mut writer = writer;
        let mut tries = 0;
        loop {
            if self.len < len {
                // A gap at its end reads as zeros, as any other does.
                if let Some(file) = writer.file_mut() {
                    again(file, |file| file.truncate(len))?;
                }
                self.len = len;
                self.sums.forget();
            }
            match writer.finish() {
                Ok(_) => break,
                Err(error) if error.is_connection() && tries < AGAIN_MAX => tries += 1,
                Err(error) => return Err(error),
            }
            writer = match self.open() {
                Ok(writer) => writer,
                // Its close may have been done, and the answer lost.
                Err(error) if !error.is_connection() => break,
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
    fn a_thread_that_ends_without_a_word_is_heard_of() {
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
