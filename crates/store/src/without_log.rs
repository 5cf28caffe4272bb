//! What the records of the index need of a log that is lost.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder};

use crate::StoreError;
use crate::record::{Place, REPLICAS_END, ReplicaRecord};

/// The highest segment of the log that a record of the index points into (0: none does). A log that begins anew numbers its
/// segments above it, so that no record ever means bytes of another replica.
pub fn highest_log_segment(index: &dyn Read) -> Result<u64, StoreError> {
    let (mut highest, mut trouble) = (0, None);
    index.scan(b"p", REPLICAS_END, ScanOrder::Ascending, &mut |_, value| match ReplicaRecord::decode(value) {
        Ok(record) => {
            if let Place::Log { location, .. } = record.place {
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
