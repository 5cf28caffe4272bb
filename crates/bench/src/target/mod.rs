//! The interface between workloads and storage systems: the operations of workloads, and the drivers that do them
//! by path or URL.
//!
//! A driver does only what it is told. It refuses what its system does not support ([`Failure::Unsupported`]). All
//! names are below the folder that the run has made for itself; a driver cannot name anything else.

mod delayed;
mod error;
mod http;
mod name;
mod path;
mod place;
mod root;
mod spread;
mod stdio;
mod webdav;
mod window;

use std::time::{Duration, Instant};

pub use client::{RoundTrips, Span};
pub use delayed::DelayedTarget;
pub use error::{Failure, TargetError};
pub use http::{HttpError, HttpUrl, HttpUrlError};
pub use name::RelName;
pub use place::{PlaceError, TargetDir};
pub use window::{AutoWindow, Window};

use crate::memory::Memory;

/// When written bytes must be durable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Whenever the system decides.
    None,
    /// Before the file is closed, inside the timing (IOzone's `-e`).
    #[default]
    Close,
    /// Before each write is answered.
    Write,
}

/// The options of an open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct IoOptions {
    /// Whether to bypass the client's page cache.
    pub direct: bool,
    /// When written bytes must be durable.
    pub durability: Durability,
    /// The requests under way on one file, if the driver supports several.
    pub window: Window,
}

/// The purpose of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To create a file, which must not exist.
    Create {
        /// Its final length in bytes, which HTTP must announce.
        len: u64,
    },
    /// To read an existing file.
    Read,
    /// To read and write an existing file in place.
    Update,
    /// To write a file from its start, and drop its earlier contents if it exists.
    Replace {
        /// Its final length in bytes.
        len: u64,
    },
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its length in bytes, if it is a file.
    pub len: Option<u64>,
}

/// The space of a system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemSpace {
    /// The free bytes.
    pub free: u64,
    /// All bytes.
    pub total: u64,
}

/// A storage system behind one of its protocols, with the run's own folder on it.
pub trait Target: Send + Sync {
    /// Returns the run's own folder in a form for other programs on this machine: a path, or a URL.
    fn location(&self) -> Option<String> {
        None
    }

    /// Returns the same folder, as if its server were further away by this round trip.
    ///
    /// # Errors
    /// The driver does not support it, or this machine has no port or thread for it.
    fn delayed(&self, _round_trip: Duration) -> Result<DelayedTarget, TargetError> {
        Err(TargetError::Unsupported { what: "a delayed path (`round_trip`)", by: "a driver that is not root://" })
    }

    /// Returns the most requests that its driver has under way on one file.
    fn window_max(&self) -> usize;

    /// Opens a session for one thread, with its own connections.
    ///
    /// # Errors
    /// The system cannot be reached.
    fn session(&self) -> Result<Box<dyn Session>, TargetError>;
}

/// One thread's access to a system. Each call is one operation from a user's point of view, and returns when it is
/// done.
pub trait Session: Send {
    /// Creates the run's own folder. If it exists, it belongs to somebody else, and the error is `Exists`.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn make_home(&mut self) -> Result<(), TargetError>;

    /// Removes the run's own folder, which must be empty.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn remove_home(&mut self) -> Result<(), TargetError>;

    /// Opens a file.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn open(
        &mut self,
        name: &RelName,
        purpose: Purpose,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError>;

    /// Opens a file with buffers like those of the C library (`fopen`), with one request at a time. Best used from
    /// the start to the end.
    ///
    /// # Errors
    /// The system refuses or fails; `Unsupported`: the driver has no such buffers.
    fn open_stdio(
        &mut self,
        _name: &RelName,
        _purpose: Purpose,
        _io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        Err(TargetError::Unsupported { what: "fwrite and fread", by: "a protocol without files on this machine" })
    }

    /// Creates new files, with as many in one request as the system allows. `next` returns the files; `made` gets
    /// the result of each.
    ///
    /// # Errors
    /// The system fails, so that no more files can be created; `Unsupported`: the system has no such requests.
    fn make_in_batches(
        &mut self,
        _next: &mut dyn FnMut() -> Option<NewFile>,
        _made: &mut dyn FnMut(CreatedFile),
    ) -> Result<(), TargetError> {
        Err(TargetError::Unsupported { what: "making files in batches", by: "this system" })
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn make_directory(&mut self, name: &RelName) -> Result<(), TargetError>;

    /// Returns the length of a file in bytes; `None`: it does not exist.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn len_of(&mut self, name: &RelName) -> Result<Option<u64>, TargetError>;

    /// Lists a directory with the lengths of its files.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn list(&mut self, name: &RelName, each: &mut dyn FnMut(Entry)) -> Result<(), TargetError>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn remove(&mut self, name: &RelName) -> Result<(), TargetError>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn remove_directory(&mut self, name: &RelName) -> Result<(), TargetError>;

    /// Returns the space of the system; `None`: the system does not report it.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn room(&mut self) -> Result<Option<SystemSpace>, TargetError>;
}

/// A new file with its contents.
#[derive(Debug)]
pub struct NewFile {
    /// Its name.
    pub name: RelName,
    /// Its contents.
    pub content: Vec<u8>,
    /// The caller's number for it.
    pub number: u64,
}

/// The result of a new file.
#[derive(Debug)]
pub struct CreatedFile {
    /// The caller's number for it.
    pub number: u64,
    /// How long it took, from the request on.
    pub took: Duration,
    /// Whether the complete file exists.
    pub result: Result<(), TargetError>,
}

/// A completed request.
#[derive(Debug)]
pub struct Done {
    /// Its offset in the file.
    pub offset: u64,
    /// Its memory. After a read the window holds the read bytes, and is shorter than requested only at the end of
    /// the file.
    pub memory: Memory,
    /// How long it took, from the call that started it.
    pub took: Duration,
}

/// An open file with up to `window` requests under way. They complete in any order.
pub trait OpenFile: Send {
    /// Returns how many requests of `len` bytes keep its connection busy, for [`Window::Auto`]. The driver measures the
    /// round trip of the connection. A driver that does not, has one request under way.
    fn window_for(&self, _len: usize) -> usize {
        1
    }

    /// Starts to write the memory's window at `offset`.
    ///
    /// # Errors
    /// The system refuses or fails, perhaps in an earlier request.
    fn write(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError>;

    /// Starts to read into the memory's window from `offset`.
    ///
    /// # Errors
    /// The system refuses or fails, perhaps in an earlier request.
    fn read(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError>;

    /// Waits for the next completed request; `None`: no request is under way.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn done(&mut self) -> Result<Option<Done>, TargetError>;

    /// Returns the memory of the only request under way, which must have moved all bytes. `what` describes the
    /// request for errors.
    ///
    /// # Errors
    /// The system refuses or fails; [`TargetError::Short`]: it moved fewer bytes.
    fn done_whole(&mut self, asked: usize, what: &dyn Fn() -> String) -> Result<Memory, TargetError> {
        match self.done()?.map(|done| done.memory) {
            Some(memory) if memory.len() == asked => Ok(memory),
            memory => Err(TargetError::Short { what: what(), moved: memory.map_or(0, |memory| memory.len()), asked }),
        }
    }

    /// The same as [`OpenFile::done`], but waits until `end` at most. `None`: no request was completed by then. A
    /// worker that starts requests at fixed times takes the answers in between with this, because a request's time
    /// ends when its answer is taken.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn done_until(&mut self, end: Instant) -> Result<Option<Done>, TargetError> {
        // If each request completes within the call that starts it, there is nothing to wait for.
        let _ = end;
        self.done()
    }

    /// Returns the server that holds it, as `HOST:PORT`, if the protocol reveals it.
    fn server(&self) -> Option<String> {
        None
    }

    /// Reads all `spans`, one behind the other, into the front of `into`, in as few requests as the driver can.
    /// Returns their number. No request may be under way.
    ///
    /// # Errors
    /// The system refuses or fails; [`TargetError::Short`]: a span ends behind the end of the file.
    fn read_spans(&mut self, spans: &[Span], into: &mut [u8]) -> Result<RoundTrips, TargetError> {
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
        Ok(RoundTrips { requests, in_turn: requests })
    }

    /// Whether a new file that is closed early keeps its written bytes. Otherwise it is abandoned.
    fn keeps_part(&self) -> bool {
        true
    }

    /// Makes the written bytes durable. No request may be under way.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn sync(&mut self) -> Result<(), TargetError>;

    /// Closes the file. A written file is complete then. No request may be under way.
    ///
    /// # Errors
    /// The system refuses or fails.
    fn close(self: Box<Self>) -> Result<(), TargetError>;
}

fn short(span: &Span, moved: usize) -> TargetError {
    TargetError::Short { what: format!("read {} bytes at {}", span.len, span.offset), moved, asked: span.len }
}
