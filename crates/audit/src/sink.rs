//! Where lines go.

use std::path::PathBuf;

use crate::AuditError;
use crate::files::Files;
use crate::journald::Journald;

/// The settings of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where lines go.
    pub to: Destination,
    /// Also write lines about opens for reading. Denied ones are always written.
    pub reads: bool,
}

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// To files in a directory.
    Files(FileSettings),
    /// To systemd-journald, at its socket.
    Journald(PathBuf),
}

/// The files of a log: `audit-0000000001.jsonl` and so on. The highest number is the newest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSettings {
    /// Their directory. It is made if it is missing.
    pub directory: PathBuf,
    /// The most bytes in one file. A file that would become larger is followed by a new one.
    pub file_bytes: u64,
    /// How many files there are at most. The oldest one is removed for a new one.
    pub files_max: u32,
}

/// What stopped a batch, and how many of its lines are written.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) lines_written: u64,
    pub(crate) why: AuditError,
}

/// An open destination.
pub(crate) enum Sink {
    Files(Files),
    Journald(Journald),
}

impl Sink {
    pub(crate) fn open(to: &Destination) -> Result<Self, AuditError> {
        Ok(match to {
            Destination::Files(settings) => Self::Files(Files::open(settings.clone())?),
            Destination::Journald(socket) => Self::Journald(Journald::connect(socket)?),
        })
    }

    /// Writes whole lines.
    pub(crate) fn write(&mut self, lines: &[u8]) -> Result<(), Stopped> {
        match self {
            Self::Files(files) => files.append(lines),
            Self::Journald(journald) => journald.send(lines),
        }
    }

    /// Makes what was written safe from a power failure.
    pub(crate) fn sync(&mut self) -> Result<(), AuditError> {
        match self {
            Self::Files(files) => files.sync(),
            Self::Journald(_) => Ok(()),
        }
    }
}

/// The number of lines.
pub(crate) fn lines_in(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}
