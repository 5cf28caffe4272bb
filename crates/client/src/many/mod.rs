//! Many small files over one connection. The requests for dozens of files are under way at once, so that no file
//! costs a round trip of its own.
//!
//! A file's write and close are sent together. If the server supports it, data travels as pages with their CRC32C,
//! so that each file is checked on arrival without another request. After a lost connection this module repeats
//! nothing. The caller gets back the unfinished files, with what is known of each ([`SmallFile::made`]). A file
//! that the server defers (kXR_wait) is requested again later, while the others continue. A weir server takes
//! written files in batches ([`BatchWriter`]): one request carries hundreds of files with their bytes, so that they
//! share the server's syncs.

mod batch;
mod lane;
mod reader;
mod upload;
mod writer;

use std::time::Instant;

use crate::pace::WaitLimit;

pub use batch::BatchWriter;
pub use reader::{ManyReader, Read};
pub use upload::SmallFile;
pub use writer::{ManyWriter, SmallFileResult};

/// Takes a deferred file whose time has come, if there is one.
fn take_due<T>(later: &mut Vec<T>, now: Instant, waits: impl Fn(&T) -> &WaitLimit) -> Option<T> {
    let due = later.iter().position(|one| waits(one).is_due(now))?;
    Some(later.swap_remove(due))
}
