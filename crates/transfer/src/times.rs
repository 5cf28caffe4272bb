//! Modification times that a copy keeps (`--preserve`): in nanoseconds since 1970, as servers and local files give them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::{Client, Kind};
use types::Timestamp;
use wire::request::QueryKind;
use wire::response::StatReply;

use crate::context::Context;
use crate::error::TransferError;
use crate::local::KeptAttributes;
use crate::place::CopyPath;

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

/// Sets the time and mode of a file or directory that is there. A server that takes no times gets the mode.
///
/// # Errors
/// They cannot be set.
pub fn keep(
    context: &Context,
    client: &mut Client,
    place: &CopyPath,
    kept: KeptAttributes,
) -> Result<(), TransferError> {
    match place {
        CopyPath::Local(path) => std::fs::File::open(path)
            .and_then(|file| kept.put(&file))
            .map_err(TransferError::local("set the time and mode of", path)),
        CopyPath::Remote(url) => {
            match client.chmod(url, kept.mode) {
                Err(error) if error.kind() != Kind::Unsupported => return Err(error.into()),
                _ => {}
            }
            if context.keeps_times(client, url)? {
                let args = format!("{}?weir.op=touch&{}", url.path, words(kept.mtime)).into_bytes();
                client.query(url, "set the time of", QueryKind::OpaqueFile, args)?;
            }
            Ok(())
        }
        CopyPath::Standard => Ok(()),
    }
}
