//! The two ends of one large copy: the source, read by one or more threads of its own, and the target.

use std::sync::mpsc::SyncSender;

use client::{Algorithm, Chunk, Client, Reader, RemoteFile, Session, Sum, UnitsWriter, Writer};
use disk::AlignedBuf;
use types::Timestamp;
use wire::response::StatReply;

use crate::error::TransferError;
use crate::follow::Growing;
use crate::local::{LocalSink, LocalSource};
use crate::place::CopyPath;
use crate::pool::Pool;
use crate::stream::StreamSink;
use crate::units::{Parts, UnitsSource};

/// Bytes of one request.
pub const CHUNK: usize = 4 << 20;

/// An open source.
pub enum Source {
    Local(LocalSource),
    /// Connections, each with the file open.
    Remote(Vec<Reader<AlignedBuf>>),
    /// A file at a server that is still being written.
    Growing(Box<Growing>),
    /// A striped file; each unit is read at its server.
    Units(UnitsSource),
    Standard,
}

/// An open target.
pub enum Sink {
    Local(LocalSink),
    Remote {
        writer: Box<Writer<AlignedBuf>>,
        /// Whether this copy created the file, and may so remove it.
        fresh: bool,
    },
    /// A striped file; each unit is written at its server.
    Units {
        writer: Box<UnitsWriter<AlignedBuf>>,
        /// The file as this copy created it, which it may remove; `None`: it existed before.
        made: Option<StatReply>,
        /// The modification time to set.
        mtime: Option<Timestamp>,
    },
    /// Standard output, a pipe or a device.
    Stream(StreamSink),
}

/// A source that is open.
pub struct Opened {
    /// The source itself.
    pub source: Source,
    /// Its length, if known.
    pub len: Option<u64>,
    /// Its permission bits.
    pub mode: u16,
    /// Its modification time, if it has one.
    pub mtime: Option<Timestamp>,
}

/// A part and its checksum.
pub type PartSum = (Chunk<AlignedBuf>, Option<Sum>);

impl Source {
    /// Ends the source without reading. Its connections go back to `client`.
    pub fn end(self, client: &mut Client, from: &CopyPath) {
        let readers = match self {
            Self::Remote(readers) | Self::Units(UnitsSource { readers, .. }) => readers,
            Self::Growing(growing) => vec![growing.into_reader()],
            Self::Local(_) | Self::Standard => return,
        };
        if let CopyPath::Remote(url) = from {
            readers.into_iter().filter_map(Reader::give_up).for_each(|session| client.give_back(session, url));
        }
    }
}

impl Sink {
    /// A file that is open at a server; `fresh`: this copy created it.
    pub fn remote(file: RemoteFile, fresh: bool) -> Self {
        let window = file.window_for(CHUNK);
        Self::Remote { writer: Box::new(Writer::new(file.with_window(window))), fresh }
    }

    /// How many parts it may hold at a time.
    pub fn window(&self) -> usize {
        match self {
            Self::Remote { writer, .. } => writer.file().window_for(CHUNK),
            Self::Units { writer, .. } => writer.window(),
            Self::Local(_) | Self::Stream(_) => 1,
        }
    }

    /// The file that this copy created at a server, with its attributes at that time.
    pub fn made(&self) -> Option<StatReply> {
        match self {
            Self::Remote { writer, fresh: true } => {
                Some(writer.file().stat()).filter(|stat| stat.identity().is_some()).cloned()
            }
            Self::Units { made, .. } => made.clone().filter(|made| made.identity().is_some()),
            _ => None,
        }
    }

    /// Takes a part; its buffer returns to the pool once it is written.
    pub fn put(&mut self, mut chunk: Chunk<AlignedBuf>, pool: &Pool) -> Result<(), TransferError> {
        match self {
            Self::Local(local) => {
                local.put(&mut chunk)?;
                pool.give(chunk.buffer);
            }
            Self::Remote { writer, .. } => {
                if let Some(done) = writer.put(chunk)? {
                    pool.give(done.buffer);
                }
            }
            Self::Units { writer, .. } => {
                if let Some(done) = writer.put(chunk)? {
                    pool.give(done.buffer);
                }
            }
            Self::Stream(stream) => stream.put(chunk, pool)?,
        }
        Ok(())
    }

    /// Writes the part that was held back, and waits until everything is written.
    pub fn end(&mut self, last: Option<Chunk<AlignedBuf>>) -> Result<(), TransferError> {
        match self {
            Self::Remote { writer, .. } => {
                last.map_or(Ok(None), |last| writer.put(last))?;
                while writer.answered()?.is_some() {}
            }
            Self::Units { writer, .. } => {
                last.map_or(Ok(None), |last| writer.put(last))?;
                while writer.answered()?.is_some() {}
            }
            // Parts are held back only for servers.
            Self::Local(_) | Self::Stream(_) => {}
        }
        Ok(())
    }
}

/// Sums a part and sends it to the writer.
pub fn hand_on(
    chunk: Chunk<AlignedBuf>,
    algorithm: Option<Algorithm>,
    sender: &SyncSender<PartSum>,
) -> Result<(), TransferError> {
    let sum = algorithm.map(|algorithm| algorithm.of(&chunk.buffer[..chunk.len]));
    sender.send((chunk, sum)).map_err(|_| TransferError::Stopped)
}

/// Reads all of a local file.
pub fn read_local(
    mut source: LocalSource,
    pool: &Pool,
    algorithm: Option<Algorithm>,
    sender: &SyncSender<PartSum>,
) -> Result<(), TransferError> {
    // There may be no more buffers than parts, so do not wait for one at the end.
    while !source.is_at_end() {
        let buffer = pool.take().ok_or(TransferError::Stopped)?;
        let Some(chunk) = source.read_next(buffer)? else { break };
        hand_on(chunk, algorithm, sender)?;
    }
    Ok(())
}

/// Reads the parts of one connection. Returns the connection, unless it failed.
pub fn read_remote(
    mut reader: Reader<AlignedBuf>,
    parts: Parts<'_>,
    window: usize,
    pool: &Pool,
    algorithm: Option<Algorithm>,
    sender: &SyncSender<PartSum>,
) -> (Option<Session>, Result<(), TransferError>) {
    match read_parts(&mut reader, parts, window, pool, algorithm, sender) {
        Ok(()) => match reader.close() {
            Ok(session) => (Some(session), Ok(())),
            Err(error) => (None, Err(error.into())),
        },
        Err(TransferError::Client(error)) if error.kind() == client::Kind::Connection => (None, Err(error.into())),
        Err(error) => (reader.give_up(), Err(error)),
    }
}

fn read_parts(
    reader: &mut Reader<AlignedBuf>,
    mut parts: Parts<'_>,
    window: usize,
    pool: &Pool,
    algorithm: Option<Algorithm>,
    sender: &SyncSender<PartSum>,
) -> Result<(), TransferError> {
    // There may be no more buffers than parts, and the writer may keep them to the end. So take one only for a part.
    let mut next = parts.next();
    loop {
        while let Some((offset, len)) = next
            && reader.under_way() < window
        {
            // Wait for other threads only if this one has no request in progress.
            let buffer = match pool.try_take() {
                Some(buffer) => buffer,
                None if reader.under_way() > 0 => break,
                None => pool.take().ok_or(TransferError::Stopped)?,
            };
            next = parts.next();
            reader.ask(offset, len, buffer)?;
        }
        match reader.wait()? {
            Some(chunk) => {
                let offset = parts.in_file(chunk.offset);
                hand_on(Chunk { offset, ..chunk }, algorithm, sender)?;
            }
            None if next.is_some() => {}
            None => return Ok(()),
        }
    }
}
