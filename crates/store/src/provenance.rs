//! The origin of replicas as far as the store knows it, for an export without the namespace.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use kv::ScanOrder;
use types::ReplicaId;

use crate::StoreError;
use crate::record::{ByteLocation, REPLICAS_END, replica_key, replica_of_key};
use crate::store::Store;

/// The origin of a replica, as far as the store knows it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Provenance {
    /// The path of its file in the namespace when it was created; empty if unknown.
    pub path_hint: Vec<u8>,
    /// The file with its bytes, relative to the disk's root. `None` if they are in the journal, or if there are none.
    pub file: Option<String>,
}

impl Store {
    /// Replicas before `before` (`None`: all), the highest number first, at most `limit`.
    pub fn replicas_before(&self, before: Option<ReplicaId>, limit: usize) -> Result<Vec<ReplicaId>, StoreError> {
        let end = before.map_or(REPLICAS_END.to_vec(), replica_key);
        let mut found = BTreeSet::new();
        let mut bad = false;
        self.inner.index.snapshot().scan(b"p", &end, ScanOrder::Descending, &mut |key, _| {
            match replica_of_key(key) {
                Some(replica) => {
                    found.insert(replica);
                }
                None => bad = true,
            }
            if bad || found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if bad {
            return Err(StoreError::damaged("a key in the index"));
        }
        found.extend(
            self.inner.open_replicas().into_iter().filter(|replica| before.is_none_or(|before| *replica < before)),
        );
        Ok(found.into_iter().rev().take(limit).collect())
    }

    /// The origin of a replica. Unreadable parts count as unknown and are no error.
    pub fn provenance(&self, replica: ReplicaId) -> Result<Provenance, StoreError> {
        let inner = &self.inner;
        let Some(open) = inner.find(replica)? else { return Ok(Provenance::default()) };
        let mut state = open.lock();
        let provenance = match (&state.write_state, inner.record(replica)?) {
            (Some(write_state), _) => Provenance { path_hint: write_state.birth.path_hint.clone(), file: None },
            (None, Some(record)) => {
                let path_hint = inner.path_hint(replica, &mut state, &record).unwrap_or_default();
                let file = match record.place {
                    ByteLocation::Object => Some(inner.objects.path(replica)),
                    ByteLocation::Segment { segment, .. } => Some(inner.segments.path(segment)),
                    ByteLocation::Journal { .. } | ByteLocation::Empty => None,
                };
                Provenance { path_hint, file }
            }
            (None, None) => Provenance::default(),
        };
        drop(state);
        inner.release(&open);
        Ok(provenance)
    }
}
