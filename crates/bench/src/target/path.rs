//! The driver for paths: a local disk, or any mounted system.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};

use super::stdio::StdioFile;
use super::{
    Done, Durability, Entry, IoOptions, OpenFile, Purpose, RelName, RoundTrips, Session, Span, SystemSpace, Target,
    TargetError,
};
use crate::memory::Memory;

/// A directory, and the run's own folder in it.
#[derive(Debug)]
pub(super) struct PathTarget {
    home: PathBuf,
}

impl PathTarget {
    pub(super) fn new(home: PathBuf) -> Self {
        Self { home }
    }
}

impl Target for PathTarget {
    fn location(&self) -> Option<String> {
        self.home.to_str().map(str::to_owned)
    }

    fn window_max(&self) -> usize {
        1
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(PathSession { home: self.home.clone() }))
    }
}

struct PathSession {
    home: PathBuf,
}

impl PathSession {
    fn at(&self, name: &RelName) -> PathBuf {
        if *name == RelName::HOME { self.home.clone() } else { self.home.join(name.as_str()) }
    }

    fn doing<T, E: Into<io::Error>>(&self, what: &str, name: &RelName, result: Result<T, E>) -> Result<T, TargetError> {
        result.map_err(|source| TargetError::path(format!("{what} {}", self.at(name).display()), source))
    }

    fn opened(&self, name: &RelName, purpose: Purpose, io_options: IoOptions) -> Result<(File, PathBuf), TargetError> {
        let mut flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
        flags |= match purpose {
            Purpose::Create { .. } => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Purpose::Read => OFlags::RDONLY,
            Purpose::Update => OFlags::RDWR,
            Purpose::Replace { .. } => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
        };
        flags.set(OFlags::DIRECT, io_options.direct);
        flags.set(OFlags::DSYNC, io_options.durability == Durability::Write && purpose != Purpose::Read);
        let path = self.at(name);
        let what = match purpose {
            Purpose::Create { .. } => "create",
            Purpose::Read | Purpose::Update => "open",
            Purpose::Replace { .. } => "replace",
        };
        let file =
            self.doing(what, name, rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH))?;
        Ok((file.into(), path))
    }
}

fn syncs_at_close(purpose: Purpose, io_options: IoOptions) -> bool {
    io_options.durability == Durability::Close && purpose != Purpose::Read
}

impl Session for PathSession {
    fn make_home(&mut self) -> Result<(), TargetError> {
        self.doing("make the folder", &RelName::HOME, std::fs::create_dir(&self.home))
    }

    fn remove_home(&mut self) -> Result<(), TargetError> {
        self.doing("remove the folder", &RelName::HOME, std::fs::remove_dir(&self.home))
    }

    fn open(
        &mut self,
        name: &RelName,
        purpose: Purpose,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        let (file, path) = self.opened(name, purpose, io_options)?;
        Ok(Box::new(PathFile { file, path, done: VecDeque::new(), sync_at_close: syncs_at_close(purpose, io_options) }))
    }

    fn open_stdio(
        &mut self,
        name: &RelName,
        purpose: Purpose,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        let (file, path) = self.opened(name, purpose, io_options)?;
        Ok(Box::new(StdioFile::new(file, path, purpose == Purpose::Read, syncs_at_close(purpose, io_options))?))
    }

    fn make_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.doing("make the directory", name, std::fs::create_dir(self.at(name)))
    }

    fn len_of(&mut self, name: &RelName) -> Result<Option<u64>, TargetError> {
        match std::fs::symlink_metadata(self.at(name)) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => self.doing("stat", name, Err(error)),
        }
    }

    fn list(&mut self, name: &RelName, each: &mut dyn FnMut(Entry)) -> Result<(), TargetError> {
        let path = self.at(name);
        for entry in self.doing("list", name, std::fs::read_dir(&path))? {
            let entry = self.doing("list", name, entry)?;
            // With lengths, like a listing with attributes of the other drivers.
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Others may remove entries during the listing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return self.doing("stat an entry of", name, Err(error)),
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            each(Entry { name, len: metadata.is_file().then_some(metadata.len()) });
        }
        Ok(())
    }

    fn remove(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.doing("remove", name, rustix::fs::unlinkat(rustix::fs::CWD, self.at(name), AtFlags::empty()))
    }

    fn remove_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.doing("remove the directory", name, std::fs::remove_dir(self.at(name)))
    }

    fn room(&mut self) -> Result<Option<SystemSpace>, TargetError> {
        // The folder may not exist yet. Its parents are on the same system.
        let place = self.home.ancestors().find(|path| path.exists()).unwrap_or(&self.home);
        let found = self.doing("ask for the room of", &RelName::HOME, rustix::fs::statvfs(place))?;
        Ok(Some(SystemSpace {
            free: found.f_bavail.saturating_mul(found.f_frsize),
            total: found.f_blocks.saturating_mul(found.f_frsize),
        }))
    }
}

struct PathFile {
    file: File,
    path: PathBuf,
    /// Completed requests that were not taken yet.
    done: VecDeque<Done>,
    sync_at_close: bool,
}

impl PathFile {
    fn doing<T>(&self, what: &str, result: io::Result<T>) -> Result<T, TargetError> {
        result.map_err(|source| TargetError::path(format!("{what} {}", self.path.display()), source))
    }

    fn short(&self, what: &str, moved: usize, asked: usize) -> TargetError {
        TargetError::Short { what: format!("{what} {}", self.path.display()), moved, asked }
    }

    fn has_done(&mut self, offset: u64, memory: Memory, took: Duration) {
        self.done.push_back(Done { offset, memory, took });
    }
}

impl OpenFile for PathFile {
    fn write(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError> {
        let start = Instant::now();
        let mut at = 0;
        while at < memory.len() {
            match self.file.write_at(&memory[at..], offset + at as u64) {
                Ok(0) => return Err(self.short("write", at, memory.len())),
                Ok(moved) => at += moved,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.doing("write", Err(error)),
            }
        }
        self.has_done(offset, memory, start.elapsed());
        Ok(())
    }

    fn read(&mut self, offset: u64, mut memory: Memory) -> Result<(), TargetError> {
        let start = Instant::now();
        let asked = memory.len();
        let mut at = 0;
        while at < asked {
            match self.file.read_at(&mut memory[at..], offset + at as u64) {
                Ok(0) => break,
                Ok(moved) => at += moved,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.doing("read", Err(error)),
            }
        }
        if at < asked {
            memory.cut(at);
        }
        self.has_done(offset, memory, start.elapsed());
        Ok(())
    }

    fn done(&mut self) -> Result<Option<Done>, TargetError> {
        Ok(self.done.pop_front())
    }

    /// One call after the other: no system call reads several ranges of a file into separate buffers.
    fn read_spans(&mut self, spans: &[Span], into: &mut [u8]) -> Result<RoundTrips, TargetError> {
        let mut left = into;
        for span in spans {
            let asked = span.len;
            let (now, later) = left.split_at_mut_checked(asked).ok_or_else(|| self.short("read", 0, asked))?;
            let read = self.file.read_exact_at(now, span.offset);
            if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
                return Err(self.short("read", 0, asked));
            }
            self.doing("read", read)?;
            left = later;
        }
        let requests = spans.len() as u64;
        Ok(RoundTrips { requests, in_turn: requests })
    }

    fn sync(&mut self) -> Result<(), TargetError> {
        self.doing("sync", self.file.sync_all())
    }

    fn close(mut self: Box<Self>) -> Result<(), TargetError> {
        if self.sync_at_close {
            self.sync()?;
        }
        Ok(())
    }
}
