//! Scans of the open writes (`W`).

use types::{ClientIdentity, NsPath, ObjectId};

use crate::scan::collect;
use crate::{NsError, Read, WriterKey, WriterRecord, keys};

/// The open writes, in key order after `after`, at most `limit`.
pub fn writers(
    read: &dyn Read,
    after: Option<(WriterKey, ObjectId)>,
    limit: usize,
) -> Result<Vec<WriterRecord>, NsError> {
    collect(read, &after_writer(after), b"X", limit, |key, value| WriterRecord::read(key, value).map(Some))
}

fn after_writer(after: Option<(WriterKey, ObjectId)>) -> Vec<u8> {
    let Some((key, object)) = after else { return b"W".to_vec() };
    let mut start = keys::writer(key, object).to_vec();
    start.push(0);
    start
}

/// A page of open writes.
#[derive(Debug, Default)]
pub struct WritersPage {
    /// In key order.
    pub writers: Vec<WriterRecord>,
    /// The keys of damaged records in this page, and why each cannot be decoded.
    pub damaged: Vec<((WriterKey, ObjectId), NsError)>,
    /// Where the next page starts; `None`: this is the last one.
    pub next: Option<(WriterKey, ObjectId)>,
}

/// Like [`writers`], for a caller that handles all of them: a damaged record does not hide the records after it.
pub fn writers_page(
    read: &dyn Read,
    after: Option<(WriterKey, ObjectId)>,
    limit: usize,
) -> Result<WritersPage, NsError> {
    let mut page = WritersPage::default();
    let records = collect(read, &after_writer(after), b"X", limit, |key, value| {
        let (of, record) = (WriterRecord::at(key)?, WriterRecord::read(key, value));
        Ok(Some((of, record)))
    })?;
    page.next = records.last().filter(|_| records.len() >= limit).map(|(of, _)| *of);
    for (of, record) in records {
        match record {
            Ok(writer) => page.writers.push(writer),
            Err(error) => page.damaged.push((of, error)),
        }
    }
    Ok(page)
}

/// The writer of an object, as the state of its file names it.
pub fn writer_of(read: &dyn Read, key: WriterKey, object: ObjectId) -> Result<Option<WriterRecord>, NsError> {
    WriterRecord::get(read, key, object)
}

/// The most writers of one client and path that a re-open examines.
const SAME_MAX: usize = 64;

/// The writers that a re-open of `path` by `client` would match. After a restart of the machine, a server calls this before the open. It then asks
/// the store whether bytes were lost ([`crate::OpenWrite::recovered`]).
pub fn find_writer(read: &dyn Read, client: &ClientIdentity, path: &NsPath) -> Result<Vec<WriterRecord>, NsError> {
    let prefix = keys::writers_of(keys::writer_key(client, path.as_bytes()));
    collect(read, &prefix, &keys::end_of(&prefix), SAME_MAX, |key, value| {
        let writer = WriterRecord::read(key, value)?;
        Ok(writer.is_of(client, path).then_some(writer))
    })
}
