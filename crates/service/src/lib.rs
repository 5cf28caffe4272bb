//! What a front end can ask for, in plain data: names, open files, reads and writes, checksums, third-party copies.
//!
//! A front end (XRootD's, and the ones to come) turns its protocol's requests into calls of [`Service`], on behalf of a [`Caller`], and what comes
//! back into its protocol's answers. What may be done, and in what order, is decided here and below; a front end decides nothing.
//!
//! Promises:
//! - A close is answered when the content and its name are on the disk.
//! - A writer that lost its connection can come back for the grace period, also after a restart of the server; its old
//!   handles are fenced before the new one can write. What never comes back is completed if it is known to be whole,
//!   and marked interrupted otherwise.
//! - A caller takes over, ends or reads an open write only if client *and* principal are those of its writer.
//! - Everything that callers can make the service hold is bounded ([`Limits`]); shares keep one machine from taking all.
//!
//! Leaves to others: what a name or content is, and what is durable (`namespace`, `store`); what a cluster agrees on (`manager`, `disk-server`); and all that is
//! about protocols. It knows no frames, no sockets and no numbers of a protocol: an [`Error`] has a code of `types`.

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
pub use opening::{GoOn, Hints, How, Intent, Open, Opened, UnitHint};
pub use part::{Judged, Part as WritePart, lead_of, pages_in};
pub use reading::{Vectored, framed_len};
pub use service::{Role, Service, StartError};
pub use session::{Process, Session};
pub use shares::{Shares, network};
pub use store::{PageSum, Space};
pub use striped::{StripedError, StripedFile, StripedOpen, Striper};
pub use third_party::{Cancelled, Part, Pull, PullSink, PullSource};
pub use transfers::{Sharer, TransferSlot, Transfers, UserKey};
pub use writer_memory::Room;
pub use xattrs::{AttributeChange, Attributed, EachAttribute, NamedValues};
