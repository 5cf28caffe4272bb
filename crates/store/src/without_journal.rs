//! What the index records need to know of a lost journal.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder};

use crate::StoreError;
use crate::record::{ByteLocation, REPLICAS_END, ReplicaRecord};

/// The highest journal segment to which an index record points; 0 if there is none. A replacement journal numbers its
/// segments above it, so that no record ever points to bytes of another replica.
pub fn highest_journal_segment(index: &dyn Read) -> Result<u64, StoreError> {
    let (mut highest, mut trouble) = (0, None);
    index.scan(b"p", REPLICAS_END, ScanOrder::Ascending, &mut |_, value| match ReplicaRecord::decode(value) {
        Ok(record) => {
            if let ByteLocation::Journal { location, .. } = record.place {
                highest = highest.max(location.segment);
            }
            ControlFlow::Continue(())
        }
        Err(error) => {
            trouble = Some(error);
            ControlFlow::Break(())
        }
    })?;
    trouble.map_or(Ok(highest), Err)
}
