//! The seam between workloads and storage systems: what a workload asks for, and the drivers that do it by path or URL.
//!
//! A driver does what it is told with as little of its own as it can. What its system cannot do it refuses ([`Failure::Unsupported`]).
//! All names are below the folder that the run has made for itself; a driver has no way to name anything else.

mod error;
mod http;
mod name;
mod path;
mod place;
mod root;
mod spread;
mod stdio;
mod webdav;

use std::time::{Duration, Instant};

pub use client::{Span, Trips};
pub use error::{Failure, TargetError};
pub use http::{HttpError, HttpUrl, HttpUrlError};
pub use name::RelName;
pub use place::{Place, PlaceError};

use crate::memory::Memory;

/// When written bytes have to be on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Whenever the system does it by itself.
    None,
    /// Before the file is closed, inside the timing (IOzone's `-e`).
    #[default]
    Close,
    /// Before each write is answered.
    Write,
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Manner {
    /// Past the client's page cache.
    pub direct: bool,
    /// When written bytes have to be on the disk.
    pub durability: Durability,
    /// Requests under way at a time on one file, where the driver can.
    pub window: usize,
}

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A new file: it must not be there.
    Create {
        /// How many bytes it will have: HTTP says it first.
        len: u64,
    },
    /// A file that is there, to be read.
    Read,
    /// A file that is there, to be read and written in place.
    Update,
    /// A file that may be there: what it held goes, and it is written from its beginning.
    Replace {
        /// How many bytes it will have.
        len: u64,
    },
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Bytes, if it is a file.
    pub len: Option<u64>,
}

/// Room on a system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that can be written.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A storage system, reached by one of its protocols, and the folder on it that is the run's own.
pub trait Target: Send + Sync {
    /// The run's own folder as other programs on this machine name it: a path, or a URL.
    fn location(&self) -> Option<String> {
        None
    }

    /// Most requests that its driver has under way at a time on one file.
    fn window_max(&self) -> usize;

    /// A session for one thread, with connections of its own.
    ///
    /// # Errors
    /// When the system cannot be reached.
    fn session(&self) -> Result<Box<dyn Session>, TargetError>;
}

/// What one thread does with a system. Each call is one operation as a user would see it, and returns when it is done.
pub trait Session: Send {
    /// Makes the run's own folder. `Exists` where something is there: it is not ours then.
    ///
    /// # Errors
    /// Of the system.
    fn make_home(&mut self) -> Result<(), TargetError>;

    /// Removes the run's own folder, which has to be empty.
    ///
    /// # Errors
    /// Of the system.
    fn remove_home(&mut self) -> Result<(), TargetError>;

    /// Opens a file.
    ///
    /// # Errors
    /// Of the system.
    fn open(&mut self, name: &RelName, purpose: Purpose, manner: Manner) -> Result<Box<dyn OpenFile>, TargetError>;

    /// Opens a file through buffers of the C library's kind (`fopen`), with one request at a time; best from the beginning to the end.
    ///
    /// # Errors
    /// Of the system; `Unsupported` where there is no such way.
    fn open_stdio(
        &mut self,
        _name: &RelName,
        _purpose: Purpose,
        _manner: Manner,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        Err(TargetError::Unsupported { what: "fwrite and fread", by: "a protocol without files on this machine" })
    }

    /// Makes new files, as many with one request as the system takes: `next` gives them, `made` is told of each what became of it.
    ///
    /// # Errors
    /// Of the system, where nothing more can be made; `Unsupported` where files are made one by one only.
    fn make_in_batches(
        &mut self,
        _next: &mut dyn FnMut() -> Option<NewFile>,
        _made: &mut dyn FnMut(Made),
    ) -> Result<(), TargetError> {
        Err(TargetError::Unsupported { what: "making files in batches", by: "this system" })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Of the system.
    fn make_directory(&mut self, name: &RelName) -> Result<(), TargetError>;

    /// Bytes of a file; `None` where there is none.
    ///
    /// # Errors
    /// Of the system.
    fn len_of(&mut self, name: &RelName) -> Result<Option<u64>, TargetError>;

    /// Lists a directory with the lengths of its files.
    ///
    /// # Errors
    /// Of the system.
    fn list(&mut self, name: &RelName, each: &mut dyn FnMut(Entry)) -> Result<(), TargetError>;

    /// Removes a file.
    ///
    /// # Errors
    /// Of the system.
    fn remove(&mut self, name: &RelName) -> Result<(), TargetError>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Of the system.
    fn remove_directory(&mut self, name: &RelName) -> Result<(), TargetError>;

    /// Room on the system; `None` where it does not say.
    ///
    /// # Errors
    /// Of the system.
    fn room(&mut self) -> Result<Option<Room>, TargetError>;
}

/// A new file, with what it is to hold.
#[derive(Debug)]
pub struct NewFile {
    /// Its name.
    pub name: RelName,
    /// Its content.
    pub content: Vec<u8>,
    /// The caller's number for it.
    pub number: u64,
}

/// What became of a new file.
#[derive(Debug)]
pub struct Made {
    /// The caller's number for it.
    pub number: u64,
    /// How long it took, from when it was asked for.
    pub took: Duration,
    /// Whether it is there, whole.
    pub result: Result<(), TargetError>,
}

/// A request that is done.
#[derive(Debug)]
pub struct Done {
    /// Where in the file.
    pub offset: u64,
    /// The memory that it was done with; of a read, its window is what was read, shorter than asked for only at the end of the file.
    pub memory: Memory,
    /// How long it took, from the call that started it.
    pub took: Duration,
}

/// An open file, with up to `window` requests under way. What is started is done in any order.
pub trait OpenFile: Send {
    /// Starts to write the memory's window at `offset`.
    ///
    /// # Errors
    /// Of the system; of an earlier request, too.
    fn write(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError>;

    /// Starts to read into the memory's window from `offset` on.
    ///
    /// # Errors
    /// Of the system; of an earlier request, too.
    fn read(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError>;

    /// Waits for the next request that is done; `None`: nothing is under way.
    ///
    /// # Errors
    /// Of the system.
    fn done(&mut self) -> Result<Option<Done>, TargetError>;

    /// The memory of the one request that is under way, which has to have moved all of it; `what` says what it is about.
    ///
    /// # Errors
    /// Of the system; [`TargetError::Short`] where it moved less.
    fn done_whole(&mut self, asked: usize, what: &dyn Fn() -> String) -> Result<Memory, TargetError> {
        match self.done()?.map(|done| done.memory) {
            Some(memory) if memory.len() == asked => Ok(memory),
            memory => Err(TargetError::Short { what: what(), moved: memory.map_or(0, |memory| memory.len()), asked }),
        }
    }

    /// The same as [`OpenFile::done`], but waits until `end` at most; `None`: nothing was done by then. Who begins requests at fixed times takes the answers with it that
    /// come between them, as a request's time ends when it is taken.
    ///
    /// # Errors
    /// Of the system.
    fn done_until(&mut self, end: Instant) -> Result<Option<Done>, TargetError> {
        // Where each request is done when the call that starts it returns there is nothing to wait for.
        let _ = end;
        self.done()
    }

    /// The server that holds it, as `HOST:PORT`, where the protocol tells.
    fn server(&self) -> Option<String> {
        None
    }

    /// Reads all of `spans`, one behind the other, into the front of `into`, in as few requests as the driver can; tells how many that were.
    /// Nothing may be under way.
    ///
    /// # Errors
    /// Of the system; [`TargetError::Short`] where a span ends behind the file's end.
    fn read_spans(&mut self, spans: &[Span], into: &mut [u8]) -> Result<Trips, TargetError> {
        let longest = spans.iter().map(|span| span.len).max().unwrap_or(0);
        let mut memory = Memory::new(longest)?;
        let mut at = 0_usize;
        for span in spans {
            memory.show(0..span.len);
            self.read(span.offset, memory)?;
            let done = self.done()?.ok_or_else(|| short(span, 0))?;
            memory = done.memory;
            let room = into.get_mut(at..at.saturating_add(span.len)).ok_or_else(|| short(span, 0))?;
            if memory.len() < span.len {
                return Err(short(span, memory.len()));
            }
            room.copy_from_slice(&memory);
            at += span.len;
        }
        let requests = spans.len() as u64;
        Ok(Trips { requests, in_turn: requests })
    }

    /// Whether a new file that is closed before all of it was written is there so far. Where it is not, it is given up instead.
    fn keeps_part(&self) -> bool {
        true
    }

    /// Makes durable what was written. Nothing may be under way.
    ///
    /// # Errors
    /// Of the system.
    fn sync(&mut self) -> Result<(), TargetError>;

    /// Closes it: a written file is complete. Nothing may be under way.
    ///
    /// # Errors
    /// Of the system.
    fn close(self: Box<Self>) -> Result<(), TargetError>;
}

fn short(span: &Span, moved: usize) -> TargetError {
    TargetError::Short { what: format!("read {} bytes at {}", span.len, span.offset), moved, asked: span.len }
}
