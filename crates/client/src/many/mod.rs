//! Many small files over one connection: the requests for dozens of them are under way at once, so that a file costs no
//! round trip of its own.
//!
//! A file's write and close are sent together. Data travels as pages with their CRC32C where the server takes them, so
//! each file is checked on arrival without a further question. After a lost connection nothing is repeated here: the
//! caller gets back what was not finished, and knows what is known of each ([`SmallFile::made`]). A file that the server
//! puts off (kXR_wait) is asked for again later, while the others go on. A server of weir's takes files to be written in batches
//! ([`BatchWriter`]): hundreds in one request, each with its content, so that they share the server's syncs.

mod batch;
mod lane;
mod reader;
mod upload;
mod writer;

use std::time::Instant;

use crate::pace::Waits;

pub use batch::BatchWriter;
pub use reader::{ManyReader, Read};
pub use upload::SmallFile;
pub use writer::{ManyWriter, Written};

/// Takes one out of those that the server has put off, if one is to be asked for again by now.
fn take_due<T>(later: &mut Vec<T>, now: Instant, waits: impl Fn(&T) -> &Waits) -> Option<T> {
    let due = later.iter().position(|one| waits(one).is_due(now))?;
    Some(later.swap_remove(due))
}
