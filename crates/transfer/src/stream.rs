//! Reads and writes pipes, devices, standard input and output in order. A stop also reaches a thread that waits for the other end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use client::{Algorithm, Chunk};
use disk::AlignedBuf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::ends::{PartSum, hand_on};
use crate::error::TransferError;
use crate::pool::Pool;

/// How often a waiting thread checks for a stop.
const TICK: Duration = Duration::from_millis(100);
const TICK_SPEC: Timespec = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos() as i64 };
/// This process's standard output, for opening it a second time.
const STDOUT: &str = "/proc/self/fd/1";

/// A target that is written sequentially.
pub struct StreamSink {
    out: Out,
    name: String,
    stop: Arc<AtomicBool>,
    at: u64,
    early: BTreeMap<u64, Chunk<AlignedBuf>>,
}

enum Out {
    /// Opened by us, in nonblocking mode.
    Own(File),
    /// Standard output that is no pipe, so writing never blocks for long.
    Shared(io::Stdout),
}

impl StreamSink {
    /// Standard output. A pipe is opened a second time, because other processes share it and do not expect nonblocking writes.
    pub fn standard(stop: Arc<AtomicBool>) -> Self {
        let is_pipe = Path::new(STDOUT).metadata().is_ok_and(|found| found.file_type().is_fifo());
        let own = is_pipe.then(|| open(Path::new(STDOUT)).ok()).flatten();
        let out = own.map_or_else(|| Out::Shared(io::stdout()), Out::Own);
        Self { out, name: "standard output".to_owned(), stop, at: 0, early: BTreeMap::new() }
    }

    /// A pipe or a device. Waits until a pipe has a reader.
    pub fn open(path: &Path, stop: Arc<AtomicBool>) -> Result<Self, TransferError> {
        let out = loop {
            match open(path) {
                // A pipe without a reader.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) && is_fifo(path) => {
                    if stop.load(Ordering::Relaxed) {
                        return Err(TransferError::Stopped);
                    }
                    std::thread::sleep(TICK);
                }
                opened => break opened.map_err(TransferError::local("open", path))?,
            }
        };
        Ok(Self { out: Out::Own(out), name: path.display().to_string(), stop, at: 0, early: BTreeMap::new() })
    }

    /// Takes a part, and writes the next ones in order. Buffers return to the pool.
    pub fn put(&mut self, chunk: Chunk<AlignedBuf>, pool: &Pool) -> Result<(), TransferError> {
        self.early.insert(chunk.offset, chunk);
        while let Some(next) = self.early.remove(&self.at) {
            self.write(&next.buffer[..next.len])?;
            self.at += next.len as u64;
            pool.give(next.buffer);
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), TransferError> {
        let failed = |source| TransferError::Local { what: "write to", path: self.name.clone(), source };
        while !bytes.is_empty() {
            let wrote = match &mut self.out {
                Out::Own(file) => file.write(bytes),
                Out::Shared(shared) => shared.write(bytes),
            };
            match wrote {
                Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Ok(wrote) => bytes = &bytes[wrote..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let fd = match &self.out {
                        Out::Own(file) => file.as_fd(),
                        Out::Shared(shared) => shared.as_fd(),
                    };
                    wait(fd, PollFlags::OUT, &self.stop)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(mut self) -> Result<(), TransferError> {
        match &mut self.out {
            Out::Own(_) => Ok(()),
            Out::Shared(shared) => shared.flush(),
        }
        .map_err(|source| TransferError::Local { what: "write to", path: self.name, source })
    }
}

fn open(path: &Path) -> io::Result<File> {
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    OpenOptions::new().write(true).custom_flags(nonblock).open(path)
}

fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_fifo())
}

/// Waits until `fd` is ready or has ended.
fn wait(fd: BorrowedFd<'_>, flags: PollFlags, stop: &AtomicBool) -> Result<(), TransferError> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(TransferError::Stopped);
        }
        match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&TICK_SPEC)) {
            Ok(0) | Err(Errno::INTR) => {}
            // If it cannot be polled, the next operation reports why.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}

/// Reads standard input to its end.
pub fn read_standard(
    pool: &Pool,
    algorithm: Option<Algorithm>,
    sender: &SyncSender<PartSum>,
    stop: &AtomicBool,
) -> Result<(), TransferError> {
    let input = io::stdin();
    let failed =
        |error: Errno| TransferError::Local { what: "read", path: "standard input".to_owned(), source: error.into() };
    let mut offset = 0;
    loop {
        let mut buffer = pool.take().ok_or(TransferError::Stopped)?;
        let mut len = 0;
        while len < buffer.len() {
            wait(input.as_fd(), PollFlags::IN, stop)?;
            // Bypasses the buffer of `Stdin`, because a stop could not interrupt its filling.
            match rustix::io::read(&input, &mut buffer[len..]) {
                Ok(0) => break,
                Ok(got) => len += got,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if len == 0 {
            return Ok(());
        }
        hand_on(Chunk { offset, len, buffer }, algorithm, sender)?;
        offset += len as u64;
    }
}
