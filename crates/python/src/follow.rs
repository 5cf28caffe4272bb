//! A reader of a file that is still being written. Weir shows it the bytes that are durable.
//!
//! Only the server's name space knows whether a file is complete, so an empty read proves nothing: after it, the
//! follower asks for the file's state by name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, ClientError, FileState, Reader, Url};
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use wire::request::OpenOptions;

use crate::error::{ReadError, to_python, zeros};
use crate::pool::State;

/// How often to look whether the file has grown. A server makes bytes durable once a second.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A reader that follows a file while it grows.
#[pyclass(frozen, weakref, module = "weir._weir")]
pub struct Follower {
    pid: u32,
    state: Arc<State>,
    open: Mutex<Option<Open>>,
}

struct Open {
    url: Url,
    client: Client,
    reader: Reader<Vec<u8>>,
    id: u64,
    /// Its writer has closed it, so that an empty read is the end.
    complete: bool,
}

/// Why a read has returned nothing.
enum Ended {
    Read(ReadError),
    Interrupted(String),
}

impl From<ClientError> for Ended {
    fn from(error: ClientError) -> Self {
        Self::Read(error.into())
    }
}

impl From<ReadError> for Ended {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

fn is_complete(client: &mut Client, url: &Url, at: u64) -> Result<bool, Ended> {
    match FileState::of(client, url)? {
        FileState::Complete => Ok(true),
        FileState::BeingWritten => Ok(false),
        FileState::Interrupted => {
            Err(Ended::Interrupted(format!("{url} is interrupted: its writer went away; {at} bytes were read")))
        }
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
        let complete = is_complete(&mut client, &url, 0).map_err(ended)?;
        let mut followed = url.clone();
        if !complete {
            followed.add_words("weir.follow=1");
        }
        let file = client.open(&followed, OpenOptions::READ, 0).map_err(to_python)?;
        let id = file.stat().id;
        let reader = Reader::growing(file);
        let open = Open { url, client, reader, id, complete };
        Ok(Self { pid: std::process::id(), state: Arc::clone(state), open: Mutex::new(Some(open)) })
    }
}

impl Open {
    /// Returns the bytes from `at`; empty at the end of the complete file. `None`: there were none in time.
    fn next(&mut self, state: &State, at: u64, most: usize, timeout: Duration) -> Result<Option<Vec<u8>>, Ended> {
        let begin = Instant::now();
        loop {
            self.reader.ask(at, most, zeros(most)?)?;
            let read = self.reader.wait();
            match read {
                Ok(Some(chunk)) if chunk.len > 0 => {
                    let mut bytes = chunk.buffer;
                    bytes.truncate(chunk.len);
                    return Ok(Some(bytes));
                }
                // An interrupted file is no longer shown to those who follow it. Its state says so.
                Err(error @ ClientError::Refused { .. }) => {
                    is_complete(&mut self.client, &self.url, at)?;
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            if self.complete {
                let stat = self.client.stat(&self.url)?;
                if stat.id != self.id || stat.size < at {
                    let (what, end, expected) = (format!("follow {}", self.url), stat.size, at);
                    return Err(ClientError::Shorter { what, end, expected }.into());
                }
                if stat.size == at {
                    return Ok(Some(Vec::new()));
                }
            }
            // Completed after the empty read: the next one gets the rest.
            self.complete = is_complete(&mut self.client, &self.url, at)?;
            if self.complete {
                continue;
            }
            if begin.elapsed() >= timeout {
                return Ok(None);
            }
            state.settings.stop.sleep(LOOK_EVERY)?;
        }
    }
}

fn ended(why: Ended) -> PyErr {
    match why {
        Ended::Read(error) => error.into(),
        Ended::Interrupted(text) => PyOSError::new_err((Errno::PIPE.raw_os_error(), text)),
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
        let read = py.detach(|| self.open.lock().as_mut().map(|open| open.next(&self.state, at, most.max(1), timeout)));
        match read {
            Some(read) => Ok(read.map_err(ended)?.map(|bytes| PyBytes::new(py, &bytes))),
            None => Err(PyValueError::new_err("read of a closed file")),
        }
    }

    /// Ends it.
    fn close(&self, py: Python<'_>) {
        if self.pid == std::process::id() {
            py.detach(|| self.open.lock().take().and_then(|open| open.reader.give_up()).map(drop));
        }
    }
}
