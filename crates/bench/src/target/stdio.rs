//! Files by path, with buffers like those of the C library's `fopen`, for what IOzone calls fwrite and fread. A
//! buffer has the length that the file system prefers (`st_blksize`), as in the C library. Longer requests bypass
//! it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Instant;

use super::{Done, OpenFile, TargetError};
use crate::memory::Memory;

/// The longest buffer that a file system may request.
const BUFFER_MAX: u64 = 16 << 20;

enum Buffered {
    Read(BufReader<File>),
    Write(BufWriter<File>),
}

/// An open file with a buffer.
pub(super) struct StdioFile {
    buffered: Buffered,
    path: PathBuf,
    /// The offset of the next request without a seek.
    at: u64,
    done: VecDeque<Done>,
    sync_at_close: bool,
}

impl StdioFile {
    pub(super) fn new(file: File, path: PathBuf, reads: bool, sync_at_close: bool) -> Result<Self, TargetError> {
        let wished = file.metadata().map_err(|source| failed("stat", &path, source))?.blksize();
        let len = usize::try_from(wished.clamp(512, BUFFER_MAX)).unwrap_or(4096);
        let buffered = if reads {
            Buffered::Read(BufReader::with_capacity(len, file))
        } else {
            Buffered::Write(BufWriter::with_capacity(len, file))
        };
        Ok(Self { buffered, path, at: 0, done: VecDeque::new(), sync_at_close })
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        if offset != self.at {
            match &mut self.buffered {
                Buffered::Read(reader) => reader.seek(SeekFrom::Start(offset))?,
                Buffered::Write(writer) => writer.seek(SeekFrom::Start(offset))?,
            };
            self.at = offset;
        }
        Ok(())
    }

    fn write_all(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(offset)?;
        match &mut self.buffered {
            Buffered::Write(writer) => writer.write_all(bytes)?,
            Buffered::Read(_) => return Err(io::ErrorKind::Unsupported.into()),
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Returns the read bytes; fewer than requested only at the end of the file.
    fn read_all(&mut self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.seek(offset)?;
        let Buffered::Read(reader) = &mut self.buffered else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut got = 0;
        while got < into.len() {
            match reader.read(&mut into[got..]) {
                Ok(0) => break,
                Ok(moved) => got += moved,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.at += got as u64;
        Ok(got)
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        match &mut self.buffered {
            Buffered::Read(_) => Ok(()),
            Buffered::Write(writer) => writer.flush().map_err(|source| failed("write", &self.path, source)),
        }
    }
}

fn failed(what: &str, path: &std::path::Path, source: io::Error) -> TargetError {
    TargetError::path(format!("{what} {}", path.display()), source)
}

impl OpenFile for StdioFile {
    fn write(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError> {
        let start = Instant::now();
        self.write_all(offset, &memory).map_err(|source| failed("write", &self.path, source))?;
        self.done.push_back(Done { offset, memory, took: start.elapsed() });
        Ok(())
    }

    fn read(&mut self, offset: u64, mut memory: Memory) -> Result<(), TargetError> {
        let start = Instant::now();
        let got = self.read_all(offset, &mut memory).map_err(|source| failed("read", &self.path, source))?;
        memory.cut(got);
        self.done.push_back(Done { offset, memory, took: start.elapsed() });
        Ok(())
    }

    fn done(&mut self) -> Result<Option<Done>, TargetError> {
        Ok(self.done.pop_front())
    }

    fn sync(&mut self) -> Result<(), TargetError> {
        self.flush()?;
        match &self.buffered {
            Buffered::Read(_) => Ok(()),
            Buffered::Write(writer) => writer.get_ref().sync_all().map_err(|source| failed("sync", &self.path, source)),
        }
    }

    fn close(mut self: Box<Self>) -> Result<(), TargetError> {
        self.flush()?;
        if self.sync_at_close { self.sync() } else { Ok(()) }
    }
}
