//! Who is writing (`W`), and which bodies are there (`B`).

use std::ops::ControlFlow;

use kv::{Read, ScanOrder};
use types::{BodyId, ClientIdentity, GroupId, NsPath};

pub use types::WriterToken;

use crate::codec::BadValue;
use crate::{BodyRecord, NsError, WriterKey, WriterRecord, keys};

/// Scans `start..end`, decoding each entry, until `limit` were kept.
pub(crate) fn collect<T>(
    read: &dyn Read,
    start: &[u8],
    end: &[u8],
    limit: usize,
    mut decode: impl FnMut(&[u8], &[u8]) -> Result<Option<T>, NsError>,
) -> Result<Vec<T>, NsError> {
    let (mut found, mut bad) = (Vec::new(), None);
    if limit == 0 {
        return Ok(found);
    }
    read.scan(start, end, ScanOrder::Ascending, &mut |key, value| {
        match decode(key, value) {
            Ok(Some(entry)) => found.push(entry),
            Ok(None) => {}
            Err(error) => bad = Some(error),
        }
        if bad.is_some() || found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bad.map_or(Ok(found), Err)
}

/// Those who write, in key order after `after`, at most `limit`.
pub fn writers(
    read: &dyn Read,
    after: Option<(WriterKey, BodyId)>,
    limit: usize,
) -> Result<Vec<WriterRecord>, NsError> {
    collect(read, &after_writer(after), b"X", limit, |key, value| WriterRecord::read(key, value).map(Some))
}

fn after_writer(after: Option<(WriterKey, BodyId)>) -> Vec<u8> {
    let Some((key, body)) = after else { return b"W".to_vec() };
    let mut start = keys::writer(key, body).to_vec();
    start.push(0);
    start
}

/// Some of those who write.
#[derive(Debug, Default)]
pub struct WritersPage {
    /// In key order.
    pub writers: Vec<WriterRecord>,
    /// Those between them whose records do not read, and why.
    pub damaged: Vec<((WriterKey, BodyId), NsError)>,
    /// Behind which it goes on; `None`: there are no others.
    pub next: Option<(WriterKey, BodyId)>,
}

/// As [`writers`], for who looks after all of them: one whose record does not read keeps nobody from those behind it.
pub fn writers_page(read: &dyn Read, after: Option<(WriterKey, BodyId)>, limit: usize) -> Result<WritersPage, NsError> {
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
pub fn writer_of(read: &dyn Read, key: WriterKey, body: BodyId) -> Result<Option<WriterRecord>, NsError> {
    WriterRecord::get(read, key, body)
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

/// The bodies of `group` in order after `after`, at most `limit`: for audits of stores.
pub fn bodies(
    read: &dyn Read,
    group: GroupId,
    after: Option<BodyId>,
    limit: usize,
) -> Result<Vec<BodyRecord>, NsError> {
    let start = keys::body(group, BodyId(after.map_or(0, |body| body.0.saturating_add(1))));
    let end = keys::end_of(&keys::body(group, BodyId(u64::MAX)));
    collect(read, &start, &end, limit, |key, value| {
        let bad = || BadValue::Damaged("the key of a body has a wrong length").at(key);
        let body = keys::number_at(key, 9).map(BodyId).ok_or_else(bad)?;
        BodyRecord::decode(group, body, value).map(Some).map_err(|error| error.at(key))
    })
}

/// One body's record.
pub fn body_record(read: &dyn Read, group: GroupId, body: BodyId) -> Result<Option<BodyRecord>, NsError> {
    let key = keys::body(group, body);
    read.get(&key)?.map(|value| BodyRecord::decode(group, body, &value).map_err(|bad| bad.at(&key))).transpose()
}
