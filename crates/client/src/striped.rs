//! Reads and writes a striped file directly at the servers of its units, all at the same time.
//!
//! The client asks the cluster's manager for each unit like for a file, with the file's path and the unit's number.
//! So if a unit's server is gone, the unit is opened at another one, like any file. The written units become the
//! file when all of them are closed and the manager has checked and confirmed them.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use types::direct::UnitAddress;
use types::striping::{
    SUMS_KEY, StripedOpenWrite, UNIT_KEY, UNIT_OF_KEY, UNIT_SUMS_KEY, UNIT_WRITER_KEY, show_sums, show_unit_sums,
    show_writer,
};
use types::{Crc32c, ObjectId, REQUEST_KEY, RequestNumber, Run, Stripe, Timestamp};
use wire::request::{OpenOptions, QueryKind};

use crate::units_writer::UnitsWriter;
use crate::written::{SumsOfWritten, WrittenSums};
use crate::{Chunk, Client, ClientError, Endpoint, Reader, RemoteFile, Settings, Url, Writer};

/// How often a unit is opened again for one request after lost connections, beyond the attempts of its reader or
/// writer.
pub(crate) const AGAIN_MAX: u32 = 3;

/// The word in an open that goes on with an interrupted file.
pub const RESUMED: &str = "weir.resume=1";

/// A striped file, as the redirect described it.
#[derive(Clone, Debug)]
pub struct StripedAt {
    /// The file's URL at the manager.
    pub url: Url,
    /// How its bytes are divided among the units.
    pub stripe: Stripe,
}

impl StripedAt {
    fn unit(&self, unit: u8, of: &str) -> Url {
        let mut url = self.url.clone();
        url.add_words(&format!("{UNIT_KEY}={unit}&{of}"));
        url
    }

    fn of_reader(&self, unit: u8, object: ObjectId) -> Url {
        self.unit(unit, &format!("{UNIT_OF_KEY}={:x}", object.0))
    }

    /// Opens a unit of `object` for reading, at its location in `places` or as the manager says.
    pub(crate) fn open_to_read(
        &self,
        unit: u8,
        object: ObjectId,
        places: &[UnitAddress],
        settings: &Settings,
    ) -> Result<RemoteFile, ClientError> {
        let url = self.of_reader(unit, object);
        let led_to = places.get(usize::from(unit)).map(|place| {
            let server = Endpoint { host: place.host.trim_matches(['[', ']']).to_owned(), port: place.port };
            let mut to = url.at(server);
            to.add_words(&place.words());
            to
        });
        Client::new(settings.clone()).open_led(&url, led_to, OpenOptions::READ, 0)
    }

    fn of_writer(&self, unit: u8, open_write: StripedOpenWrite) -> Url {
        self.unit(unit, &format!("{UNIT_WRITER_KEY}={}", show_writer(open_write)))
    }

    fn numbers(&self) -> std::ops::Range<u8> {
        0..self.stripe.width()
    }

    /// Returns the span of each unit that holds bytes of the range. The bytes of a span are adjacent in the unit.
    fn spans(&self, offset: u64, len: usize) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for run in self.stripe.runs(offset, len as u64) {
            match spans.iter_mut().find(|span| span.unit == run.unit) {
                Some(span) => span.runs.push(run),
                None => spans.push(Span { unit: run.unit, offset: run.in_unit, runs: vec![run] }),
            }
        }
        // All callers lock several units in the same order.
        spans.sort_by_key(|span| span.unit);
        spans
    }
}

/// Adjacent bytes of a unit.
struct Span {
    unit: u8,
    offset: u64,
    runs: Vec<Run>,
}

impl Span {
    fn len(&self) -> usize {
        self.runs.iter().map(|run| usize::try_from(run.len).unwrap_or(usize::MAX)).sum()
    }

    /// For each run of bytes: its offset in a buffer of the range that begins at `offset`, its offset in a buffer
    /// of this span, and its length.
    fn places(&self, offset: u64) -> impl Iterator<Item = (usize, usize, usize)> {
        self.runs.iter().map(move |run| {
            let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            (number(run.in_file - offset), number(run.in_unit - self.offset), number(run.len))
        })
    }
}

/// Runs `each` for all units at the same time.
pub(crate) fn at_once<T: Send>(
    numbers: std::ops::Range<u8>,
    each: impl Fn(u8) -> Result<T, ClientError> + Sync,
) -> Result<Vec<T>, ClientError> {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = numbers
            .map(|number| {
                let thread = std::thread::Builder::new().name("unit".to_owned());
                // If no thread can be started, the units are handled one after the other, with the same result.
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

/// A striped file that is open for reading.
#[derive(Debug)]
pub struct StripedReader {
    pub(crate) at: StripedAt,
    object: ObjectId,
    settings: Settings,
    pub(crate) units: Vec<Mutex<ReadUnit>>,
}

#[derive(Debug)]
pub(crate) struct ReadUnit {
    /// `None` before it is needed, and after an error; it is opened when needed.
    pub(crate) reader: Option<Reader<Vec<u8>>>,
}

impl StripedReader {
    /// Opens all units of `object`. The first ones are tried at `places`.
    ///
    /// # Errors
    /// A unit cannot be opened.
    pub fn open(
        at: StripedAt,
        object: ObjectId,
        places: &[UnitAddress],
        settings: &Settings,
    ) -> Result<Self, ClientError> {
        let width = at.stripe.width();
        Self::open_first(at, object, places, settings, width)
    }

    /// The same, but opens only the first `count` units now.
    pub(crate) fn open_first(
        at: StripedAt,
        object: ObjectId,
        places: &[UnitAddress],
        settings: &Settings,
        count: u8,
    ) -> Result<Self, ClientError> {
        let open = |unit| Ok(Reader::growing(at.open_to_read(unit, object, places, settings)?));
        let readers = at_once(0..count.min(at.stripe.width()), open)?;
        let readers = readers.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let units = at.numbers().zip(readers).map(|(_, reader)| Mutex::new(ReadUnit { reader })).collect();
        Ok(Self { at, object, settings: settings.clone(), units })
    }

    /// Returns the reader of a unit, and opens it if it is not open.
    pub(crate) fn reader<'a>(
        &self,
        unit: u8,
        guard: &'a mut MutexGuard<'_, ReadUnit>,
    ) -> Result<&'a mut Reader<Vec<u8>>, ClientError> {
        let reader = match guard.reader.take() {
            Some(reader) => reader,
            None => Reader::growing(self.at.open_to_read(unit, self.object, &[], &self.settings)?),
        };
        Ok(guard.reader.insert(reader))
    }

    /// Reads. Returns fewer bytes than requested if the file ends there, or a unit does not have more yet.
    ///
    /// # Errors
    /// A unit's server refuses, or its connection fails.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, ClientError> {
        let spans = self.at.spans(offset, into.len());
        let mut guards: Vec<_> = spans.iter().map(|span| self.units[usize::from(span.unit)].lock()).collect();
        let mut result = Ok(());
        for (span, guard) in spans.iter().zip(&mut guards) {
            let asked = self
                .reader(span.unit, guard)
                .and_then(|reader| reader.ask(span.offset, span.len(), vec![0; span.len()]));
            if asked.is_err() {
                result = asked;
                break;
            }
        }
        let mut got = into.len();
        for (span, guard) in spans.iter().zip(&mut guards) {
            // The answers to pending requests must not be taken for those to another read.
            let Some(mut reader) = guard.reader.take() else { continue };
            if result.is_err() {
                // Nobody needs the other answers, and each unit may take long to fail. What waits for one is opened again.
                if reader.under_way() == 0 {
                    guard.reader = Some(reader);
                }
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

    /// Asks for the present length of each unit, in bytes.
    ///
    /// # Errors
    /// A unit's server refuses, or its connection fails.
    pub fn lens(&self) -> Result<Vec<u64>, ClientError> {
        self.at.numbers().map(|unit| self.len_of(unit)).collect()
    }

    fn len_of(&self, unit: u8) -> Result<u64, ClientError> {
        let mut guard = self.units[usize::from(unit)].lock();
        let reader = self.reader(unit, &mut guard)?;
        let Some(file) = reader.file_mut() else { return Ok(0) };
        let len = with_retries(file, RemoteFile::len_now);
        if len.is_err() {
            guard.reader = None;
        }
        len
    }
}

/// A striped file that is open for writing.
#[derive(Debug)]
pub struct StripedWriter {
    pub(crate) at: StripedAt,
    pub(crate) of: StripedOpenWrite,
    /// The file's final length, if it was announced. Then its units close without gaps.
    pub(crate) expected_len: Option<u64>,
    pub(crate) settings: Settings,
    pub(crate) units: Vec<Mutex<WriteUnit>>,
    /// The length of each unit. Reading them does not wait for writers.
    lens: Vec<AtomicU64>,
    /// The contents of the file are no longer known.
    is_spoiled: Mutex<bool>,
    sums: Mutex<SumsOfWritten>,
    /// No unit had any bytes when the file was opened.
    pub(crate) is_new: bool,
}

#[derive(Debug)]
pub(crate) struct WriteUnit {
    /// `None` after an error or a close; it is opened again when needed.
    pub(crate) writer: Option<Writer<Vec<u8>>>,
}

impl StripedWriter {
    /// Opens all units of the file for the open write `of`. If it `goes_on` with an interrupted file, this includes
    /// units that were closed. An earlier writer of them can no longer write.
    ///
    /// # Errors
    /// A unit cannot be opened.
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
            open_writer(&at, unit, (of, goes_on), expected, settings).map(sequential_writer)
        };
        let unit = |writer: Writer<Vec<u8>>| Mutex::new(WriteUnit { writer: Some(writer) });
        let writers = at_once(at.numbers(), open)?;
        // A writer that continues a file does not know its present bytes.
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
                let writer =
                    sequential_writer(open_writer(&self.at, unit, (self.of, false), expected, &self.settings)?);
                self.lens[usize::from(unit)].fetch_max(writer.file().stat().size, Ordering::Relaxed);
                writer
            }
        };
        Ok(guard.writer.insert(writer))
    }

    /// Writes. The units' servers have acknowledged all bytes when this returns.
    ///
    /// # Errors
    /// A unit's server refuses, or its connection fails. Afterwards it is unknown how much is written.
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
        // This must happen before another thread can write to the same range.
        match &result {
            Ok(()) => self.sums.lock().wrote(offset, data),
            Err(_) => self.sums.lock().forget(),
        }
        result
    }

    /// Reads written bytes. Returns fewer bytes than requested at the end of the file.
    ///
    /// # Errors
    /// A unit's server refuses, or its connection fails.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, ClientError> {
        let end = self.len();
        let wanted = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(into.len());
        let into = &mut into[..wanted];
        for span in self.at.spans(offset, wanted) {
            let mut guard = self.units[usize::from(span.unit)].lock();
            let mut buffer = vec![0; span.len()];
            let writer = self.writer(span.unit, &mut guard)?;
            let Some(file) = writer.file_mut() else { continue };
            // If the unit is shorter, the file has a gap there, which reads as zeros.
            with_retries(file, |file| file.read_at(span.offset, &mut buffer))?;
            for (at, from, run) in span.places(offset) {
                into[at..at + run].copy_from_slice(&buffer[from..from + run]);
            }
        }
        Ok(wanted)
    }

    /// Returns the end of the file: that of the last written byte, or of the last truncation.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a file's length, not a collection's
    pub fn len(&self) -> u64 {
        self.at.stripe.end_of(&self.lens())
    }

    pub(crate) fn lens(&self) -> Vec<u64> {
        self.lens.iter().map(|len| len.load(Ordering::Relaxed)).collect()
    }

    /// Sets the length in bytes.
    ///
    /// # Errors
    /// A unit's server refuses, or its connection fails. Afterwards the file can no longer be completed, because
    /// only some units may have the new length.
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
            with_retries(file, |file| file.truncate(len))?;
        }
        self.lens[usize::from(unit)].store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Makes all acknowledged bytes durable.
    ///
    /// # Errors
    /// They may be lost.
    pub fn sync(&self) -> Result<(), ClientError> {
        let sync = |unit| {
            let mut guard = self.units[usize::from(unit)].lock();
            let Some(file) = self.writer(unit, &mut guard)?.file_mut() else { return Ok(()) };
            with_retries(file, RemoteFile::sync)
        };
        at_once(self.at.numbers(), sync).map(drop)
    }

    /// Returns the number of bytes before the first gap.
    #[must_use]
    pub fn whole_prefix(&self) -> u64 {
        self.at.stripe.whole_prefix(&self.lens())
    }

    /// Gives each unit its own thread. At most `window` buffers are under way.
    #[must_use]
    pub fn into_parallel<B: Deref<Target = [u8]> + Send + Sync + 'static>(self, window: usize) -> UnitsWriter<B> {
        UnitsWriter::new(self, window)
    }

    /// Closes the units, and asks the manager to make the file of them. The manager checks the units, and makes the
    /// file only if all of them are complete. A request with a number is done once, however often it is repeated.
    ///
    /// # Errors
    /// The file is not complete, or the result is unknown.
    pub fn complete(&self, mtime: Option<Timestamp>, request: Option<RequestNumber>) -> Result<(), ClientError> {
        if *self.is_spoiled.lock() {
            let what = format!("to close {}: cutting it has failed before", self.at.url);
            return Err(ClientError::Unexpected { server: self.at.url.server.clone(), what });
        }
        let len = self.len();
        at_once(self.at.numbers(), |unit| self.close(unit, self.at.stripe.unit_len(unit, len)))?;
        let sums = self.sums.lock().whole(len);
        say_complete(&self.at, self.of, &self.settings, &WriteSummary { len, sums, unit_sums: None, mtime, request })
    }

    /// Closes a unit of `len` bytes. If the result is unknown, the manager will find it out.
    fn close(&self, unit: u8, len: u64) -> Result<(), ClientError> {
        let mut guard = self.units[usize::from(unit)].lock();
        let mut tries = 0;
        loop {
            match self.writer(unit, &mut guard).map(drop) {
                Ok(()) => {}
                // The earlier close may have succeeded although its answer was lost.
                Err(_) if tries > 0 => return Ok(()),
                Err(error) => return Err(error),
            }
            // A gap at the end of a unit reads as zeros, like any other.
            if self.lens[usize::from(unit)].load(Ordering::Relaxed) < len {
                self.set_len(unit, &mut guard, len)?;
            }
            let writer = guard.writer.take();
            let Some(writer) = writer else { return Ok(()) };
            match writer.finish() {
                Ok(_) => return Ok(()),
                Err(error) if error.may_help_to_retry() && tries < AGAIN_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the writer of a file reports about it.
pub(crate) struct WriteSummary {
    pub(crate) len: u64,
    pub(crate) sums: Option<WrittenSums>,
    pub(crate) unit_sums: Option<Vec<Crc32c>>,
    pub(crate) mtime: Option<Timestamp>,
    /// The number of the close, if it has one.
    pub(crate) request: Option<RequestNumber>,
}

/// Asks the manager to make the file, after the units are closed.
pub(crate) fn say_complete(
    at: &StripedAt,
    of: StripedOpenWrite,
    settings: &Settings,
    summary: &WriteSummary,
) -> Result<(), ClientError> {
    let mut args = format!("{}?weir.op=complete&{UNIT_WRITER_KEY}={}", at.url.path, show_writer(of));
    if let Some(WrittenSums { adler32, crc32c }) = summary.sums {
        args.push_str(&format!("&{SUMS_KEY}={}", show_sums(summary.len, adler32, crc32c)));
    }
    if let Some(sums) = &summary.unit_sums {
        args.push_str(&format!("&{UNIT_SUMS_KEY}={}", show_unit_sums(sums)));
    }
    if let Some(mtime) = summary.mtime {
        args.push_str(&format!("&weir.mtime={}", mtime.0));
    }
    if let Some(request) = summary.request {
        args.push_str(&format!("&{REQUEST_KEY}={}", request.show()));
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
        // A later open must not resume the unit: if it has ended meanwhile, acknowledged bytes may be gone.
        file.forget_word(RESUMED);
    }
    Ok(file)
}

/// A writer with one request for each call.
fn sequential_writer(file: RemoteFile) -> Writer<Vec<u8>> {
    Writer::new(file.with_window(usize::MAX))
}

fn all_answered<B: DerefMut<Target = [u8]>>(writer: &mut Writer<B>) -> Result<(), ClientError> {
    while writer.answered()?.is_some() {}
    Ok(())
}

/// Runs `op`, and repeats it if the connection was lost and could be restored.
pub(crate) fn with_retries<T>(
    file: &mut RemoteFile,
    mut op: impl FnMut(&mut RemoteFile) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut tries = 0;
    loop {
        match op(file) {
            Err(error) if error.may_help_to_retry() && tries < AGAIN_MAX => {
                tries += 1;
                file.recover(error)?;
            }
            result => return result,
        }
    }
}
