//! Reading and deleting many records in the order of their keys.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};

use crate::codec::BadValue;
use crate::{NsError, keys};

/// Scans `start..end` and decodes each entry, until it has kept `limit` of them.
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

/// Records read at a time by [`in_pages`]. It limits the memory for any number of them.
const PAGE: usize = 1_024;

/// Calls `found` with each key of `start..end`, and its value. `found` may look other keys up: the engine gets no
/// other request during a scan, so this reads a page first.
pub(crate) fn in_pages(
    read: &dyn Read,
    start: &[u8],
    end: &[u8],
    mut found: impl FnMut(&[u8], &[u8]) -> Result<(), NsError>,
) -> Result<(), NsError> {
    let mut start = start.to_vec();
    loop {
        let mut page = Vec::with_capacity(PAGE);
        read.scan(&start, end, ScanOrder::Ascending, &mut |key, value| {
            page.push((key.to_vec(), value.to_vec()));
            if page.len() == PAGE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        for (key, value) in &page {
            found(key, value)?;
        }
        match page.pop() {
            Some((last, _)) if page.len() + 1 == PAGE => {
                start = last;
                start.push(0);
            }
            _ => return Ok(()),
        }
    }
}

/// Deletes all keys that start with `prefix`. It does not decode the values, so it deletes damaged ones too.
pub(crate) fn delete_all(txn: &mut dyn Txn, prefix: &[u8]) -> Result<(), NsError> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    txn.scan(prefix, &keys::end_of(prefix), ScanOrder::Ascending, &mut |key, _| {
        found.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    found.iter().for_each(|key| txn.delete(key));
    Ok(())
}

/// Like [`collect`], for keys of one or two numbers. The second is 0 for keys with one number.
pub(crate) fn scan_numbers<T>(
    read: &dyn Read,
    start: &[u8],
    end: &[u8],
    limit: usize,
    decode: impl Fn(u64, u64, &[u8]) -> Result<T, BadValue>,
) -> Result<Vec<T>, NsError> {
    let mut found = Vec::new();
    let mut failed = None;
    if limit == 0 {
        return Ok(found);
    }
    read.scan(start, end, ScanOrder::Ascending, &mut |key, value| {
        let numbers = keys::number_at(key, 1).map(|first| (first, keys::number_at(key, 9).unwrap_or(0)));
        let bad = BadValue::Damaged("the key has a wrong length");
        match numbers.ok_or(bad).and_then(|(first, second)| decode(first, second, value)) {
            Ok(one) => found.push(one),
            Err(bad) => failed = Some(bad.at(key)),
        }
        if failed.is_some() || found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed.map_or(Ok(found), Err)
}
