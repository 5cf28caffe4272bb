//! A command's side of the control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ControlRequest, LINE_MAX, SOCKET, server};

/// How long the node may be silent; some answers need the disk first.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest answer behind the first line.
const LONG_MAX: u64 = 1 << 30;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No node is running.
    #[error("no node is running on {data}")]
    NotRunning {
        /// The data directory.
        data: PathBuf,
    },
    /// The node refused the request.
    #[error("the node refused: {0}")]
    Refused(String),
    /// The object of the request does not exist.
    #[error("{0}")]
    Absent(String),
    /// The connection failed.
    #[error("the node's control socket {path}: {source}")]
    Io {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Sends a request to the node that serves `data`. Returns the answer and a reader of the bytes that follow it.
pub fn ask(data: &Path, ask: &ControlRequest) -> Result<(serde_json::Value, BufReader<UnixStream>), AskError> {
    let failed = |source| AskError::Io { path: data.join(SOCKET), source };
    let mut stream = match server::connect(data) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err(AskError::NotRunning { data: data.to_owned() });
        }
        Err(error) => return Err(failed(error)),
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let request = serde_json::to_string(ask).map_err(|error| failed(error.into()))?;
    stream.write_all(format!("{request}\n").as_bytes()).map_err(failed)?;
    let mut answers = BufReader::new(stream);
    let mut line = Vec::new();
    (&mut answers).take(LINE_MAX).read_until(b'\n', &mut line).map_err(failed)?;
    let broken = || failed(io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed before the answer"));
    let mut answer: serde_json::Value = serde_json::from_slice(&line).map_err(|_| broken())?;
    match answer.get("error").and_then(|error| error.as_str()) {
        Some(what) if answer.get("absent").is_some() => Err(AskError::Absent(what.to_owned())),
        Some(error) => Err(AskError::Refused(error.to_owned())),
        None => Ok((answer.get_mut("ok").map(serde_json::Value::take).ok_or_else(broken)?, answers)),
    }
}

/// Like [`ask`], for answers that may be longer than a line ([`super::Reply::long`]).
pub fn ask_long<T: serde::de::DeserializeOwned>(data: &Path, what: &ControlRequest) -> Result<T, AskError> {
    let (_, following) = ask(data, what)?;
    serde_json::from_reader(following.take(LONG_MAX))
        .map_err(|error| AskError::Io { path: data.join(SOCKET), source: error.into() })
}
