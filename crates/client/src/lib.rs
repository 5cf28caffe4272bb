//! The client: talks `root://` to any server, weir's or another.
//!
//! What it promises:
//!
//! - Redirects are followed, waiting that a server asks for is done (for so long in all, and what else is under way goes on
//!   meanwhile), lost connections are made again; what cannot be repeated without doing it twice is not repeated.
//! - Nothing waits for ever: not for a server that is silent, for one that sends a byte a second, nor after it was told to [`Stop`].
//! - A writer or reader that loses its connection opens its file again and goes on where the server had acknowledged.
//! - Bytes are received where the caller wants them and sent from where they lie: no copy of bulk data is made here.
//! - Every length from a server is bounded before it is used, and no answer makes it panic.
//! - Errors say what was tried, at which server, and what went wrong ([`ClientError`]).
//!
//! It is blocking code: one [`Session`] is one connection with any number of requests under way, used by one thread.
//! Somebody who wants more at a time uses more sessions. That costs the least CPU a byte, and nothing here waits for two things at once.
//!
//! What it leaves to others: local files, progress, what is copied where (`weir cp`).

mod copying;
mod direct;
mod error;
mod file;
mod fs;
mod listing;
mod many;
mod pace;
mod reader;
mod recovery;
mod session;
mod settings;
mod stats;
mod striped;
mod sums;
mod units_writer;
mod url;
mod vector;
mod writer;
mod written;

pub use direct::{Opened, Units};
pub use error::{ClientError, Kind};
pub use file::RemoteFile;
pub use fs::{Client, Space};
pub use listing::{Entry, ListingParser};
pub use many::{BatchWriter, ManyReader, ManyWriter, Read, SmallFile, Written};
pub use reader::{Chunk, Reader};
pub use session::{Incoming, Session};
pub use settings::{Met, Reach, Settings, Stop};
pub use striped::{StripedAt, StripedReader, StripedWriter};
pub use sums::{Algorithm, Sum};
pub use units_writer::UnitsWriter;
pub use url::{Endpoint, Url, UrlError};
pub use vector::{SEGMENT_MAX, Span, Trips};
pub use wire::batch::Limits as BatchLimits;
pub use wire::request::{DirlistOptions, OpenOptions};
pub use wire::response::StatFlags;
pub use writer::{Sent, Writer};
