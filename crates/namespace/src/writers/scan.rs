//! Who is writing (`W`).

use types::{ClientIdentity, NsPath, ObjectId};

use crate::scan::collect;
use crate::{NsError, Read, WriterKey, WriterRecord, keys};

/// Those who write, in key order after `after`, at most `limit`.
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

/// Some of those who write.
#[derive(Debug, Default)]
pub struct WritersPage {
    /// In key order.
    pub writers: Vec<WriterRecord>,
    /// Those between them whose records do not read, and why.
    pub damaged: Vec<((WriterKey, ObjectId), NsError)>,
    /// Behind which it goes on; `None`: there are no others.
    pub next: Option<(WriterKey, ObjectId)>,
}

/// As [`writers`], for who looks after all of them: one whose record does not read keeps nobody from those behind it.
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

/// The writer of a content, as its state names it.
pub fn writer_of(read: &dyn Read, key: WriterKey, object: ObjectId) -> Result<Option<WriterRecord>, NsError> {
    WriterRecord::get(read, key, object)
}

/// Most writers of one client and path that are looked at.
const SAME_MAX: usize = 64;

/// The writers that a re-open of `path` by `client` would match. A server asks before it opens when the machine has
/// booted since, to learn from the store whether bytes were lost ([`crate::OpenWrite::vouched`]).
pub fn find_writer(read: &dyn Read, client: &ClientIdentity, path: &NsPath) -> Result<Vec<WriterRecord>, NsError> {
    let prefix = keys::writers_of(keys::writer_key(client, path.as_bytes()));
    collect(read, &prefix, &keys::end_of(&prefix), SAME_MAX, |key, value| {
        let writer = WriterRecord::read(key, value)?;
        Ok(writer.is_of(client, path).then_some(writer))
    })
}
