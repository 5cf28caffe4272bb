//! Files that were interrupted not long ago: the tombstones of their writers lead to them.

use kv::Read;
use types::NsPath;

use crate::codec::BadValue;
use crate::scan::collect;
use crate::{Actor, EndedWriter, FileState, NsError, WriterEnd, WriterKey, keys, stat_no_follow};

/// Tombstones that are read at a time.
const PAGE: usize = 1024;

/// The number of files that were interrupted lately, and still are under the path at which they were written: as long as tombstones are kept
/// ([`crate::Limits::tombstone_keep`]). Examines about `most` tombstones; the second value tells whether there are more.
///
/// # Errors
/// When the namespace cannot be read.
pub fn interrupted_lately(read: &dyn Read, most: usize) -> Result<(u64, bool), NsError> {
    let (mut count, mut examined) = (0, 0);
    let mut start = b"Y".to_vec();
    loop {
        let page = collect(read, &start, b"Z", PAGE, |key, value| {
            let bad = || BadValue::Damaged("the key of an ended writer has a wrong length").at(key);
            let number = keys::number_at(key, 1).map(WriterKey).ok_or_else(bad)?;
            EndedWriter::decode(number, value).map(Some).map_err(|error| error.at(key))
        })?;
        for ended in page.iter().filter(|ended| ended.how == WriterEnd::Interrupted) {
            count += u64::from(is_still_interrupted(read, ended)?);
        }
        examined += page.len();
        let Some(last) = page.last().filter(|_| page.len() == PAGE) else { return Ok((count, false)) };
        if examined >= most {
            return Ok((count, true));
        }
        start = keys::ended(last.key).to_vec();
        start.push(0);
    }
}

fn is_still_interrupted(read: &dyn Read, ended: &EndedWriter) -> Result<bool, NsError> {
    let Ok(path) = NsPath::parse(&ended.path) else { return Ok(false) };
    match stat_no_follow(read, &Actor::admin(), &path) {
        Ok(inode) => Ok(inode.content().is_some_and(|content| {
            content.object == ended.object && matches!(content.state, FileState::Interrupted(_))
        })),
        Err(error @ NsError::Damaged { .. }) => Err(error),
        // The file was removed or renamed since.
        Err(_) => Ok(false),
    }
}
