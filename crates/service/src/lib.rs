//! The operations that a front end can request, as plain data: names, open files, reads and writes, checksums,
//! third-party copies.
//!
//! A front end turns the requests of its protocol into calls of [`Service`] on behalf of a [`Caller`]. It turns the
//! results into the answers of its protocol. The service and the crates below it decide what is allowed and in what
//! order it happens. A front end decides nothing.
//!
//! # A read and a write
//!
//! - Reading: [`Service::session`], [`Service::open`] with [`Intent::Read`], [`Service::file`], then
//!   [`OpenFile::bounded`] and [`OpenFile::read`] for each part, and [`Service::close`]. Data is checked before it is
//!   handed out. [`OpenFile::read`] runs on the calling thread.
//! - Writing: [`Service::open`] with [`Intent::Write`], [`OpenFile::write`] or [`WritePart::store`] for each part, and
//!   [`Service::close`]. The file is safe when the close is answered, not before. [`Service::discard`] instead of the
//!   close leaves nothing of a new file, and the old file of an overwrite.
//! - Names: [`Service::change`], [`Service::stat`], [`Service::list`], the attributes and the checksums. They need no
//!   open file.
//!
//! `tests/line/mod.rs` is a whole front end in about 260 lines of code, and `tests/front_end.rs` drives it on a single node and in a
//! cluster.
//!
//! # Duties of a front end
//!
//! 1. **Identity.** Make the [`Caller`] from credentials, and call [`Caller::with_client`]. All opens for writing of
//!    one client count as one writer of a new file: a second open of the same path takes the first one's place. A complete
//!    file can have several writers: each open for update joins the others of its principal, unless it appends. A protocol
//!    without client processes must use an identity that is unique to the request.
//! 2. **Sessions.** [`Service::enrol`] a session that outlives a request, and [`Service::end_session`] when it ends, also
//!    when its connection is gone: its open writes then wait for their client during the grace period.
//!    [`Service::let_go`] does that to the open files alone.
//! 3. **Answers.** Most calls that change something answer through an [`Answer`], perhaps later and on another thread.
//!    That thread must not wait: hand the answer on. Run a [`LongWork`] on a thread that may wait.
//! 4. **Errors.** Match the variant: [`Error::Redirect`] sends the client to another node, [`Error::Wait`] asks it to
//!    repeat the request, and only the others are final. Make the URL of a redirect from [`Redirect::address`], which
//!    fails if the node has no address for your protocol, and [`Redirect::shows`]. A redirected client must bring what
//!    it shows back in its [`Hints`]. Opens for writing and reading are sent only to nodes that have an address for
//!    [`Caller::protocol`].
//! 5. **Fairness.** Take a slot of [`Service::transfers`] for each part above [`SMALL_TRANSFER_BYTES`], and give it back
//!    while you wait for the client. Take memory for data from [`Service::buffers`] alone. Bound your connections with
//!    [`Shares`].
//! 6. **Audit.** Tell with [`Service::logged_in`] and [`Service::login_refused`] who has logged in and who was not let in. The
//!    service writes the other lines itself.
//! 7. **Counting.** Report moved bytes to [`Service::counters`], and input that is no request of your protocol to
//!    [`Service::alarms`]. Report the ranges of each answered read to [`OpenFile::was_read`], so that the service can read
//!    ahead. Tell the service with [`WritePart::refuse`] about bytes that the client sent and you could not
//!    take, so that it never completes the file.
//! 8. **Aborted uploads.** When a client aborts, or its data breaks off and your protocol has no way to continue, call
//!    [`Service::discard`]. Otherwise what was written waits for the client during the grace period, and is then kept as
//!    interrupted.
//! 9. **Stopping.** When [`Service::is_stopping`], take no new requests. `weir` stops the front ends before the service.
//!
//! # Request numbers
//!
//! A protocol whose clients repeat a request when its answer was lost can give it a number ([`RequestNumber`], in a
//! session of [`Service::begin_numbering`]). The request is then done once. The rules:
//! - Opens for writing ([`Open::request`]), closes, truncations and changes by name take a number, also of striped files.
//!   An attribute change takes one number for each attribute. Reads need none. [`Service::discard`] takes none: repeated,
//!   it finds no open file, and nothing is left to discard.
//! - Batches ([`NewFiles`], [`OpenAtOnce`]) have no numbers, and their types have no place for one. A client repeats the
//!   batch; files that exist by then are reported as existing.
//! - A number is good for one request. It stays usable after [`Error::Wait`]: repeat the same request. After any other
//!   answer the client uses the next number.
//! - A repeated request whose first one is still under way is told to wait, and then gets its outcome.
//! - A number that is too old, of an unknown session or used for another request is refused in words, and nothing has
//!   happened: a file whose close is refused for that stays open.
//! - In a cluster the client repeats a request where it began, at the manager. If a manager restarts while a close is
//!   under way, it does not know of the close until that is done: it answers that the file is not open. The client then
//!   opens the file again for update, which continues the write or shows that it has ended.
//! - A node keeps 4,096 sessions, of which one principal has at most 1,024. A session that had no change for a day gives
//!   way to a new one; its client is told to begin a new session. A client over the limit is refused with
//!   [`types::ErrorCode::TooMany`]. End sessions with [`Service::end_numbering`].
//!
//! # Promises
//!
//! - A close succeeds only when the object and its name are on the disk.
//! - A discard succeeds only when a power failure cannot bring anything of the write back.
//! - A writer that lost its connection can return during the grace period, even after a restart of the server. Its
//!   old handles are fenced before the new one can write: those of the sessions that have ended, and of a new file all of
//!   them. If it does not return, the service completes a file that is
//!   known to be whole, and marks any other file as interrupted.
//! - A caller can take over, end or read an open write only as the same client *and* principal as its writer.
//! - [`Limits`] bounds everything that callers can make the service hold. Shares keep one machine from using all of
//!   it.
//!
//! Other crates define names and objects and make them durable (`namespace`, `store`), and agree on the state of a
//! cluster (`manager`, `disk_server`). Front ends handle protocols: this crate has no frames, no sockets and no
//! protocol numbers. An [`Error`] carries a code of `types`.

mod acls;
mod answer;
mod attributes;
mod audit;
mod behind;
mod buffers;
mod caller;
mod changes;
mod checkpoint;
mod checksums;
mod closing;
mod complaints;
mod config;
mod conflicts;
mod copying;
mod creates;
mod discarding;
mod endings;
mod error;
mod explain;
mod fair;
mod figures;
mod growth;
mod handles;
mod keeper;
mod lease;
mod leaving;
mod listing;
mod missing;
mod names;
mod new_files;
mod numbered;
mod numbers;
mod open_file;
mod open_writes;
mod opening;
mod part;
mod principals;
mod quotas;
mod read_ahead;
mod reading;
mod service;
mod session;
mod sessions;
mod settings;
mod sharers;
mod shares;
mod standby;
mod stores;
mod striped;
mod third_party;
mod transfers;
mod waiting_reads;
mod workers;
mod write_target;
mod writer_memory;
mod writers;
mod writing;
mod xattrs;

// What every front end needs.
pub use acls::AclChange;
pub use answer::Answer;
pub use attributes::{FileKind, Stat};
pub use caller::{Caller, Login, Principal, Rights};
pub use changes::Change;
pub use checksums::FileSums;
pub use closing::LongWork;
pub use error::{Error, FOLLOW_KEY, RETURNS_KEY, Redirect, SAME_OBJECT_KEY};
pub use explain::{Doing, Explained, Question};
pub use handles::Handle;
pub use listing::{ListEntry, Listing};
pub use namespace::QuotaSpace;
pub use open_file::{OpenFile, SUM_LEN};
pub use opening::{GoOn, Hints, Intent, Open, Opened, UnitHint, WriteMode};
pub use quotas::{LimitedOwner, ListedTree, QuotaOwner, TreeActor};
pub use read_ahead::ReadAheadFigures;
pub use service::{Role, Service, StartError};
pub use session::{Process, Session};
pub use shares::{Shares, network};
pub use standby::{ActiveManager, Standby};
pub use store::Space;
pub use types::{ClientAddress, RequestNumber};
pub use xattrs::{AttributeChange, Attributed, EachAttribute, NamedValues};

// Bulk data: parts of writes, reads of many ranges, buffers, transfer slots, and many small files at a time.
pub use behind::BackgroundStore;
pub use buffers::{Buffer, Buffers, GrowingBuffer};
pub use checkpoint::CheckpointSizes;
pub use copying::CopyRange;
pub use fair::Class;
pub use new_files::{NewFile, NewFiles, OpenAtOnce};
pub use part::{Judged, Part as WritePart, lead_of, pages_in};
pub use reading::{Vectored, framed_len};
pub use store::{Lent, PageSum};
pub use transfers::{Sharer, TransferSlot, Transfers, UserKey};
pub use writer_memory::Room;

// Third-party copies.
pub use third_party::{Cancelled, Part, Pull, PullLeave, PullSink, PullSource};

// Configuration, wiring and figures, for `weir`.
pub use complaints::Complaints;
pub use config::{
    Config, Fetcher, Limits, PlantedBug, PutsTogether, READV_STEP_BYTES, SMALL_TRANSFER_BYTES, TRANSFER_BYTES, Times,
    Unfinished, UnfinishedPolicy, WRITE_BUFFERS_SHARE, WRITE_BYTES,
};
pub use disk_server::FrontEndFigures;
pub use figures::{Bounded, Counters, DELETIONS_COUNTED_MAX, Figures};
pub use striped::{StripedError, StripedFile, StripedOpen, Striper};
