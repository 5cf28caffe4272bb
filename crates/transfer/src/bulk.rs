//! Copies one large file from anywhere to anywhere. One thread or more reads and sums, this one writes, and buffers circulate between them.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use client::{Algorithm, Client, FileState, OpenedToRead, Reader, StripedWriter, Sum, Units, Url};
use parking_lot::Mutex;
use wire::request::OpenOptions;
use wire::response::StatReply;

use crate::context::Context;
use crate::ends::{CHUNK, Opened, PartSum, Sink, Source, read_local, read_remote};
use crate::error::TransferError;
use crate::follow::Growing;
use crate::held_back::HeldBack;
use crate::local::{KeptAttributes, LocalSink, LocalSource, mode_of};
use crate::place::CopyPath;
use crate::plan::CopyAction;
use crate::pool::Pool;
use crate::resume::sum_part;
use crate::stream::{StreamSink, read_standard};
use crate::sums::PartChecksums;
use crate::times;
use crate::units::{Parts, UnitParts, UnitRequests, UnitsSource, buffers_of};

/// Buffers between reading and writing, besides those at the servers.
const BETWEEN: usize = 1;

/// The result of a successful copy.
#[derive(Debug)]
pub struct Copied {
    /// Bytes that were transferred.
    pub bytes: u64,
    /// The file's length.
    pub len: u64,
    /// The checksum of the transferred bytes, if it was computed.
    pub sum: Option<Sum>,
    /// Whether a server's checksum was compared with it.
    pub verified: bool,
    /// The whole file existed already.
    pub skipped: bool,
}

/// A file and its target. `client` keeps the connections to both ends.
pub struct Bulk<'a> {
    /// Settings, progress, and facts about servers.
    pub context: &'a Context,
    /// The source.
    pub from: &'a CopyPath,
    /// The target file itself.
    pub to: &'a CopyPath,
    /// What to do if the target exists.
    pub how: CopyAction,
    /// The file that an interrupted attempt made at a server where nothing existed, with its attributes at that time.
    pub made: Option<StatReply>,
    /// An unfinished file is known to exist there; the copy begins it again.
    pub again: bool,
    /// A source that is being written is copied to its end.
    pub follows: bool,
}

/// The server's checksum of the file; `None`: it keeps none of this kind. A file that is being written, or is known to be damaged, is an
/// error.
pub fn told(client: &mut Client, url: &Url, algorithm: Algorithm) -> Result<Option<String>, TransferError> {
    match client.checksum(url, Some(algorithm.name())) {
        Ok((name, value)) => Ok(Some(value).filter(|_| name == algorithm.name())),
        Err(error) if matches!(error.kind(), client::Kind::Unsupported | client::Kind::Usage) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

type Work<'w> = Box<dyn FnOnce(SyncSender<PartSum>) -> Result<(), TransferError> + Send + 'w>;

impl Bulk<'_> {
    /// Copies it.
    pub fn copy(&mut self, client: &mut Client) -> Result<Copied, TransferError> {
        match self.copy_once(client) {
            // Now that the source is complete, an ordinary copy gets all of it.
            Err(error @ TransferError::Rewritten { .. }) if !self.to.is_stream() => {
                tracing::info!(%error, "copying {} again", self.from);
                self.follows = false;
                self.copy_once(client)
            }
            result => result,
        }
    }

    fn copy_once(&mut self, client: &mut Client) -> Result<Copied, TransferError> {
        let algorithm = self.algorithm(client)?;
        let Opened { mut source, len, mode, mtime } = self.open_source(client)?;
        let mut kept = mtime.filter(|_| self.context.options.preserve).map(|mtime| KeptAttributes { mtime, mode });
        let grows = matches!(source, Source::Growing(_));
        if (self.context.options.resume || self.how == CopyAction::Compare)
            && let Some(len) = len
            && let Some(done) = self.is_there(client, len, algorithm)?
        {
            source.end(client, self.from);
            if let Some(kept) = kept {
                times::keep(self.context, client, self.to, kept)?;
            }
            return Ok(done);
        }
        let (mut sink, mut from, beginning) = match self.open_sink(client, (len, algorithm), mode, kept) {
            Ok(opened) => opened,
            Err(error) => {
                source.end(client, self.from);
                return Err(error);
            }
        };
        self.made = sink.made().or(self.made.take());
        let mut sums = algorithm.map(PartChecksums::new);
        if from > 0
            && let Sink::Local(part) = &mut sink
            && !self.is_beginning(client, part, from, algorithm)?
        {
            part.cut(0)?;
            from = 0;
        }
        if from > 0 {
            self.context.progress.skipped(from);
            if let Some(sums) = &mut sums {
                let beginning = match &sink {
                    Sink::Local(part) => Some(sum_part(part, 0..from, sums.algorithm())?),
                    _ => beginning,
                };
                if let Some(beginning) = beginning {
                    sums.add(0, from, beginning);
                }
            }
            if let Source::Local(_) = &source
                && let CopyPath::Local(path) = self.from
            {
                source = Source::Local(LocalSource::open(path, from, self.context.options.direct)?);
            }
        }
        let mut held = match len {
            Some(len) if self.may_be_no_file(&sink) => HeldBack::of(len),
            _ => HeldBack::default(),
        };
        let moved = match self.pump(client, source, (&mut sink, &mut held), (from, len), sums.as_mut()) {
            // A pipe may have ended only because the signal that stopped us also stopped its writer.
            Ok(_) if self.context.stopping() => {
                self.give_up(client, sink, &TransferError::Stopped);
                return Err(TransferError::Stopped);
            }
            Ok(moved) => moved,
            Err(error) => {
                self.give_up(client, sink, &error);
                return Err(error);
            }
        };
        let len = from + moved;
        let sum = sums.and_then(|sums| sums.whole(len));
        let mut verified = false;
        if let (CopyPath::Remote(url), Some(sum)) = (self.from, sum) {
            match told(client, url, sum.algorithm) {
                Ok(Some(text)) if !sum.is(&text) && grows => {
                    let error = TransferError::Rewritten { from: url.to_string() };
                    self.give_up(client, sink, &error);
                    return Err(error);
                }
                Ok(Some(text)) if !sum.is(&text) => {
                    let expected = format!("{}:{text}", sum.algorithm.name());
                    let error = TransferError::Damaged { from: url.to_string(), expected, found: sum };
                    self.give_up(client, sink, &error);
                    return Err(error);
                }
                Ok(told) => verified = told.is_some(),
                Err(error) => {
                    self.give_up(client, sink, &error);
                    return Err(error);
                }
            }
        }
        if let Err(error) = sink.end(held.release()) {
            self.give_up(client, sink, &error);
            return Err(error);
        }
        if grows && let (Some(kept), CopyPath::Remote(url)) = (&mut kept, self.from) {
            // The time of the last change is known only now.
            match client.stat(url) {
                Ok(stat) => kept.mtime = times::of_server(&stat),
                Err(error) => {
                    let error = error.into();
                    self.give_up(client, sink, &error);
                    return Err(error);
                }
            }
        }
        self.finish(client, sink, len, kept)?;
        if let (true, Some(kept), CopyPath::Remote(_)) = (grows, kept, self.to) {
            times::keep(self.context, client, self.to, kept)?;
        }
        if let (CopyPath::Remote(url), Some(sum)) = (self.to, sum)
            && let Some(text) = told(client, url, sum.algorithm)?
        {
            self.compare(sum, text)?;
            verified = true;
        }
        if !verified {
            self.context.not_compared([self.from, self.to]);
        }
        Ok(Copied { bytes: moved, len, sum, verified, skipped: false })
    }

    /// Whether only the last byte may show that the source is damaged or incomplete, while the target's server could take the target for
    /// complete.
    fn may_be_no_file(&self, sink: &Sink) -> bool {
        matches!(self.from, CopyPath::Remote(_)) && matches!(sink, Sink::Remote { .. } | Sink::Units { .. })
    }

    /// The checksum to compare: one that the target's server keeps, else one that the source's server keeps. An option can name it.
    pub(super) fn algorithm(&self, client: &mut Client) -> Result<Option<Algorithm>, TransferError> {
        if !self.context.options.verify || self.is_part(client) {
            return Ok(None);
        }
        for place in [self.to, self.from] {
            if let CopyPath::Remote(url) = place
                && let Some(offered) = self.context.offered(client, url)?
            {
                return Ok(Some(offered));
            }
        }
        Ok(None)
    }

    /// Whether it copies what was kept of an interrupted file, which has no checksum.
    fn is_part(&self, client: &mut Client) -> bool {
        match self.from {
            CopyPath::Remote(url) if !self.follows && url.word("weir.partial") == Some("1") => {
                matches!(FileState::of(client, url), Ok(FileState::Interrupted))
            }
            _ => false,
        }
    }

    pub(super) fn open_source(&self, client: &mut Client) -> Result<Opened, TransferError> {
        if let (true, CopyPath::Remote(url)) = (self.follows, self.from)
            && let Some(growing) = Growing::open(self.context, client, url)?
        {
            let (mode, mtime) = (growing.mode(), Some(growing.mtime()));
            return Ok(Opened { source: Source::Growing(Box::new(growing)), len: None, mode, mtime });
        }
        match self.from {
            CopyPath::Local(path) => {
                let source = LocalSource::open(path, 0, self.context.options.direct)?;
                let (len, mtime) = (Some(source.len()), Some(source.mtime()));
                Ok(Opened { source: Source::Local(source), len, mode: mode_of(path)?, mtime })
            }
            CopyPath::Remote(url) => {
                let kib = if self.may_skip_the_beginning() { 0 } else { client::BEGINNING_KIB_MAX };
                // For a stream, the server combines a striped file's units in order.
                let opened = match self.to.is_stream() {
                    true => OpenedToRead::File(client.open_to_read(url, kib)?),
                    false => client.open_with_units(url, kib, UnitsSource::open)?,
                };
                let file = match opened {
                    OpenedToRead::File(file) => file,
                    OpenedToRead::Units(units, source) => {
                        let stat = units.stat();
                        let (len, mtime) = (Some(stat.size), Some(times::of_server(&stat)));
                        let mode = stat.extra.as_ref().map_or(0o644, |extra| extra.mode) & 0o777;
                        let source = Source::Units(source);
                        return Ok(Opened { source, len, mode, mtime });
                    }
                };
                let mtime = Some(times::of_server(file.stat()));
                let (len, mode) = (file.stat().size, file.stat().extra.as_ref().map_or(0o644, |extra| extra.mode));
                let mut readers = vec![Reader::new(file)];
                // A sequential target cannot wait for the slower of two connections.
                let streams = if self.to.is_stream() { 1 } else { self.context.options.streams };
                let useful = len.div_ceil(CHUNK as u64 * 4).clamp(1, 64);
                for _ in 1..u64::from(streams).min(useful) {
                    readers.push(Reader::new(client.open(url, OpenOptions::READ, 0)?));
                }
                Ok(Opened { source: Source::Remote(readers), len: Some(len), mode: mode & 0o777, mtime })
            }
            CopyPath::Standard => Ok(Opened { source: Source::Standard, len: None, mode: 0o644, mtime: None }),
        }
    }

    /// Whether the target may have all of the source already, or its beginning. Then it would be in vain to get the
    /// beginning with the open.
    fn may_skip_the_beginning(&self) -> bool {
        self.context.options.resume || self.how == CopyAction::Compare
    }

    /// Opens the target and returns the offset at which to start. Where it continues an earlier copy at a server, it also returns the
    /// source's sum up to there.
    fn open_sink(
        &self,
        client: &mut Client,
        (len, algorithm): (Option<u64>, Option<Algorithm>),
        mode: u16,
        kept: Option<KeptAttributes>,
    ) -> Result<(Sink, u64, Option<Sum>), TransferError> {
        let options = &self.context.options;
        let force = options.force || self.how != CopyAction::New;
        match self.to {
            CopyPath::Standard => Ok((Sink::Stream(StreamSink::standard(self.context.stop_flag())), 0, None)),
            CopyPath::Local(path) if self.to.is_stream() => {
                Ok((Sink::Stream(StreamSink::open(path, self.context.stop_flag())?), 0, None))
            }
            CopyPath::Local(path) => {
                let resume = options.resume && len.is_some();
                let mut sink = LocalSink::create(path, len, mode, force, resume, options.direct)?;
                // The last block of an earlier copy may be incomplete.
                let have = sink.len() - sink.len() % disk::ALIGNMENT as u64;
                let have = if len.is_some_and(|len| have <= len) { have } else { 0 };
                sink.cut(have)?;
                Ok((Sink::Local(sink), have, None))
            }
            CopyPath::Remote(url) => {
                let mut target = url.clone();
                // An empty file has no end to hold back; its close alone makes it complete.
                if let Some(len) = len.filter(|len| *len > 0) {
                    target.add_words(&format!("oss.asize={len}"));
                }
                if let Some(kept) = kept
                    && self.context.keeps_times(client, url)?
                {
                    target.add_words(&times::words(kept.mtime));
                }
                if options.resume
                    && let (Some(found), Some(len)) = (client.look(url)?, len)
                {
                    match self.go_on(client, &target, (&found, len), algorithm) {
                        Ok((sink, len, beginning)) => return Ok((sink, len, Some(beginning))),
                        Err(TransferError::NoBeginning { .. }) if force => {}
                        Err(error) => return Err(error),
                    }
                }
                let how = if force { OpenOptions::DELETE } else { OpenOptions::NEW };
                if self.again {
                    target.add_words(&format!("tried={}", url.server.host));
                }
                let opened = client.open_direct(&target, how | OpenOptions::UPDATE | OpenOptions::MKPATH, mode);
                let opened = opened.map_err(|error| match error.kind() {
                    client::Kind::Exists => TransferError::Exists { path: url.to_string() },
                    _ => error.into(),
                })?;
                match opened {
                    client::Opened::File(file) => Ok((Sink::remote(file, !force), 0, None)),
                    client::Opened::Units(units) => {
                        let made = Some(units.stat()).filter(|_| !force);
                        let opened = units.open_writer().map_err(TransferError::from).inspect_err(|error| {
                            // The file exists, but the copy of it failed.
                            if let Some(made) = made.as_ref().filter(|_| !self.keeps_part(error)) {
                                self.clean_up(client, made, (false, error));
                            }
                        });
                        Ok((self.units_sink(&units, opened?, made), 0, None))
                    }
                }
            }
        }
    }

    pub(super) fn units_sink(&self, units: &Units, opened: StripedWriter, made: Option<StatReply>) -> Sink {
        let buffers = buffers_of(units.stripe(), self.context.settings.window);
        Sink::Units { writer: Box::new(opened.into_parallel(buffers)), made, mtime: units.wanted_mtime() }
    }

    /// Transfers everything from `from` on, except the part that is held back. Returns the number of bytes. Connections that can be used
    /// again go back to `client`.
    fn pump(
        &self,
        client: &mut Client,
        source: Source,
        (sink, held): (&mut Sink, &mut HeldBack),
        (from, len): (u64, Option<u64>),
        sums: Option<&mut PartChecksums>,
    ) -> Result<u64, TransferError> {
        let algorithm = sums.as_ref().map(|sums| sums.algorithm());
        let window = self.context.settings.window.max(1);
        let pieces = match &source {
            Source::Units(units) => UnitRequests::of(units.stripe, window),
            Source::Remote(readers) => {
                let of_each = readers.iter().map(|reader| reader.file().window_for(CHUNK));
                UnitRequests { len: CHUNK, window: of_each.max().unwrap_or(1) }
            }
            Source::Growing(growing) => UnitRequests { len: CHUNK, window: growing.window() },
            Source::Local(_) | Source::Standard => UnitRequests { len: CHUNK, window: 1 },
        };
        let reading = match &source {
            Source::Remote(readers) | Source::Units(UnitsSource { readers, .. }) => readers.len() * pieces.window,
            Source::Growing(_) => pieces.window,
            Source::Local(_) | Source::Standard => 1,
        };
        let count = reading + sink.window() + BETWEEN;
        let wanted =
            len.map_or(count, |len| usize::try_from((len - from).div_ceil(pieces.len as u64)).unwrap_or(count));
        // Each unit has a part that may be the only one in its buffer.
        let wanted = wanted + if matches!(source, Source::Units(_)) { reading } else { 0 };
        let pool = Pool::new(count.min(wanted.max(1)), pieces.len);
        let claims = AtomicU64::new(from);
        let (sender, receiver) = sync_channel::<PartSum>(count);
        let spare = Mutex::new(Vec::new());
        let mut moved = 0;
        let result = std::thread::scope(|scope| {
            let (pool, claims, spare) = (&pool, &claims, &spare);
            let work: Vec<Work<'_>> = match source {
                Source::Local(local) => vec![Box::new(move |sender| read_local(local, pool, algorithm, &sender))],
                Source::Standard => {
                    let stop = self.context.stop_flag();
                    vec![Box::new(move |sender| read_standard(pool, algorithm, &sender, &stop))]
                }
                Source::Growing(growing) => vec![Box::new(move |sender| {
                    let (session, read) = growing.read(self.context, pool, algorithm, &sender);
                    spare.lock().extend(session);
                    read
                })],
                Source::Remote(remote) => {
                    let end = len.unwrap_or(u64::MAX);
                    let read = |reader| -> Work<'_> {
                        Box::new(move |sender| {
                            let parts = Parts::Claimed(claims, end);
                            let (session, read) = read_remote(reader, parts, pieces.window, pool, algorithm, &sender);
                            spare.lock().extend(session);
                            read
                        })
                    };
                    remote.into_iter().map(read).collect()
                }
                Source::Units(UnitsSource { stripe, readers }) => {
                    let end = len.unwrap_or(0);
                    let read = |(unit, reader)| -> Work<'_> {
                        Box::new(move |sender| {
                            let parts = Parts::Unit(UnitParts::new(stripe, unit, (from, end), pieces));
                            let (session, read) = read_remote(reader, parts, pieces.window, pool, algorithm, &sender);
                            spare.lock().extend(session);
                            read
                        })
                    };
                    (0..).zip(readers).map(read).collect()
                }
            };
            let mut readers = Vec::new();
            for work in work {
                let sender = sender.clone();
                readers.push(scope.spawn(move || work(sender).inspect_err(|_| pool.stop())));
            }
            drop(sender);
            let written = self.write_all(receiver, (&mut *sink, held), pool, sums, &mut moved);
            if written.is_err() {
                pool.stop();
            }
            let mut failed = written.err();
            for reader in readers {
                let ended = reader.join().unwrap_or(Err(TransferError::Stopped));
                // The error that made the others stop says more than theirs.
                if let Err(error) = ended
                    && failed.as_ref().is_none_or(|failed| matches!(failed, TransferError::Stopped))
                {
                    failed = Some(error);
                }
            }
            failed.map_or(Ok(()), Err)
        });
        if let CopyPath::Remote(url) = self.from {
            spare.into_inner().into_iter().for_each(|session| client.give_back(session, url));
        }
        result.map(|()| moved)
    }

    fn write_all(
        &self,
        receiver: Receiver<PartSum>,
        (sink, held): (&mut Sink, &mut HeldBack),
        pool: &Pool,
        mut sums: Option<&mut PartChecksums>,
        moved: &mut u64,
    ) -> Result<(), TransferError> {
        for (mut chunk, sum) in receiver {
            if self.context.stopping() {
                return Err(TransferError::Stopped);
            }
            let (offset, len) = (chunk.offset, chunk.len as u64);
            if let (Some(sums), Some(sum)) = (sums.as_deref_mut(), sum) {
                sums.add(offset, len, sum);
            }
            held.keep_of(&mut chunk);
            match chunk.len {
                0 => pool.give(chunk.buffer),
                _ => sink.put(chunk, pool)?,
            }
            *moved += len;
            self.context.progress.moved(len);
        }
        Ok(())
    }

    fn finish(
        &self,
        client: &mut Client,
        sink: Sink,
        len: u64,
        kept: Option<KeptAttributes>,
    ) -> Result<(), TransferError> {
        let made = sink.made();
        let finished = match sink {
            Sink::Local(local) => {
                let options = &self.context.options;
                return local.finish(len, kept, options.sync, options.resume || options.partial);
            }
            Sink::Stream(stream) => return stream.finish(),
            Sink::Remote { writer, .. } => {
                let url = writer.file().url().clone();
                writer.finish().map(|session| client.give_back(session, &url))
            }
            Sink::Units { writer, mtime, .. } => writer.finish(mtime),
        };
        finished.map_err(|error| {
            // After a lost connection the file may be complete.
            let is_connection = error.is_connection();
            let error = TransferError::from(error);
            if let Some(made) = made.filter(|_| !is_connection && !self.keeps_part(&error)) {
                self.clean_up(client, &made, (false, &error));
            }
            error
        })
    }

    /// Whether what was copied of the file stays after the copy of it has failed. What a pipe has delivered cannot be
    /// had again; but who stops a copy wants nothing of it.
    fn keeps_part(&self, failed: &TransferError) -> bool {
        let options = &self.context.options;
        match failed {
            TransferError::Damaged { .. } | TransferError::Rewritten { .. } => false,
            TransferError::Stopped => options.resume || options.partial,
            _ => options.resume || options.partial || self.from.is_stream(),
        }
    }

    /// Leaves nothing that looks like a copy. A part that `--resume` can continue may stay.
    fn give_up(&self, client: &mut Client, sink: Sink, failed: &TransferError) {
        let options = &self.context.options;
        let keeps = self.keeps_part(failed);
        let made = sink.made().filter(|_| !keeps);
        match sink {
            // No later copy can continue that of a pipe.
            Sink::Local(local) if !keeps || !(options.resume || options.partial) => local.remove(),
            Sink::Local(_) | Sink::Stream(_) => {}
            Sink::Remote { writer, .. } => {
                // While it is open for us, nobody else can have it.
                let held = writer.file().is_held();
                if let Some(made) = made {
                    self.clean_up(client, &made, (held, failed));
                }
                writer.abandon();
            }
            Sink::Units { writer, .. } => {
                if let Some(made) = made {
                    self.clean_up(client, &made, (true, failed));
                }
                drop(writer);
            }
        }
    }

    /// Like [`Bulk::remove_rest`], but also works after this copy was told to stop. If it `failed` because a server
    /// could not be reached, nobody waits for that server again.
    pub(super) fn clean_up(&self, client: &mut Client, made: &StatReply, (held, failed): (bool, &TransferError)) {
        let is_unreachable = failed.exit() == console::Exit::Unreachable;
        if self.context.stopping() || is_unreachable {
            self.remove_rest(&mut self.context.cleaner(), made, held);
        } else {
            self.remove_rest(client, made, held);
        }
    }

    /// Compares both sums. A differing target stays: it is complete, and another client may have put it there since the close.
    fn compare(&self, sum: Sum, found: String) -> Result<(), TransferError> {
        if sum.is(&found) {
            return Ok(());
        }
        let algorithm = sum.algorithm.name();
        let sent = format!("{:08x}", sum.value);
        Err(TransferError::Differs { from: self.from.to_string(), to: self.to.to_string(), algorithm, found, sent })
    }
}
