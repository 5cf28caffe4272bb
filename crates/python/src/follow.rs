//! A reader of a file that is still being written. Weir shows it the bytes that are durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{AtEnd, Chunk, Client, ClientError, FileState, FollowError, Kind, Url};
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;

use crate::error::{ReadError, to_python, zeros};
use crate::pool::State;

/// A caller with less time than this learns what is there now. The server waits in whole seconds.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// A reader that follows a file while it grows.
#[pyclass(frozen, weakref, module = "weir._weir")]
pub struct Follower {
    pid: u32,
    open: Mutex<Option<Open>>,
}

struct Open {
    follower: client::Follower<Vec<u8>>,
    /// Where the read under way began, if one is: an earlier call got nothing in time.
    asked: Option<u64>,
}

/// Why a read has returned nothing.
enum Ended {
    Read(ReadError),
    Follow(FollowError),
}

impl<E: Into<ReadError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Read(error.into())
    }
}

impl From<FollowError> for Ended {
    fn from(error: FollowError) -> Self {
        Self::Follow(error)
    }
}

impl Follower {
    pub fn open(state: &Arc<State>, url: &str) -> Result<Self, PyErr> {
        let url = Url::parse(url).map_err(|error| to_python(error.into()))?;
        let mut client = Client::new(state.settings.clone());
        if !client.is_weir(&url).map_err(to_python)? {
            let text =
                format!("cannot follow {url}: {} is not a weir server, and does not say what is durable", url.server);
            return Err(PyOSError::new_err((Errno::OPNOTSUPP.raw_os_error(), text)));
        }
        let found = match FileState::of(&mut client, &url) {
            // A missing file has no attribute either. The question for the file itself says what is missing.
            Err(error) if error.kind() == Kind::NotFound => Err(client.stat(&url).err().unwrap_or(error)),
            found => found,
        }
        .map_err(to_python)?;
        let follower = client::Follower::open(client, &url, found).map_err(|error| ended(error.into()))?;
        let open = Open { follower, asked: None };
        Ok(Self { pid: std::process::id(), open: Mutex::new(Some(open)) })
    }
}

impl Open {
    /// Returns the bytes from `at`; empty at the end of the complete file. `None`: there were none in time.
    fn next(&mut self, at: u64, most: usize, timeout: Duration) -> Result<Option<Vec<u8>>, Ended> {
        let end = Instant::now().checked_add(timeout);
        loop {
            match self.read(at, most, end, timeout >= WAIT_MIN) {
                Ok(None) => return Ok(None),
                Ok(Some(chunk)) if chunk.len > 0 => {
                    let mut bytes = chunk.buffer;
                    bytes.truncate(chunk.len.min(most));
                    return Ok(Some(bytes));
                }
                Ok(Some(_)) => {}
                Err(Ended::Read(ReadError::Client(error @ ClientError::Refused { .. }))) => {
                    return Err(self.follower.refused(error, at).into());
                }
                Err(error) => return Err(error),
            }
            match self.follower.at_end(at)? {
                AtEnd::Complete => return Ok(Some(Vec::new())),
                AtEnd::NotYet if end.is_some_and(|end| Instant::now() >= end) => return Ok(None),
                AtEnd::NotYet => self.follower.pause()?,
            }
        }
    }

    /// One read at `at`; `waits`: the server may wait for bytes. `None`: it is still under way at `end`.
    fn read(
        &mut self,
        at: u64,
        most: usize,
        end: Option<Instant>,
        waits: bool,
    ) -> Result<Option<Chunk<Vec<u8>>>, Ended> {
        match self.asked {
            Some(asked) if asked == at => {}
            None if waits => {
                self.follower.ask_at_end(at, most, zeros(most)?)?;
                self.asked = Some(at);
            }
            // The caller has moved since it asked, or learns at once what is there.
            _ => self.follower.look_at_end(at, most, zeros(most)?)?,
        }
        loop {
            let reader = self.follower.reader();
            let read = match end.filter(|_| self.asked == Some(at)) {
                Some(end) => reader.wait_until(end),
                None => reader.wait(),
            };
            if reader.under_way() == 0 {
                self.asked = None;
            }
            let Some(chunk) = read? else { return Ok(None) };
            if self.asked == Some(chunk.offset) {
                self.asked = None;
            }
            if chunk.offset == at {
                return Ok(Some(chunk));
            }
        }
    }
}

fn ended(why: Ended) -> PyErr {
    match why {
        Ended::Read(error) => error.into(),
        Ended::Follow(FollowError::Client(error)) => to_python(error),
        Ended::Follow(error @ FollowError::Interrupted { .. }) => {
            PyOSError::new_err((Errno::PIPE.raw_os_error(), error.to_string()))
        }
        Ended::Follow(error @ FollowError::Changed { .. }) => {
            PyOSError::new_err((Errno::STALE.raw_os_error(), error.to_string()))
        }
    }
}

#[pymethods]
impl Follower {
    /// Returns the bytes from `at`, at most so many, and waits for them. Empty: the writer has closed the file. `None`:
    /// there were none in time.
    ///
    /// Only the caller knows its position: it may give a read up and never see its bytes.
    fn read<'py>(
        &self,
        py: Python<'py>,
        at: u64,
        most: usize,
        timeout_s: f64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if self.pid != std::process::id() {
            return Err(PyValueError::new_err("this file was opened before the process was forked"));
        }
        let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
        let read = py.detach(|| self.open.lock().as_mut().map(|open| open.next(at, most.max(1), timeout)));
        match read {
            Some(read) => Ok(read.map_err(ended)?.map(|bytes| PyBytes::new(py, &bytes))),
            None => Err(PyValueError::new_err("read of a closed file")),
        }
    }

    /// Ends it.
    fn close(&self, py: Python<'_>) {
        if self.pid == std::process::id() {
            py.detach(|| self.open.lock().take().and_then(|open| open.follower.into_reader().give_up()).map(drop));
        }
    }
}
