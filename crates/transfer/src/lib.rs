//! Files copied and kept alike between this machine and servers, and between servers: `weir cp`, `weir sync`, and the tree of names that commands
//! on single files work on ([`tree`]).
//!
//! Promises: a local file gets its name when it is whole; what was copied is compared with the server's checksum; nothing that is there is
//! replaced without being asked for; a lost connection is made again, and the copy goes on. What can be wrong is one enum, [`TransferError`], each
//! with its exit code.
//!
//! The crate knows servers through `client` alone, and knows no command line: [`CopyOptions`] and [`SyncOptions`] are plain data.

mod bulk;
mod context;
mod copy;
mod ends;
mod error;
mod filter;
mod held_back;
mod local;
mod options;
mod ours;
mod outcome;
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
mod third_party;
mod times;
pub mod tree;
mod units;
mod workers;

pub use copy::copy;
pub use error::TransferError;
pub use filter::{Filter, Rule};
pub use local::Direct;
pub use options::{CopyOptions, SyncOptions, TransferOptions};
pub use place::Place;
pub use read::read_all;
pub use remove::remove;
pub use sums::SumOfParts;
pub use sync::sync;
