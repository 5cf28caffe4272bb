//! Follows a file that another client writes, to its end.
//!
//! Weir shows a follower the bytes that are durable. Only the namespace knows whether a file is complete, so an empty
//! read proves nothing: after it, the follower asks for the file's state by name.

use std::ops::DerefMut;
use std::time::{Duration, Instant};

use wire::request::OpenOptions;

use crate::{Client, ClientError, FileState, Reader, RemoteFile, Url};

/// How often to look whether the file has grown, if the server does not wait with its answer.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a server may wait with its answer. Weir waits no longer.
const WAIT_SECONDS_MAX: u64 = 5;

/// Why a file cannot be followed to its end.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The server refuses, or the connection fails.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Its writer went away.
    #[error("{url} is interrupted: its writer went away; {at} bytes were read")]
    Interrupted {
        /// The file.
        url: Box<Url>,
        /// The end of what was read, in bytes.
        at: u64,
    },
    /// Another file has its name, or it was truncated.
    #[error("{url} changed while it was followed: it has {found} bytes, and {at} were read")]
    Changed {
        /// The file.
        url: Box<Url>,
        /// The end of what was read, in bytes.
        at: u64,
        /// Its present length.
        found: u64,
    },
}

/// What an empty read means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtEnd {
    /// The writer has closed the file, and everything was read.
    Complete,
    /// The file is still being written, or the writer has closed it with more than was read.
    NotYet,
}

/// A file that is open for a reader that follows its writer. The caller reads with [`Follower::reader`]; after an empty
/// read it asks [`Follower::at_end`] what that means, and after a refusal [`Follower::refused`].
#[derive(Debug)]
pub struct Follower<B> {
    reader: Reader<B>,
    client: Client,
    url: Url,
    id: u64,
    wait_seconds: u8,
    asked: Instant,
}

impl<B: DerefMut<Target = [u8]>> Follower<B> {
    /// Opens a file at one of weir's servers ([`Client::is_weir`]), whose state is known.
    ///
    /// # Errors
    /// The file is interrupted; the server refuses, or the connection fails.
    pub fn open(mut client: Client, url: &Url, state: FileState) -> Result<Self, FollowError> {
        let mut followed = url.clone();
        match state {
            FileState::BeingWritten => followed.add_words("weir.follow=1"),
            FileState::Complete => {}
            FileState::Interrupted => return Err(FollowError::Interrupted { url: Box::new(url.clone()), at: 0 }),
        }
        let file = client.open(&followed, OpenOptions::READ, 0)?;
        let id = file.stat().id;
        // The server's answer must come before this client gives up.
        let patience = client.settings().wait_max.min(client.settings().silence_max);
        let wait_seconds = u8::try_from((patience.as_secs() / 2).min(WAIT_SECONDS_MAX)).unwrap_or(0);
        let (reader, url) = (Reader::growing(file), url.clone());
        Ok(Self { reader, client, url, id, wait_seconds, asked: Instant::now() })
    }

    /// The file, as it was opened.
    #[must_use]
    pub fn file(&self) -> &RemoteFile {
        self.reader.file()
    }

    /// The client for further requests about the file.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Reads its parts.
    pub fn reader(&mut self) -> &mut Reader<B> {
        &mut self.reader
    }

    /// Gives the reader back.
    #[must_use]
    pub fn into_reader(self) -> Reader<B> {
        self.reader
    }

    /// Requests a part at the present end of the file. The server may wait until there is more
    /// ([`Reader::ask_when_grown`]).
    ///
    /// # Errors
    /// The connection fails and cannot be restored.
    pub fn ask_at_end(&mut self, at: u64, len: usize, buffer: B) -> Result<(), ClientError> {
        self.asked = Instant::now();
        self.reader.ask_when_grown(at, len, self.wait_seconds, buffer)
    }

    /// Requests a part at the present end of the file, of which the server says at once whether it is there.
    ///
    /// # Errors
    /// The connection fails and cannot be restored.
    pub fn look_at_end(&mut self, at: u64, len: usize, buffer: B) -> Result<(), ClientError> {
        self.asked = Instant::now();
        self.reader.ask(at, len, buffer)
    }

    /// What it means that a read at `at` was empty.
    ///
    /// # Errors
    /// [`FollowError::Interrupted`]; [`FollowError::Changed`]; the server refuses, or the connection fails.
    pub fn at_end(&mut self, at: u64) -> Result<AtEnd, FollowError> {
        match FileState::of(&mut self.client, &self.url)? {
            FileState::BeingWritten => Ok(AtEnd::NotYet),
            FileState::Interrupted => Err(FollowError::Interrupted { url: Box::new(self.url.clone()), at }),
            FileState::Complete => {
                let stat = self.client.stat(&self.url)?;
                if stat.id != self.id || stat.size < at {
                    return Err(FollowError::Changed { url: Box::new(self.url.clone()), at, found: stat.size });
                }
                // It may have been completed after the empty read. Of its last bytes, a server of a striped file may know a
                // little later.
                Ok(if stat.size == at { AtEnd::Complete } else { AtEnd::NotYet })
            }
        }
    }

    /// Why a read at `at` was refused. An interrupted file is no longer shown to a follower.
    pub fn refused(&mut self, error: ClientError, at: u64) -> FollowError {
        match FileState::of(&mut self.client, &self.url) {
            Ok(FileState::Interrupted) => FollowError::Interrupted { url: Box::new(self.url.clone()), at },
            _ => error.into(),
        }
    }

    /// Waits before the next look, unless the server has waited.
    ///
    /// # Errors
    /// The caller wants to stop.
    pub fn pause(&self) -> Result<(), ClientError> {
        let left = LOOK_EVERY.saturating_sub(self.asked.elapsed());
        if left.is_zero() { Ok(()) } else { self.reader.file().settings.stop.sleep(left) }
    }
}
