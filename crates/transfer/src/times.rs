//! Times of the last change that are kept (`--preserve`): in nanoseconds since 1970, as the servers' own and the local ones are read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use types::Timestamp;
use wire::response::StatReply;

/// Of a file at a server, which tells seconds.
#[must_use]
pub fn of_server(stat: &StatReply) -> Timestamp {
    Timestamp::from_secs(stat.mtime)
}

/// Of a local file.
#[must_use]
pub fn of_local(metadata: &Metadata) -> Timestamp {
    Timestamp(Timestamp::from_secs(metadata.mtime()).0.saturating_add(metadata.mtime_nsec()))
}

/// As weir's servers take it behind the path of an open or a touch; others leave such words alone.
#[must_use]
pub fn words(mtime: Timestamp) -> String {
    format!("weir.mtime={}", mtime.0)
}

/// As the system takes it.
#[must_use]
pub fn to_system(mtime: Timestamp) -> SystemTime {
    let distance = Duration::from_nanos(mtime.0.unsigned_abs());
    if mtime.0 < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}
