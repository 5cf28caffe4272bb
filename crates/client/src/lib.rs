//! The client: speaks `root://` and `roots://` to any server, weir's or another.
//!
//! # Promises
//!
//! - It follows redirects, waits when a server asks for it (for a bounded time in all, while other requests
//!   continue), and connects again. It does not repeat a request that could take effect twice.
//! - It never waits for ever: not for a silent server, not for one that sends a byte a second, and not after a
//!   [`Stop`]. All waits and retries of a request share one deadline (`deadline`), and a [`Watch`] hears of each wait
//!   of more than two seconds.
//! - A writer or reader that loses its connection opens its file again and continues after the last acknowledged
//!   byte.
//! - It receives bytes into the caller's memory and sends them from there, without a copy of bulk data.
//! - It checks every length from a server before it uses it, and no answer makes it panic.
//! - Errors say what was tried, at which server, and what went wrong ([`ClientError`]).
//!
//! The code is blocking. One [`Session`] is one connection with any number of requests under way, used by one
//! thread. Callers that need more concurrency use more sessions. That costs the least CPU per byte.
//!
//! # TLS and credentials
//!
//! With `roots://` everything is encrypted from the first request on, and the server must have a certificate with its
//! name, signed by one of the [`Authorities`]. With `root://` that is so where the server requires it. A redirect
//! never takes TLS away, and no setting leaves out the checks. If a server wants to know who the client is, it gets what
//! [`Credentials`] has for one of the methods that it offers; a token goes over TLS only.
//!
//! # In a cluster
//!
//! The client returns to the manager when its server is gone, cannot be reached in the first place (`fs`), or gave
//! a damaged replica (`recovery`). It reads and writes the units of a striped file directly: [`UnitsWriter`] has a
//! thread for each unit, and [`StripedReader`] requests parts of all units at the same time. A further connection to a
//! file goes to another replica if there is one ([`Client::open_at_another`]).
//!
//! It leaves local files, progress reports and the choice of what is copied where to `weir cp`.

mod ahead;
mod authorities;
mod connect;
mod copying;
mod credentials;
mod deadline;
mod direct;
mod error;
mod file;
mod file_state;
mod follower;
mod fs;
mod listing;
mod many;
mod pace;
mod ranges;
mod rate;
mod reader;
mod recovery;
mod replicas;
mod sealed;
mod session;
mod settings;
mod stats;
mod striped;
mod striped_vector;
mod sums;
mod units_writer;
mod url;
mod vector;
mod waiting;
mod watch;
mod writer;
mod written;

/// The most of a file's beginning that a weir server sends with its open, in KiB.
pub const BEGINNING_KIB_MAX: u8 = 64;

pub use ahead::{Pattern, Window};
pub use authorities::Authorities;
pub use credentials::{
    CertificateSource, Credentials, Delegation, HeldProxy, Method, Token, TokenSource, UserCertificate,
};
pub use direct::{Opened, OpenedToRead, Units};
pub use error::{ClientError, Kind};
pub use file::RemoteFile;
pub use file_state::FileState;
pub use follower::{AtEnd, FollowError, Follower};
pub use fs::{Client, Space};
pub use listing::{Entry, ListingParser};
pub use many::{BatchWriter, ManyReader, ManyWriter, Read, SmallFile, SmallFileResult};
pub use ranges::{ReadPlan, Share};
pub use rate::RateLimit;
pub use reader::{Chunk, Reader};
pub use replicas::{Another, ServersInUse};
pub use session::{Incoming, Session};
pub use settings::{AllowedServers, ReachedServers, Settings, Stop};
pub use striped::{RESUMED, StripedAt, StripedReader, StripedWriter};
pub use sums::{Algorithm, Sum};
pub use units_writer::UnitsWriter;
pub use url::{Endpoint, Url, UrlError};
pub use vector::{RoundTrips, SEGMENT_MAX, Span};
pub use watch::{Wait, WaitReason, Watch};
pub use wire::batch::Limits as BatchLimits;
pub use wire::request::{DirlistOptions, OpenOptions};
pub use wire::response::StatFlags;
pub use writer::{Sent, Writer};
