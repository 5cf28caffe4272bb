//! What a file is read from: a server, or the servers of all its stripe units.

use std::time::Duration;

use client::{Another, Client, ClientError, Endpoint, Kind, Opened as Found, Reader, RemoteFile, Session, Span};
use client::{StripedReader, Units, Url};
use wire::request::OpenOptions;
use wire::response::StatReply;

use crate::error::is_over;

/// The most connections to the servers of one striped file, unless two readers already have more.
const UNIT_CONNECTIONS_MAX: usize = 16;

/// One way to the bytes of an open file. One thread uses it.
#[allow(clippy::large_enum_variant)] // few, and moved seldom
pub enum Source {
    /// A connection to a server that has the file, or puts it together.
    File(RemoteFile),
    /// A connection to the server of each stripe unit.
    Units(StripedReader),
}

impl Source {
    /// Reads all `spans`, one behind the other, into `into`.
    ///
    /// # Errors
    /// A server refuses, or a connection fails and cannot be restored.
    pub fn read_spans(&mut self, spans: &[Span], into: &mut [u8]) -> Result<(), ClientError> {
        match self {
            Self::File(file) => file.read_spans(spans, into),
            Self::Units(units) => units.read_spans(spans, into),
        }
        .map(drop)
    }

    /// Returns its server, if it is one.
    pub fn server(&self) -> Option<&Endpoint> {
        match self {
            Self::File(file) => Some(&file.url().server),
            Self::Units(_) => None,
        }
    }

    /// Closes a file, and waits until the server has. Returns the connection. Those to units just end: no server of them
    /// lets an open file keep a writer out.
    pub fn give_up(self) -> Option<Session> {
        match self {
            Self::File(file) => Reader::<Vec<u8>>::new(file).give_up(),
            Self::Units(_) => None,
        }
    }
}

/// How the file was opened first, which is how it is opened again.
#[allow(clippy::large_enum_variant)] // one for each open file
pub enum Origin {
    File {
        /// Other servers may have replicas.
        spreads: bool,
        /// The round trip time to the first server.
        near: Duration,
    },
    Units(Units),
}

/// A file after a later open.
pub struct Again {
    pub stat: StatReply,
    /// `None`: it is another file, or must be read in another way.
    pub source: Option<Source>,
    /// A server that was not in use has refused or failed, or is far away.
    pub was_rejected: bool,
}

/// A file after its first open.
pub struct Opened {
    pub source: Source,
    pub stat: StatReply,
    /// Its first bytes, if the server has sent them with the open.
    pub beginning: Vec<u8>,
    pub origin: Origin,
}

impl Opened {
    /// Opens a file: a striped one at the servers of its units, or, if that fails before the user's time is used up, as
    /// stock clients do, at a server that puts it together. `kib`: how much of its beginning is asked for.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open(client: &mut Client, url: &Url, kib: u8) -> Result<Self, ClientError> {
        let file = match client.open_direct_to_read(url, kib) {
            Ok(Found::File(file)) => file,
            Ok(Found::Units(units)) => match units.open_reader() {
                Ok(reader) => {
                    let (source, stat) = (Source::Units(reader), units.stat());
                    return Ok(Self { source, stat, beginning: Vec::new(), origin: Origin::Units(units) });
                }
                Err(error) if is_over(&error) => return Err(error),
                Err(_) => client.open_to_read(url, kib)?,
            },
            // Of a server that minds the question.
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Usage) => client.open_to_read(url, kib)?,
            Err(error) => return Err(error),
        };
        Ok(Self::of(file))
    }

    fn of(mut file: RemoteFile) -> Self {
        let origin = Origin::File { spreads: file.may_have_replicas(), near: file.round_trip() };
        let (stat, beginning) = (file.stat().clone(), file.take_beginning());
        Self { source: Source::File(file), stat, beginning, origin }
    }
}

impl Origin {
    /// Opens the file again in the same way, at a server that is not among `used` if possible.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open_again(&self, client: &mut Client, url: &Url, used: &[Endpoint]) -> Result<Again, ClientError> {
        let (stat, source) = match self {
            Self::File { spreads, near } => {
                let used = if *spreads { used } else { &[] };
                let Another { file, was_rejected } = client.open_at_another(url, used, *near)?;
                return Ok(Again { stat: file.stat().clone(), source: Some(Source::File(file)), was_rejected });
            }
            Self::Units(before) => match client.open_direct(url, OpenOptions::READ, 0)? {
                Found::Units(units) if units.is_same_version(before) => {
                    let reader = units.open_reader()?;
                    (units.stat(), Some(Source::Units(reader)))
                }
                Found::Units(units) => (units.stat(), None),
                Found::File(file) => (file.stat().clone(), None),
            },
        };
        Ok(Again { stat, source, was_rejected: false })
    }

    /// Returns how many sources of it may be open, where a file that is not striped has `connections`.
    pub fn sources_max(&self, connections: usize) -> usize {
        match self {
            Self::File { .. } => connections,
            Self::Units(_) => connections.min((UNIT_CONNECTIONS_MAX / self.connections_of_each()).max(2)),
        }
    }

    /// Returns how many connections each source of it has.
    pub fn connections_of_each(&self) -> usize {
        match self {
            Self::File { .. } => 1,
            Self::Units(units) => usize::from(units.stripe().units_in(units.stat().size)).max(1),
        }
    }
}
