//! Reading small replicas from the journal or a segment.

use std::sync::Arc;

use types::{Crc32c, ErrorCode, PAGE_SIZE, ReplicaId};

use crate::config::PlantedBug;
use crate::record::{ByteLocation, ReplicaRecord};
use crate::replica::State;
use crate::segment::read_record;
use crate::store::Inner;
use crate::writer::index;
use crate::{StoreError, segment};

/// How often to look a location up again when the bytes move during the read.
const TRIES: usize = 5;

impl Inner {
    /// All bytes of a finished small replica, checked. Kept while the replica is open.
    pub(crate) fn content(&self, replica: ReplicaId, state: &mut State) -> Result<Arc<[u8]>, StoreError> {
        if let Some(content) = &state.content {
            return Ok(Arc::clone(content));
        }
        let mut result = Err(StoreError::NotFound { replica });
        for _ in 0..TRIES {
            let Some(record) = &state.record else { return Err(StoreError::NotFound { replica }) };
            // Read directly into the final buffer.
            let mut content: Arc<[u8]> = std::iter::repeat_n(0, index(record.len)).collect();
            let read = Arc::get_mut(&mut content).map_or(Ok(()), |bytes| self.small_bytes_into(record, bytes));
            result = read.and_then(|()| {
                if !self.config.has(PlantedBug::SkipCrc) {
                    check(replica, record, &content)?;
                }
                Ok(content)
            });
            if result.is_ok() {
                break;
            }
            // It may just have been settled or moved: ask the index.
            match self.record(replica)? {
                Some(now) if now.generation == record.generation && now.place != record.place => {
                    state.record = Some(now)
                }
                _ => break,
            }
        }
        let content = result?;
        state.content = Some(Arc::clone(&content));
        Ok(content)
    }

    /// The bytes of a small replica, unchecked.
    pub(crate) fn small_bytes(&self, record: &ReplicaRecord) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; index(record.len)];
        self.small_bytes_into(record, &mut bytes)?;
        Ok(bytes)
    }

    /// Like [`Inner::small_bytes`], into a zeroed buffer of the replica's length.
    fn small_bytes_into(&self, record: &ReplicaRecord, bytes: &mut [u8]) -> Result<(), StoreError> {
        match record.place {
            ByteLocation::Journal { location, skip } => self.journal.read_into(location, skip, bytes)?,
            ByteLocation::Segment { segment, offset, header } => {
                let file = self.segments.open(segment)?;
                let got = file.read_at(bytes, offset + u64::from(header))?;
                bytes[got..].fill(0);
            }
            ByteLocation::Empty => {}
            ByteLocation::Object => return Err(StoreError::damaged("a large object where a small one was expected")),
        }
        Ok(())
    }

    /// The replica's path in the namespace when it was created.
    pub(crate) fn path_hint(
        &self,
        replica: ReplicaId,
        state: &mut State,
        record: &ReplicaRecord,
    ) -> Result<Vec<u8>, StoreError> {
        match record.place {
            ByteLocation::Journal { .. } | ByteLocation::Empty => Ok(record.path_hint.clone()),
            ByteLocation::Segment { segment, offset, .. } => {
                let hint = self.segments.open(segment).and_then(|file| read_record(&*file, offset));
                match hint {
                    Ok(segment::Found { replica: there, record, .. }) if there == replica => Ok(record.path_hint),
                    // A compaction has just moved it; a hint is not worth another lookup.
                    Ok(_) | Err(StoreError::Damaged { .. }) => Ok(Vec::new()),
                    Err(e) if e.code() == ErrorCode::NotFound => Ok(Vec::new()),
                    Err(e) => Err(e),
                }
            }
            ByteLocation::Object => {
                let header = self.files(replica, state)?.newest_header()?;
                Ok(header.map(|header| header.path_hint).unwrap_or_default())
            }
        }
    }
}

/// Compares every page of a small replica.
pub(crate) fn check(replica: ReplicaId, record: &ReplicaRecord, bytes: &[u8]) -> Result<(), StoreError> {
    for ((page, bytes), crc) in (0..).zip(bytes.chunks(PAGE_SIZE)).zip(&record.page_crcs) {
        if Crc32c::of(bytes).0 != *crc {
            return Err(StoreError::Checksum { replica, page });
        }
    }
    Ok(())
}
