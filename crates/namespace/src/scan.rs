//! Reading many records in the order of their keys.

use std::ops::ControlFlow;

use kv::ScanOrder;

use crate::{NsError, Read};

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
