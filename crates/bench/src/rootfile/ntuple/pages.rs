//! Page lists: the locations of each column's pages, cluster by cluster.

use super::schema::Schema;
use crate::rootfile::bytes::Bytes;
use crate::rootfile::{PART_MAX, PARTS_MAX, Part, RootFileError};

/// The checksum behind a page that has one.
const SUM_LEN: u32 = 8;
/// The bits for a cluster's entries. The other bits of the number are flags.
const ENTRIES_BITS: u32 = 56;
/// The flag of a cluster in several locations, which belongs to a later format.
const SHARDED: u64 = 1;

/// Reads a list, and adds its pages to those of each column. Returns the last entry plus one.
pub(super) fn read(
    bytes: &mut Bytes<'_>,
    schema: &Schema,
    header_sum: u64,
    columns: &mut [Vec<Part>],
    pages_left: &mut usize,
) -> Result<u64, RootFileError> {
    if bytes.le_u64()? != header_sum {
        return Err(bytes.error("a page list of another header"));
    }
    let (count, mut summaries) = bytes.list()?;
    let (clusters_count, mut clusters) = bytes.list()?;
    if count != clusters_count {
        return Err(bytes.error(format!("pages of {clusters_count} clusters, where there are {count}")));
    }
    let mut end = 0;
    for _ in 0..count {
        let mut summary = summaries.record()?;
        let (first_entry, word) = (summary.le_u64()?, summary.le_u64()?);
        if word >> ENTRIES_BITS & SHARDED != 0 {
            return Err(RootFileError::unsupported("an RNTuple with sharded clusters"));
        }
        let cluster = Cluster { first_entry, entries: word & ((1 << ENTRIES_BITS) - 1) };
        end = end.max(first_entry.saturating_add(cluster.entries));
        let (listed, mut outer) = clusters.list()?;
        if usize::try_from(listed).ok() != Some(columns.len()) {
            return Err(outer.error(format!("pages of {listed} columns, where there are {}", columns.len())));
        }
        for (column, parts) in schema.columns.iter().zip(columns.iter_mut()) {
            let (pages, mut inner) = outer.list()?;
            for _ in 0..pages {
                let Some(left) = pages_left.checked_sub(1) else {
                    return Err(inner.error(format!("more than {PARTS_MAX} pages")));
                };
                *pages_left = left;
                parts.push(page(&mut inner, &cluster, column.bits)?);
            }
        }
    }
    Ok(end)
}

struct Cluster {
    first_entry: u64,
    entries: u64,
}

fn page(bytes: &mut Bytes<'_>, cluster: &Cluster, bits: u16) -> Result<Part, RootFileError> {
    let elements = bytes.le_i32()?;
    let at = bytes.locator()?;
    let behind = if elements < 0 { SUM_LEN } else { 0 };
    let plain = u64::from(elements.unsigned_abs()).saturating_mul(u64::from(bits)).div_ceil(8);
    let fits = |len: u64| u32::try_from(len).ok().filter(|len| *len <= PART_MAX - SUM_LEN);
    let (Some(packed), Some(uncompressed)) = (fits(at.len), fits(plain)) else {
        let what = format!("a page of {} bytes, {plain} uncompressed; at most {PART_MAX}", at.len);
        return Err(bytes.error(what));
    };
    Ok(Part {
        offset: at.offset,
        bytes: packed + behind,
        before: 0,
        behind,
        uncompressed,
        first_entry: cluster.first_entry,
        entries: cluster.entries,
    })
}
