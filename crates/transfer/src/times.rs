//! Modification times that a copy keeps (`--preserve`): in nanoseconds since 1970, as servers and local files give them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use types::Timestamp;
use wire::response::StatReply;

/// The time of a file at a server, which gives seconds.
#[must_use]
pub fn of_server(stat: &StatReply) -> Timestamp {
    Timestamp::from_secs(stat.mtime)
}

/// The time of a local file.
#[must_use]
pub fn of_local(metadata: &Metadata) -> Timestamp {
    Timestamp(Timestamp::from_secs(metadata.mtime()).0.saturating_add(metadata.mtime_nsec()))
}

/// The words with which weir's servers take a time, behind the path of an open or a touch. Other servers ignore them.
#[must_use]
pub fn words(mtime: Timestamp) -> String {
    format!("weir.mtime={}", mtime.0)
}

/// The time as the system takes it.
#[must_use]
pub fn to_system(mtime: Timestamp) -> SystemTime {
    let distance = Duration::from_nanos(mtime.0.unsigned_abs());
    if mtime.0 < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}
