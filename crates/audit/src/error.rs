//! The errors of this crate.

use std::io;
use std::path::PathBuf;

/// Why the audit log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The directory or a file in it cannot be made, read or written.
    #[error("cannot {what} the audit log {path}: {source}")]
    File {
        /// What was attempted.
        what: &'static str,
        /// The directory or the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("another node writes its audit log to {path}; give each node its own `audit.directory`")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Others could change what is in the log.
    #[error("other users may write to {path}, so nobody could rely on an audit log there; `chmod go-w` helps")]
    Writable {
        /// The directory.
        path: PathBuf,
    },
    /// systemd-journald cannot be reached.
    #[error(
        "cannot send the audit log to systemd-journald at {path}: {source}; is it running? `audit.to = \"file\"` needs none"
    )]
    Journald {
        /// Its socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start the thread that writes the audit log: {0}")]
    Thread(io::Error),
}
