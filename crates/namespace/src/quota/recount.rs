//! Compares the kept usage with a recount, and sets it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};
use types::{TreeId, UploadId};

use crate::quota::count::{Counted, UsageCount};
use crate::quota::listed::quotas;
use crate::quota::record::{Amount, QuotaOf, QuotaRecord, at_key};
use crate::scan::in_pages;
use crate::tree::node::{Dentry, InodeValue, decode_dentry, decode_inode_value};
use crate::tree::permission::permit_administrator;
use crate::{Context, NsError, UploadRecord, WriterRecord, keys};

/// Keys read at a time.
const PAGE: usize = 1_024;

/// Calls `found` with the key of each kept usage that differs from what was counted, and what is wrong.
pub(crate) fn compare(
    read: &dyn Read,
    counted: UsageCount,
    found: &mut dyn FnMut(&[u8], String),
) -> Result<(), NsError> {
    let mut counted = counted.finish(read)?;
    let mut after = None;
    loop {
        let page = match quotas(read, None, after, PAGE) {
            // The check has reported it with its key. The rest cannot be compared.
            Err(NsError::Damaged { .. } | NsError::Newer { .. } | NsError::Older { .. }) => return Ok(()),
            page => page?,
        };
        for record in &page {
            let key = keys::quota(record.tree, record.of);
            if read.get(&keys::tree(record.tree))?.is_none() {
                found(&key, "a quota of a tree that is not there".into());
                continue;
            }
            let counted = counted.remove(&(record.tree, record.of)).unwrap_or_default();
            let kept = Counted { used: record.used, reserved: record.reserved };
            if kept != counted {
                found(&key, differs(kept, counted));
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some((last.tree, last.of)),
            _ => break,
        }
    }
    for ((tree, of), counted) in counted {
        found(&keys::quota(tree, of), differs(Counted::default(), counted));
    }
    Ok(())
}

fn differs(kept: Counted, counted: Counted) -> String {
    let shown = |Counted { used, reserved }: Counted| {
        let Amount { bytes, files } = used;
        format!("{bytes} bytes and {files} files, with {} and {} reserved", reserved.bytes, reserved.files)
    };
    format!("usage says {}; there are {}", shown(kept), shown(counted))
}

/// Counts everything. Reads the whole namespace.
fn count(read: &dyn Read) -> Result<BTreeMap<(TreeId, QuotaOf), Counted>, NsError> {
    let mut counted = UsageCount::default();
    for prefix in [b"D", b"I", b"U", b"W"] {
        in_pages(read, prefix, &keys::end_of(prefix), |key, value| count_one(read, &mut counted, key, value))?;
    }
    counted.finish(read)
}

fn count_one(read: &dyn Read, counted: &mut UsageCount, key: &[u8], value: &[u8]) -> Result<(), NsError> {
    let number = || keys::number_at(key, 1).unwrap_or(0);
    match key.first() {
        Some(b'D') => {
            if let Dentry::Record(inode) = decode_dentry(value).map_err(|bad| bad.at(key))? {
                counted.entry(read, types::Ino(number()), &inode)?;
            }
        }
        Some(b'I') => {
            if let InodeValue::Record(inode) = decode_inode_value(value).map_err(|bad| bad.at(key))? {
                counted.inode(read, &inode)?;
            }
        }
        Some(b'U') => {
            let upload = UploadRecord::decode(UploadId(number()), value).map_err(|bad| bad.at(key))?;
            counted.reserved(upload.reservation.as_ref());
        }
        _ => counted.reserved(WriterRecord::read(key, value)?.reservation.as_ref()),
    }
    Ok(())
}

/// Sets all usage to what is there, and keeps the limits.
pub(crate) fn set_counted(txn: &mut dyn Txn, now: types::Timestamp) -> Result<(), NsError> {
    let mut counted = count(txn)?;
    let mut kept = Vec::new();
    txn.scan(b"Q", b"R", ScanOrder::Ascending, &mut |key, value| {
        kept.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    for (key, value) in kept {
        let record = at_key(&key).map(|(tree, of)| (tree, of, QuotaRecord::decode(tree, of, &value)));
        let Some((tree, of, Ok(mut record))) = record else {
            txn.delete(&key);
            continue;
        };
        if txn.get(&keys::tree(tree))?.is_none() {
            txn.delete(&key);
            continue;
        }
        let Counted { used, reserved } = counted.remove(&(tree, of)).unwrap_or_default();
        (record.used, record.reserved) = (used, reserved);
        record.note(now);
        record.put(txn);
    }
    for ((tree, of), Counted { used, reserved }) in counted {
        QuotaRecord { used, reserved, ..QuotaRecord::new(tree, of) }.put(txn);
    }
    Ok(())
}

/// Sets all usage to what is there, and keeps the limits. Only for `weir fsck` on a stopped node: the transaction reads the whole namespace, and
/// nothing else may commit meanwhile. Only the administrator may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecountUsage;

/// See [`RecountUsage`]. Fails if a name cannot be read, because then the right usage is unknown.
pub fn recount_usage(txn: &mut dyn Txn, ctx: &Context, _request: &RecountUsage) -> Result<(), NsError> {
    permit_administrator(&ctx.actor, &|| "the usage of trees".into())?;
    set_counted(txn, ctx.now)
}

crate::context::operations! {
    RecountUsage, recount_usage -> ();
}
