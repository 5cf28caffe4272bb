//! Python's exception for each error. Python chooses the class by the number: `ENOENT` becomes a `FileNotFoundError`.

use client::{ClientError, Kind};
use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use rustix::io::Errno;
use wire::ErrorNumber;

/// Why a read has failed.
pub enum ReadError {
    Client(ClientError),
    /// There is no memory for so many bytes.
    Memory(usize),
    /// The file was closed, because others need its connections or somebody wants to write it. It can be opened again.
    Closed,
}

impl From<ClientError> for ReadError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<ReadError> for PyErr {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Client(error) => to_python(error),
            ReadError::Memory(bytes) => PyMemoryError::new_err(format!("no memory for {bytes} bytes of a file")),
            ReadError::Closed => PyOSError::new_err((Errno::BADF.raw_os_error(), "the file was closed meanwhile")),
        }
    }
}

/// Returns so many zeros, if there is memory for them. `vec!` alone would end the process.
pub fn zeros(len: usize) -> Result<Vec<u8>, ReadError> {
    // The trial touches no page, and the pages of `vec!` are zero without being touched.
    Vec::<u8>::new().try_reserve_exact(len).map_err(|_| ReadError::Memory(len))?;
    Ok(vec![0; len])
}

/// Whether the time that the user allows is used up, so that nothing else is tried.
pub fn is_over(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Stopped
            | ClientError::GaveUp { .. }
            | ClientError::Silent { .. }
            | ClientError::Stalled { .. }
            | ClientError::Waited { .. }
    )
}

/// Whether the file is being written.
pub fn is_busy(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { number: ErrorNumber::FILE_LOCKED, .. })
}

/// Makes the exception, with the client's own text: what was tried, where, and what went wrong.
pub fn to_python(error: ClientError) -> PyErr {
    if let ClientError::Url(_) = &error {
        return PyValueError::new_err(error.to_string());
    }
    PyOSError::new_err((number(&error).raw_os_error(), error.to_string()))
}

fn number(error: &ClientError) -> Errno {
    match error {
        ClientError::Connect { source, .. } if source.kind() != std::io::ErrorKind::TimedOut => {
            source.raw_os_error().map_or(Errno::HOSTUNREACH, Errno::from_raw_os_error)
        }
        ClientError::Lost { .. } | ClientError::Moved { .. } => Errno::CONNRESET,
        ClientError::Stopped => Errno::CANCELED,
        ClientError::Replaced { .. } => Errno::STALE,
        ClientError::Refused { number: ErrorNumber::IS_DIRECTORY, .. } => Errno::ISDIR,
        error if is_busy(error) => Errno::BUSY,
        _ => match error.kind() {
            Kind::NotFound => Errno::NOENT,
            Kind::Exists => Errno::EXIST,
            Kind::Denied => Errno::ACCESS,
            Kind::WrongKind => Errno::NOTDIR,
            Kind::NoSpace => Errno::NOSPC,
            Kind::Unsupported => Errno::OPNOTSUPP,
            Kind::Connection => Errno::TIMEDOUT,
            Kind::Usage => Errno::INVAL,
            Kind::Checksum | Kind::Other => Errno::IO,
        },
    }
}
