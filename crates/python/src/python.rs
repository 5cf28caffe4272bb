//! What Python sees of the connections and open files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, ClientError, DirlistOptions, FileState, Settings, Url};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use wire::response::StatReply;

use crate::error::to_python;
use crate::follow::Follower;
use crate::open_file::Version;
use crate::pool::{Asked, Limits, State};
use crate::writer::{Mode, Writer};

/// The attributes of a file: size, flags, time of change, permission bits, number, owner, group.
type Attributes = (u64, u32, i64, Option<u16>, u64, Option<String>, Option<String>);

/// Connections and open files of one process, for any number of threads and servers.
#[pyclass(frozen, weakref, module = "weir._weir")]
pub struct Pool {
    state: Arc<State>,
}

fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| PyValueError::new_err(format!("{value} is no number of seconds")))
}

fn attributes(stat: StatReply) -> Attributes {
    let (mode, owner, group) = match stat.extra {
        Some(extra) => (Some(extra.mode), Some(extra.owner), Some(extra.group)),
        None => (None, None, None),
    };
    (stat.size, stat.flags.0, stat.mtime, mode, stat.id, owner, group)
}

impl Pool {
    /// Asks for something about a name.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        url: &str,
        ask: impl FnOnce(&mut Client, &Url) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let parsed = Url::parse(url)?;
            self.state.with_client(|client| ask(client, &parsed))
        })
        .map_err(to_python)
    }

    /// Changes something about a name, and perhaps what is below it.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        url: &str,
        ask: impl FnOnce(&mut Client, &Url) -> Result<T, ClientError> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.state.forget_below(url));
        let changed = self.ask(py, url, ask);
        py.detach(|| self.state.forget_below(url));
        changed
    }
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (*, connect_timeout, silence, recovery, wait, connections, files, idle, gap, ahead, user=None))]
    #[allow(clippy::too_many_arguments)] // one for each setting, by name
    fn new(
        connect_timeout: f64,
        silence: f64,
        recovery: f64,
        wait: f64,
        connections: usize,
        files: usize,
        idle: f64,
        gap: usize,
        ahead: usize,
        user: Option<String>,
    ) -> PyResult<Self> {
        let mut settings = Settings {
            connect_timeout: seconds(connect_timeout)?,
            silence_max: seconds(silence)?,
            recovery_max: seconds(recovery)?,
            wait_max: seconds(wait)?,
            application: "weir-python".to_owned(),
            ..Settings::default()
        };
        if let Some(user) = user {
            settings.user = user;
        }
        let limits = Limits { connections, files, idle: seconds(idle)?, gap, ahead };
        Ok(Self { state: State::new(settings, limits) })
    }

    /// Ends what is under way, with an error for each caller.
    fn stop(&self) {
        self.state.stop();
    }

    /// After a fork, in the child: closes the parent's connections here without a word to their servers.
    fn drop_after_fork(&self) {
        // A thread of the parent may have been in the middle of a change. Then nothing here may be touched.
        if self.state.is_at_rest() {
            self.state.drop_all();
        }
    }

    /// The attributes of a file or directory.
    fn stat(&self, py: Python<'_>, url: &str) -> PyResult<Attributes> {
        self.ask(py, url, |client, url| client.stat(url)).map(attributes)
    }

    /// Whether a file is complete, being written or interrupted. `None`: the server does not say so, because it is not weir.
    fn state(&self, py: Python<'_>, url: &str) -> PyResult<Option<&'static str>> {
        self.ask(py, url, |client, url| match FileState::of(client, url) {
            Ok(FileState::Complete) => Ok(Some("complete")),
            Ok(FileState::BeingWritten) => Ok(Some("being written")),
            Ok(FileState::Interrupted) => Ok(Some("interrupted")),
            Err(ClientError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// The attributes of a file at its open, if that was at most so many seconds ago and the file is still open.
    fn stat_of_open(&self, py: Python<'_>, url: &str, age_max: f64) -> Option<Attributes> {
        let file = py.detach(|| self.state.known(url))?;
        let age = Instant::now().saturating_duration_since(file.opened());
        (age.as_secs_f64() <= age_max).then(|| attributes(file.stat().clone()))
    }

    /// The names in a directory, with their attributes if the server gives them.
    fn list(&self, py: Python<'_>, url: &str) -> PyResult<Vec<(String, Option<Attributes>)>> {
        self.ask(py, url, |client, url| {
            let mut found = Vec::new();
            client.list(url, DirlistOptions::NONE, |entry| {
                found.push((entry.name, entry.stat.map(attributes)));
                Ok::<_, ClientError>(())
            })?;
            Ok(found)
        })
    }

    /// Number, length and time of change of a file that is open for reading. Opens it if necessary, and asks the server
    /// if it was opened more than so many seconds ago.
    fn version(&self, py: Python<'_>, url: &str, age_max: f64) -> PyResult<Version> {
        let age_max = seconds(age_max)?;
        py.detach(|| self.state.version(url, age_max)).map_err(to_python)
    }

    /// Reads ranges of a file, each as `(start, end)` of a slice; with a version, only of that one.
    #[pyo3(signature = (url, ranges, version=None))]
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        url: &str,
        ranges: Vec<Asked>,
        version: Option<Version>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let pieces = py.detach(|| self.state.read(url, &ranges, version))?;
        Ok(pieces.iter().map(|piece| PyBytes::new(py, piece.bytes())).collect())
    }

    /// The same, if all bytes are here already. It does not wait for a server; then it returns `None`.
    fn read_kept<'py>(&self, py: Python<'py>, url: &str, ranges: Vec<Asked>) -> Option<Vec<Bound<'py, PyBytes>>> {
        let pieces = py.detach(|| self.state.known(url)?.read_kept(&self.state, &ranges))?;
        Some(pieces.iter().map(|piece| PyBytes::new(py, piece.bytes())).collect())
    }

    /// Opens a file for writing. `mode`: `w` replaces it, `x` needs a new one, `a` continues it.
    fn write(&self, py: Python<'_>, url: &str, mode: &str, permissions: u16) -> PyResult<Writer> {
        let mode = match mode {
            "w" => Mode::Replace,
            "x" => Mode::New,
            "a" => Mode::Append,
            _ => return Err(PyValueError::new_err(format!("mode {mode}"))),
        };
        py.detach(|| Writer::open(&self.state, url, mode, permissions)).map_err(to_python)
    }

    /// Opens a file that is being written, for reading while it grows.
    fn follow(&self, py: Python<'_>, url: &str) -> PyResult<Follower> {
        py.detach(|| Follower::open(&self.state, url))
    }

    /// Closes the file if it is open, so that the next read opens it again. Without a URL: all files.
    #[pyo3(signature = (url=None))]
    fn forget(&self, py: Python<'_>, url: Option<&str>) {
        py.detach(|| match url {
            Some(url) => self.state.forget(url, None),
            None => self.state.forget_all(),
        });
    }

    /// Makes a directory, and with `parents` those above it.
    fn mkdir(&self, py: Python<'_>, url: &str, mode: u16, parents: bool) -> PyResult<()> {
        self.ask(py, url, |client, url| client.mkdir(url, mode, parents))
    }

    /// Removes a file.
    fn rm(&self, py: Python<'_>, url: &str) -> PyResult<()> {
        self.change(py, url, Client::rm)
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, url: &str) -> PyResult<()> {
        self.ask(py, url, Client::rmdir)
    }

    /// Renames within one server.
    fn mv(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        py.detach(|| self.state.forget_below(to));
        let moved = self.change(py, from, |client, from| client.mv(from, &Url::parse(to)?));
        py.detach(|| self.state.forget_below(to));
        moved
    }

    /// Sets permission bits.
    fn chmod(&self, py: Python<'_>, url: &str, mode: u16) -> PyResult<()> {
        self.ask(py, url, |client, url| client.chmod(url, mode))
    }

    /// Sets the length of a file.
    fn truncate(&self, py: Python<'_>, url: &str, len: u64) -> PyResult<()> {
        self.change(py, url, |client, url| client.truncate(url, len))
    }

    /// The name and the value of a checksum that the server keeps or computes.
    #[pyo3(signature = (url, algorithm=None))]
    fn checksum(&self, py: Python<'_>, url: &str, algorithm: Option<&str>) -> PyResult<(String, String)> {
        self.ask(py, url, |client, url| client.checksum(url, algorithm))
    }

    /// Total, free and used bytes of the server.
    fn space(&self, py: Python<'_>, url: &str) -> PyResult<(u64, u64, u64)> {
        self.ask(py, url, |client, url| client.space(url).map(|space| (space.total, space.free, space.used)))
    }
}
