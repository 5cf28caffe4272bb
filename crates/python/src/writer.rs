//! A file that is being written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Chunk, Client, ClientError, Kind, RemoteFile, Url};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use wire::request::OpenOptions;

use crate::error::{is_busy, to_python};
use crate::pool::State;

/// The most bytes of one request.
const REQUEST_MAX: usize = 4 << 20;
/// How long an open waits before it tries again.
const AGAIN: Duration = Duration::from_millis(20);

/// How a file is opened for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// It is replaced, or made.
    Replace,
    /// It must not exist.
    New,
    /// It is continued at its end, or made.
    Append,
}

/// A file that is being written. Several requests are under way at a time. `close` says whether all of them succeeded.
#[pyclass(frozen, weakref, module = "weir._weir")]
pub struct Writer {
    pid: u32,
    state: Arc<State>,
    url: String,
    open: Mutex<Option<Open>>,
    /// It was given up, perhaps while a thread was writing.
    given_up: AtomicBool,
}

struct Open {
    writer: client::Writer<Vec<u8>>,
    at: u64,
}

impl Writer {
    pub fn open(state: &Arc<State>, url: &str, mode: Mode, permissions: u16) -> Result<Self, ClientError> {
        let parsed = Url::parse(url)?;
        state.forget(url, None);
        let open = || state.with_client(|client| open_once(client, &parsed, mode, permissions));
        let file = loop {
            match open() {
                Err(error) if is_busy(&error) && state.given_up.may_be_open(url) => state.settings.stop.sleep(AGAIN)?,
                opened => break opened?,
            }
        };
        let at = if mode == Mode::Append { file.stat().size } else { 0 };
        state.forget(url, None);
        let open = Mutex::new(Some(Open { writer: client::Writer::new(file), at }));
        Ok(Self {
            pid: std::process::id(),
            state: Arc::clone(state),
            url: url.to_owned(),
            open,
            given_up: AtomicBool::new(false),
        })
    }

    fn with<T>(&self, py: Python<'_>, ask: impl FnOnce(&mut Open) -> Result<T, ClientError> + Send) -> PyResult<T>
    where
        T: Send,
    {
        if self.pid != std::process::id() {
            return Err(PyValueError::new_err("this file was opened for writing before the process was forked"));
        }
        let answer = py.detach(|| {
            let mut open = self.open.lock();
            let answer = ask(open.as_mut()?);
            if answer.is_err() {
                // What the server has is not what the caller wanted, so the file must not become complete.
                self.let_go(&mut open);
            }
            drop(open);
            // `give_up` may have found the lock taken.
            if self.is_given_up() {
                self.give_up();
            }
            Some(answer)
        });
        match answer {
            Some(answer) => answer.map_err(to_python),
            None => Err(is_closed()),
        }
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// Gives the file up without waiting: a thread that is writing does it when it has its answer.
    fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
        if let Some(mut open) = self.open.try_lock() {
            self.let_go(&mut open);
        }
    }

    /// Ends the connection, so that the server gives the file up when it notices.
    fn let_go(&self, open: &mut Option<Open>) {
        if open.take().is_some() {
            self.state.given_up.add(&self.url);
        }
    }
}

fn open_once(client: &mut Client, url: &Url, mode: Mode, permissions: u16) -> Result<RemoteFile, ClientError> {
    let mut open = |options| client.open(url, options | OpenOptions::UPDATE, permissions);
    let new = OpenOptions::NEW | OpenOptions::MKPATH;
    match mode {
        Mode::Replace => open(OpenOptions::DELETE | OpenOptions::MKPATH),
        Mode::New => open(new),
        Mode::Append => match open(OpenOptions::NONE) {
            Err(error) if error.kind() == Kind::NotFound => open(new),
            opened => opened,
        },
    }
}

fn is_closed() -> PyErr {
    PyValueError::new_err("write to a closed file")
}

#[pymethods]
impl Writer {
    /// The number of bytes before the next one that is written.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |open| Ok(open.at))
    }

    /// Writes bytes. They may still be on their way when this returns.
    fn write(&self, py: Python<'_>, data: &[u8]) -> PyResult<usize> {
        self.with(py, |open| {
            for part in data.chunks(REQUEST_MAX) {
                if self.is_given_up() {
                    return Err(ClientError::Stopped);
                }
                let chunk = Chunk { offset: open.at, len: part.len(), buffer: part.to_vec() };
                open.writer.put(chunk)?;
                open.at += part.len() as u64;
            }
            Ok(data.len())
        })
    }

    /// Makes the bytes written so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |open| open.writer.sync())
    }

    /// Waits for all answers, and closes the file. It is complete then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |_| Ok(()))?;
        let closed = py.detach(|| {
            let open = self.open.lock().take().filter(|_| !self.is_given_up());
            let closed = open.map(|open| open.writer.finish().map(drop));
            self.state.forget(&self.url, None);
            closed
        });
        closed.ok_or_else(is_closed)?.map_err(to_python)
    }

    /// Gives the file up, without waiting: it does not become complete.
    fn abandon(&self, py: Python<'_>) {
        if self.pid == std::process::id() {
            py.detach(|| self.give_up());
        }
    }
}
