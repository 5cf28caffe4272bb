//! The operations that a front end can request, as plain data: names, open files, reads and writes, checksums,
//! third-party copies.
//!
//! A front end turns the requests of its protocol into calls of [`Service`] on behalf of a [`Caller`]. It turns the
//! results into the answers of its protocol. The service and the crates below it decide what is allowed and in what
//! order it happens. A front end decides nothing.
//!
//! Promises:
//! - A close succeeds only when the object and its name are on the disk.
//! - A writer that lost its connection can return during the grace period, even after a restart of the server. Its
//!   old handles are fenced before the new one can write. If it does not return, the service completes a file that is
//!   known to be whole, and marks any other file as interrupted.
//! - A caller can take over, end or read an open write only as the same client *and* principal as its writer.
//! - [`Limits`] bounds everything that callers can make the service hold. Shares keep one machine from using all of
//!   it.
//!
//! Other crates define names and objects and make them durable (`namespace`, `store`), and agree on the state of a
//! cluster (`manager`, `disk_server`). Front ends handle protocols: this crate has no frames, no sockets and no
//! protocol numbers. An [`Error`] carries a code of `types`.

mod answer;
mod attributes;
mod behind;
mod buffers;
mod caller;
mod changes;
mod checkpoint;
mod checksums;
mod closing;
mod complaints;
mod config;
mod copying;
mod creates;
mod endings;
mod error;
mod fair;
mod figures;
mod handles;
mod keeper;
mod lease;
mod listing;
mod making;
mod missing;
mod names;
mod new_files;
mod numbered;
mod open_file;
mod open_writes;
mod opening;
mod part;
mod reading;
mod service;
mod session;
mod sessions;
mod settings;
mod shares;
mod stores;
mod striped;
mod third_party;
mod transfers;
mod workers;
mod writer_memory;
mod writers;
mod writing;
mod xattrs;

pub use answer::Answer;
pub use attributes::{FileKind, Stat};
pub use behind::Behind;
pub use buffers::{Buffer, Buffers, GrowingBuffer};
pub use caller::{Caller, Principal, Rights};
pub use changes::Change;
pub use checkpoint::CheckpointSizes;
pub use checksums::FileSums;
pub use closing::LongWork;
pub use complaints::Complaints;
pub use config::{
    Config, Fetcher, Limits, Planted, PutsTogether, READV_STEP_BYTES, SMALL_TRANSFER_BYTES, TRANSFER_BYTES, Times,
    WRITE_BUFFERS_SHARE, WRITE_BYTES,
};
pub use copying::CopyRange;
pub use disk_server::FrontEndFigures;
pub use error::{Error, Redirect};
pub use fair::Class;
pub use figures::{Bounded, Counters, DELETIONS_COUNTED_MAX, Figures};
pub use handles::Handle;
pub use listing::{ListEntry, Listing};
pub use new_files::{NewFile, NewFiles, OpenAtOnce};
pub use open_file::{OpenFile, SUM_LEN};
pub use opening::{GoOn, Hints, Intent, Open, Opened, UnitHint, WriteMode};
pub use part::{Judged, Part as WritePart, lead_of, pages_in};
pub use reading::{Vectored, framed_len};
pub use service::{Role, Service, StartError};
pub use session::{Process, Session};
pub use shares::{Shares, network};
pub use store::{PageSum, Space};
pub use striped::{StripedError, StripedFile, StripedOpen, Striper};
pub use third_party::{Cancelled, Part, Pull, PullSink, PullSource};
pub use transfers::{Sharer, TransferSlot, Transfers, UserKey};
pub use types::RequestNumber;
pub use writer_memory::Room;
pub use xattrs::{AttributeChange, Attributed, EachAttribute, NamedValues};
