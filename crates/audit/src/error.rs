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
