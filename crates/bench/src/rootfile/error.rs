//! Why a ROOT file was not understood.

use std::io;

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum RootFileError {
    /// It cannot be read.
    #[error("read {len} bytes at {offset}: {source}")]
    Io {
        /// Where.
        offset: u64,
        /// How much.
        len: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// It begins with something else than `root`.
    #[error("it is no ROOT file: it does not begin with `root`")]
    NotRoot,
    /// Its bytes contradict the format, or each other.
    #[error("at byte {offset}: {what}")]
    Malformed {
        /// Where in the file.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Something that this version does not read.
    #[error("{what}")]
    Unsupported {
        /// What.
        what: String,
    },
    /// A checksum within the file is wrong.
    #[error("at byte {offset}: the checksum of {what} is wrong; the file is damaged")]
    Checksum {
        /// Where in the file.
        offset: u64,
        /// Of what.
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
