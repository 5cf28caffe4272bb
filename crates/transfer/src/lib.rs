//! Copies and synchronises files between this machine and servers, and between servers: `weir cp` and `weir sync`. Also the tree of names
//! for the commands on single files ([`tree`]).
//!
//! Promises: a local file gets its name when it is whole. Each copy is compared with the server's checksum. Nothing existing is replaced
//! without a request. After a lost connection, the copy reconnects and continues. All errors are one enum, [`TransferError`], each with its
//! exit code.
//!
//! The crate reaches servers only through `client`, and knows no command line: [`CopyOptions`] and [`SyncOptions`] are plain data.

mod bulk;
mod context;
mod copy;
mod ends;
mod error;
mod filter;
mod follow;
mod held_back;
mod local;
mod options;
mod outcome;
mod own_target;
mod place;
mod plan;
mod pool;
mod progress;
mod read;
mod remove;
mod resume;
mod stream;
mod sums;
mod sync;
mod target;
mod third_party;
mod times;
pub mod tree;
mod units;
mod waits;
mod workers;

pub use copy::copy;
pub use error::TransferError;
pub use filter::{Filter, Rule};
pub use local::Direct;
pub use options::{CopyOptions, SyncOptions, TransferOptions};
pub use place::CopyPath;
pub use read::read_all;
pub use remove::{Removal, RemovalEvent, remove};
pub use sums::PartChecksums;
pub use sync::sync;
pub use waits::{Shown, WaitNotices};
