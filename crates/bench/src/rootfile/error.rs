//! Why a ROOT file cannot be used.

use std::io;

/// An error in a ROOT file.
#[derive(Debug, thiserror::Error)]
pub enum RootFileError {
    /// It cannot be read.
    #[error("read {len} bytes at {offset}: {source}")]
    Io {
        /// The offset.
        offset: u64,
        /// The length.
        len: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file does not begin with `root`.
    #[error("not a ROOT file: it does not begin with `root`")]
    NotRoot,
    /// Its bytes contradict the format, or each other.
    #[error("at byte {offset}: {what}")]
    Malformed {
        /// The offset in the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A feature that this version does not read.
    #[error("{what}")]
    Unsupported {
        /// The feature.
        what: String,
    },
    /// A checksum within the file is wrong.
    #[error("at byte {offset}: the checksum of {what} is wrong; the file is damaged")]
    Checksum {
        /// The offset in the file.
        offset: u64,
        /// The part with the checksum.
        what: &'static str,
    },
}

impl RootFileError {
    pub(super) fn malformed(offset: u64, what: impl Into<String>) -> Self {
        Self::Malformed { offset, what: what.into() }
    }

    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }
}
