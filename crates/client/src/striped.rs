//! A striped file, read and written at the servers of its units directly, all at the same time.
//!
//! The cluster's manager is asked for each unit as for a file, by the file's path and the unit's number, so a unit whose server is gone is
//! opened again at another one as any file is. What was written of the file becomes the file when all units are closed and the manager, which
//! has looked at them, says so.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use types::direct::UnitAt;
use types::striping::{
    SUMS_KEY, StripedOpenWrite, UNIT_KEY, UNIT_OF_KEY, UNIT_SUMS_KEY, UNIT_WRITER_KEY, show_sums, show_unit_sums,
    show_writer,
};
use types::{Crc32c, ObjectId, Run, Stripe, Timestamp};
use wire::request::{OpenOptions, QueryKind};

use crate::units_writer::UnitsWriter;
use crate::written::{SumsOfWritten, WrittenSums};
use crate::{Chunk, Client, ClientError, Endpoint, Reader, RemoteFile, Settings, Url, Writer};

/// How often a unit is opened again for one request whose connection was lost, beyond what its reader or writer does by itself.
pub(crate) const AGAIN_MAX: u32 = 3;

/// The word of an open that goes on with what was interrupted.
const RESUMED: &str = "weir.resume=1";

/// A striped file, as whoever has sent us there says.
#[derive(Clone, Debug)]
pub struct StripedAt {
    /// The file, at the manager.
    pub url: Url,
    /// How it is dealt out.
    pub stripe: Stripe,
}

impl StripedAt {
    fn unit(&self, unit: u8, of: &str) -> Url {
        let mut url = self.url.clone();
        url.add_words(&format!("{UNIT_KEY}={unit}&{of}"));
        url
    }

    fn of_reader(&self, unit: u8, body: ObjectId) -> Url {
        self.unit(unit, &format!("{UNIT_OF_KEY}={:x}", body.0))
    }

    /// Opens a unit of `body` for reading: where `places` says that it is, or as the manager says.
    pub(crate) fn open_to_read(
        &self,
        unit: u8,
        body: ObjectId,
        places: &[UnitAt],
        settings: &Settings,
    ) -> Result<RemoteFile, ClientError> {
        let url = self.of_reader(unit, body);
        let led_to = places.get(usize::from(unit)).map(|place| {
            let server = Endpoint { host: place.host.trim_matches(['[', ']']).to_owned(), port: place.port };
            let mut to = Url { server, ..url.clone() };
            to.add_words(&place.words());
            to
        });
        Client::new(settings.clone()).open_led(&url, led_to, OpenOptions::READ, 0)
    }

    fn of_writer(&self, unit: u8, writing: StripedOpenWrite) -> Url {
        self.unit(unit, &format!("{UNIT_WRITER_KEY}={}", show_writer(writing)))
    }

    fn numbers(&self) -> std::ops::Range<u8> {
        0..self.stripe.width()
    }

    /// Where bytes of the range lie: of each unit that has some, where in it, and how many. They are side by side there.
    fn spans(&self, offset: u64, len: usize) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for run in self.stripe.runs(offset, len as u64) {
            match spans.iter_mut().find(|span| span.unit == run.unit) {
                Some(span) => span.runs.push(run),
                None => spans.push(Span { unit: run.unit, offset: run.in_unit, runs: vec![run] }),
            }
        }
        // Whoever locks several units does it in one order.
        spans.sort_by_key(|span| span.unit);
        spans
    }
}

/// Neighbouring bytes of a unit.
struct Span {
    unit: u8,
    offset: u64,
    runs: Vec<Run>,
}

impl Span {
    fn len(&self) -> usize {
        self.runs.iter().map(|run| usize::try_from(run.len).unwrap_or(usize::MAX)).sum()
    }

    /// Each run: where in a buffer of the range that begins at `offset`, and where in a buffer of this span.
    fn places(&self, offset: u64) -> impl Iterator<Item = (usize, usize, usize)> {
        self.runs.iter().map(move |run| {
            let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            (number(run.in_file - offset), number(run.in_unit - self.offset), number(run.len))
        })
    }
}

/// Does `each` for all units at the same time.
pub(crate) fn at_once<T: Send>(
    numbers: std::ops::Range<u8>,
    each: impl Fn(u8) -> Result<T, ClientError> + Sync,
) -> Result<Vec<T>, ClientError> {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = numbers
            .map(|number| {
                let thread = std::thread::Builder::new().name("unit".to_owned());
                // Where no thread is to be had, one after the other takes longer, and is all the same.
                thread.spawn_scoped(scope, move || each(number)).map_err(|_| each(number))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or(Err(ClientError::Stopped)),
            Err(done) => done,
        });
        joined.collect()
    })
}

/// A striped file that is read.
#[derive(Debug)]
pub struct StripedReader {
    at: StripedAt,
    body: ObjectId,
    settings: Settings,
    units: Vec<Mutex<ReadUnit>>,
}

#[derive(Debug)]
struct ReadUnit {
    /// `None`: something went wrong with it; it is opened again when it is needed.
    reader: Option<Reader<Vec<u8>>>,
}

impl StripedReader {
    /// Opens all units of the content `body`, the first ones at `places` if that leads to them.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn open(at: StripedAt, body: ObjectId, places: &[UnitAt], settings: &Settings) -> Result<Self, ClientError> {
        let open = |unit| Ok(Reader::growing(at.open_to_read(unit, body, places, settings)?));
        let readers = at_once(at.numbers(), open)?;
        let units = readers.into_iter().map(|reader| Mutex::new(ReadUnit { reader: Some(reader) })).collect();
        Ok(Self { at, body, settings: settings.clone(), units })
    }

    fn reader<'a>(
        &self,
        unit: u8,
        guard: &'a mut MutexGuard<'_, ReadUnit>,
    ) -> Result<&'a mut Reader<Vec<u8>>, ClientError> {
        let reader = match guard.reader.take() {
            Some(reader) => reader,
            None => Reader::growing(self.at.open_to_read(unit, self.body, &[], &self.settings)?),
        };
        Ok(guard.reader.insert(reader))
    }

    /// Reads; fewer bytes than asked for where the file ends, or a unit has no more yet.
    ///
    /// # Errors
    /// Of a unit's server, or of the way there.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, ClientError> {
        let spans = self.at.spans(offset, into.len());
        let mut guards: Vec<_> = spans.iter().map(|span| self.units[usize::from(span.unit)].lock()).collect();
        let mut result = Ok(());
        for (span, guard) in spans.iter().zip(&mut guards) {
            let asked = self
                .reader(span.unit, guard)
                .and_then(|reader| reader.ask(span.offset, span.len(), vec![0; span.len()]));
            result = result.and(asked);
        }
        let mut got = into.len();
        for (span, guard) in spans.iter().zip(&mut guards) {
            // What is under way must not be taken for the answer to another question.
            let Some(mut reader) = guard.reader.take() else { continue };
            if result.is_err() && reader.under_way() == 0 {
                guard.reader = Some(reader);
                continue;
            }
            match reader.wait() {
                Ok(Some(Chunk { len, buffer, .. })) => {
                    for (at, from, run) in span.places(offset) {
                        let have = run.min(len.saturating_sub(from));
                        into[at..at + have].copy_from_slice(&buffer[from..from + have]);
                        if have < run {
                            got = got.min(at + have);
                        }
                    }
                    guard.reader = Some(reader);
                }
                Ok(None) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.map(|()| got)
    }

    /// How many bytes each unit has now, as its server says.
    ///
    /// # Errors
    /// Of a unit's server, or of the way there.
    pub fn lens(&self) -> Result<Vec<u64>, ClientError> {
        self.at.numbers().map(|unit| self.len_of(unit)).collect()
    }

    fn len_of(&self, unit: u8) -> Result<u64, ClientError> {
        let mut guard = self.units[usize::from(unit)].lock();
        let reader = self.reader(unit, &mut guard)?;
        let Some(file) = reader.file_mut() else { return Ok(0) };
        let len = again(file, RemoteFile::len_now);
        if len.is_err() {
            guard.reader = None;
        }
        len
    }
}

/// A striped file that is written.
#[derive(Debug)]
pub struct StripedWriter {
    pub(crate) at: StripedAt,
    pub(crate) of: StripedOpenWrite,
    /// How long the file is to be, as far as it was announced: its units close with no gaps then.
    pub(crate) expected_len: Option<u64>,
    pub(crate) settings: Settings,
    pub(crate) units: Vec<Mutex<WriteUnit>>,
    /// How many bytes each has: whoever asks does not wait for those who write.
    lens: Vec<AtomicU64>,
    /// What is there of it is not known any more.
    is_spoiled: Mutex<bool>,
    sums: Mutex<SumsOfWritten>,
    /// Nothing of it was there when it was opened.
    pub(crate) is_new: bool,
}

#[derive(Debug)]
pub(crate) struct WriteUnit {
    /// `None`: something went wrong with it, or it is closed; it is opened again when it is needed.
    pub(crate) writer: Option<Writer<Vec<u8>>>,
}

impl StripedWriter {
    /// Opens all units of the file that `of` writes; if it `goes_on` with an interrupted one, also those that have ended. Whoever wrote them before
    /// can do so no longer.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn open(
        at: StripedAt,
        (of, goes_on): (StripedOpenWrite, bool),
        expected_len: Option<u64>,
        settings: &Settings,
    ) -> Result<Self, ClientError> {
        let mut at = at;
        at.url.opaque = None;
        let open = |unit| {
            let expected = expected_len.map(|len| at.stripe.unit_len(unit, len));
            open_writer(&at, unit, (of, goes_on), expected, settings).map(one_by_one)
        };
        let unit = |writer: Writer<Vec<u8>>| Mutex::new(WriteUnit { writer: Some(writer) });
        let writers = at_once(at.numbers(), open)?;
        // Who goes on with something does not know what that is.
        let is_new = writers.iter().all(|writer| writer.file().stat().size == 0);
        let lens = writers.iter().map(|writer| AtomicU64::new(writer.file().stat().size)).collect();
        let units = writers.into_iter().map(unit).collect();
        let sums = Mutex::new(SumsOfWritten::new(is_new));
        let is_spoiled = Mutex::new(false);
        Ok(Self { at, of, expected_len, settings: settings.clone(), units, lens, is_spoiled, sums, is_new })
    }

    fn writer<'a>(
        &self,
        unit: u8,
        guard: &'a mut MutexGuard<'_, WriteUnit>,
    ) -> Result<&'a mut Writer<Vec<u8>>, ClientError> {
        let writer = match guard.writer.take() {
            Some(writer) => writer,
            None => {
                let expected = self.expected_len.map(|len| self.at.stripe.unit_len(unit, len));
                let writer = one_by_one(open_writer(&self.at, unit, (self.of, false), expected, &self.settings)?);
                self.lens[usize::from(unit)].fetch_max(writer.file().stat().size, Ordering::Relaxed);
                writer
            }
        };
        Ok(guard.writer.insert(writer))
    }

    /// Writes; all of it is with the units' servers when this returns.
    ///
    /// # Errors
    /// Of a unit's server, or of the way there. After one nobody knows how much is written.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        let spans = self.at.spans(offset, data.len());
        let mut guards: Vec<_> = spans.iter().map(|span| self.units[usize::from(span.unit)].lock()).collect();
        let mut result = Ok(());
        for (span, guard) in spans.iter().zip(&mut guards) {
            let mut buffer = Vec::with_capacity(span.len());
            for (at, _, run) in span.places(offset) {
                buffer.extend_from_slice(&data[at..at + run]);
            }
            let chunk = Chunk { offset: span.offset, len: buffer.len(), buffer };
            let put = self.writer(span.unit, guard).and_then(|writer| writer.put(chunk)).map(drop);
            if put.is_err() {
                guard.writer = None;
            }
            result = result.and(put);
        }
        for (span, guard) in spans.iter().zip(&mut guards) {
            let Some(writer) = &mut guard.writer else { continue };
            match all_answered(writer) {
                Ok(()) => {
                    let end = span.offset + span.len() as u64;
                    self.lens[usize::from(span.unit)].fetch_max(end, Ordering::Relaxed);
                }
                Err(error) => {
                    guard.writer = None;
                    result = result.and(Err(error));
                }
            }
        }
        // Before somebody else can write to the same places.
        match &result {
            Ok(()) => self.sums.lock().wrote(offset, data),
            Err(_) => self.sums.lock().forget(),
        }
        result
    }

    /// Reads what was written; fewer bytes than asked for where the file ends.
    ///
    /// # Errors
    /// Of a unit's server, or of the way there.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, ClientError> {
        let end = self.len();
        let wanted = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(into.len());
        let into = &mut into[..wanted];
        for span in self.at.spans(offset, wanted) {
            let mut guard = self.units[usize::from(span.unit)].lock();
            let mut buffer = vec![0; span.len()];
            let writer = self.writer(span.unit, &mut guard)?;
            let Some(file) = writer.file_mut() else { continue };
            // Where it has less, there is a gap of the file, which reads as zeros.
            again(file, |file| file.read_at(span.offset, &mut buffer))?;
            for (at, from, run) in span.places(offset) {
                into[at..at + run].copy_from_slice(&buffer[from..from + run]);
            }
        }
        Ok(wanted)
    }

    /// Where the last byte ends that was written, or to which it was cut or extended.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
    pub fn len(&self) -> u64 {
        self.at.stripe.end_of(&self.lens())
    }

    pub(crate) fn lens(&self) -> Vec<u64> {
        self.lens.iter().map(|len| len.load(Ordering::Relaxed)).collect()
    }

    /// Cuts or extends.
    ///
    /// # Errors
    /// Of a unit's server, or of the way there. After one it cannot become a file any more: some units may be cut, and others not.
    pub fn truncate(&self, len: u64) -> Result<(), ClientError> {
        let mut is_spoiled = self.is_spoiled.lock();
        *is_spoiled = true;
        self.sums.lock().forget();
        at_once(self.at.numbers(), |unit| {
            let mut guard = self.units[usize::from(unit)].lock();
            self.set_len(unit, &mut guard, self.at.stripe.unit_len(unit, len))
        })?;
        *is_spoiled = false;
        Ok(())
    }

    fn set_len(&self, unit: u8, guard: &mut MutexGuard<'_, WriteUnit>, len: u64) -> Result<(), ClientError> {
        let writer = self.writer(unit, guard)?;
        if let Some(file) = writer.file_mut() {
            again(file, |file| file.truncate(len))?;
        }
        self.lens[usize::from(unit)].store(len, Ordering::Relaxed);
        Ok(())
    }

    /// All that was acknowledged is durable when this returns.
    ///
    /// # Errors
    /// It may be lost.
    pub fn sync(&self) -> Result<(), ClientError> {
        let sync = |unit| {
            let mut guard = self.units[usize::from(unit)].lock();
            let Some(file) = self.writer(unit, &mut guard)?.file_mut() else { return Ok(()) };
            again(file, RemoteFile::sync)
        };
        at_once(self.at.numbers(), sync).map(drop)
    }

    /// How many bytes there are from the beginning on without a gap.
    #[must_use]
    pub fn whole_prefix(&self) -> u64 {
        self.at.stripe.whole_prefix(&self.lens())
    }

    /// Gives each unit a thread that writes it; `window` buffers are under way at most.
    #[must_use]
    pub fn into_parallel<B: Deref<Target = [u8]> + Send + Sync + 'static>(self, window: usize) -> UnitsWriter<B> {
        UnitsWriter::new(self, window)
    }

    /// All is written: closes the units, and has the manager make a file of them. It is complete, or it is not: the manager looks at the units.
    ///
    /// # Errors
    /// It is not, or nobody knows.
    pub fn complete(&self, mtime: Option<Timestamp>) -> Result<(), ClientError> {
        if *self.is_spoiled.lock() {
            let what = format!("to close {}: cutting it has failed before", self.at.url);
            return Err(ClientError::Unexpected { server: self.at.url.server.clone(), what });
        }
        let len = self.len();
        at_once(self.at.numbers(), |unit| self.close(unit, self.at.stripe.unit_len(unit, len)))?;
        let sums = self.sums.lock().whole(len);
        say_complete(&self.at, self.of, &self.settings, &Said { len, sums, unit_sums: None, mtime })
    }

    /// Closes a unit of `len` bytes. Where it cannot be told whether it is closed, the manager can.
    fn close(&self, unit: u8, len: u64) -> Result<(), ClientError> {
        let mut guard = self.units[usize::from(unit)].lock();
        let mut tries = 0;
        loop {
            match self.writer(unit, &mut guard).map(drop) {
                Ok(()) => {}
                // Its last close may have been done, and its answer lost.
                Err(_) if tries > 0 => return Ok(()),
                Err(error) => return Err(error),
            }
            // A gap at its end reads as zeros, as any other does.
            if self.lens[usize::from(unit)].load(Ordering::Relaxed) < len {
                self.set_len(unit, &mut guard, len)?;
            }
            let writer = guard.writer.take();
            let Some(writer) = writer else { return Ok(()) };
            match writer.finish() {
                Ok(_) => return Ok(()),
                Err(error) if error.is_connection() && tries < AGAIN_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// What whoever has written a file says of it.
pub(crate) struct Said {
    pub(crate) len: u64,
    pub(crate) sums: Option<WrittenSums>,
    pub(crate) unit_sums: Option<Vec<Crc32c>>,
    pub(crate) mtime: Option<Timestamp>,
}

/// The units are closed: has the manager make a file of them.
pub(crate) fn say_complete(
    at: &StripedAt,
    of: StripedOpenWrite,
    settings: &Settings,
    said: &Said,
) -> Result<(), ClientError> {
    let mut args = format!("{}?weir.op=complete&{UNIT_WRITER_KEY}={}", at.url.path, show_writer(of));
    if let Some(WrittenSums { adler32, crc32c }) = said.sums {
        args.push_str(&format!("&{SUMS_KEY}={}", show_sums(said.len, adler32, crc32c)));
    }
    if let Some(sums) = &said.unit_sums {
        args.push_str(&format!("&{UNIT_SUMS_KEY}={}", show_unit_sums(sums)));
    }
    if let Some(mtime) = said.mtime {
        args.push_str(&format!("&weir.mtime={}", mtime.0));
    }
    let mut client = Client::new(settings.clone());
    client.query(&at.url, "close", QueryKind::OpaqueFile, args.into_bytes()).map(drop)
}

pub(crate) fn open_writer(
    at: &StripedAt,
    unit: u8,
    (of, goes_on): (StripedOpenWrite, bool),
    expected_len: Option<u64>,
    settings: &Settings,
) -> Result<RemoteFile, ClientError> {
    let mut url = at.of_writer(unit, of);
    if let Some(len) = expected_len {
        url.add_words(&format!("oss.asize={len}"));
    }
    if goes_on {
        url.add_words(RESUMED);
    }
    let mut file = Client::new(settings.clone()).open(&url, OpenOptions::UPDATE, 0)?;
    if goes_on {
        // Where it ends from here on, something may be gone that was acknowledged.
        file.forget_word(RESUMED);
    }
    Ok(file)
}

/// As many as are sent at a time: one a request of ours.
fn one_by_one(file: RemoteFile) -> Writer<Vec<u8>> {
    Writer::new(file.with_window(usize::MAX))
}

fn all_answered<B: DerefMut<Target = [u8]>>(writer: &mut Writer<B>) -> Result<(), ClientError> {
    while writer.answered()?.is_some() {}
    Ok(())
}

/// Does `op`, and again where the connection was lost and could be made again.
pub(crate) fn again<T>(
    file: &mut RemoteFile,
    mut op: impl FnMut(&mut RemoteFile) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut tries = 0;
    loop {
        match op(file) {
            Err(error) if error.is_connection() && tries < AGAIN_MAX => {
                tries += 1;
                file.recover(error)?;
            }
            result => return result,
        }
    }
}
