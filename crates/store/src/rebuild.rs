//! Building the index anew from segments and sidecars, if it and its checkpoints are gone.
//!
//! Finds every complete or interrupted piece that a segment or a sidecar speaks of. Pieces that were removed, but whose bytes were not
//! cleaned up yet, come back too: the namespace knows which of them it still wants. Pieces whose bytes are only in the log come back as
//! pieces in the making when the store is opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Access, Disk};
use journal::Journal;
use kv::Batch;
use types::{Incarnation, PieceId};

use crate::record::{PieceRecord, Place, SEEN_KEY, Seen, SegmentStat, piece_key, segment_key};
use crate::segment::{FILE_HEADER, check_file_header, scan};
use crate::small::check;
use crate::store::{Inner, RecordIndex, Store};
use crate::{StoreConfig, StoreError};

/// What a rebuilt index holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rebuilt {
    /// Small pieces found in segments.
    pub small: u64,
    /// Large pieces found by their sidecars.
    pub large: u64,
    /// Files that cannot be read, with the reason.
    pub unreadable: Vec<String>,
}

struct Rebuilding {
    inner: Arc<Inner>,
    segments: BTreeMap<u64, SegmentStat>,
    highest: PieceId,
    incarnation: Incarnation,
}

impl Store {
    /// Fills an empty index. The store must not be open.
    ///
    /// # Errors
    /// When the disk, the log or the index refuses. What was put into the index by then is right, but not all.
    pub fn rebuild_index(
        disk: Arc<dyn Disk>,
        dir: &str,
        journal: Arc<Journal>,
        index: Arc<dyn RecordIndex>,
    ) -> Result<Rebuilt, StoreError> {
        let inner = crate::recover::inner(disk, dir, journal, index, StoreConfig::default());
        let (segments, incarnation) = (BTreeMap::new(), Incarnation(0));
        let highest = PieceId::first(types::BodyId(0));
        let mut rebuilding = Rebuilding { inner, segments, highest, incarnation };
        let mut rebuilt = Rebuilt::default();
        rebuilding.segments(&mut rebuilt)?;
        rebuilding.objects(&mut rebuilt)?;
        rebuilding.finish()?;
        Ok(rebuilt)
    }
}

impl Rebuilding {
    fn segments(&mut self, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        for entry in inner.disk.list(inner.segments.root())? {
            let Ok(number) = u64::from_str_radix(&entry.name, 16) else { continue };
            let file = inner.segments.open(number)?;
            let mut header = vec![0; 64];
            let got = file.read_at(&mut header, 0)?;
            if let Err(e) = check_file_header(&header[..got]) {
                rebuilt.unreadable.push(format!("{}: {e}", inner.segments.path(number)));
                continue;
            }
            let len = file.len()?;
            let stopped = scan(&*file, FILE_HEADER, len, &mut |offset, found| {
                let place = Place::Segment { segment: number, offset, header: found.header };
                rebuilt.small += u64::from(self.take(found.piece, PieceRecord { place, ..found.record })?);
                Ok(())
            })?;
            if stopped < len {
                rebuilt.unreadable.push(format!("{}: from byte {stopped} on", inner.segments.path(number)));
            }
            // Even what cannot be read is not written over.
            self.segments.entry(number).or_default().end = len;
        }
        Ok(())
    }

    fn objects(&mut self, rebuilt: &mut Rebuilt) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        inner.visit_objects(&mut |path, piece, side| {
            if side {
                return Ok(());
            }
            let files = inner.objects.open(piece, Access::Read)?;
            match files.map(|files| files.newest_header()).transpose()?.flatten() {
                Some(header) if header.piece == piece => {
                    if let Some(record) = header.record() {
                        rebuilt.large += u64::from(self.take(piece, record)?);
                    }
                }
                _ => rebuilt.unreadable.push(format!("{path}: no sidecar that speaks of it")),
            }
            Ok(())
        })
    }

    /// Puts a record into the index, unless there is a newer one. True: it counts.
    fn take(&mut self, piece: PieceId, record: PieceRecord) -> Result<bool, StoreError> {
        let there = self.inner.record(piece)?;
        if let Some(there) = &there
            && (there.generation > record.generation
                || there.generation == record.generation && self.checks(piece, there) && !self.checks(piece, &record))
        {
            return Ok(false);
        }
        self.highest = self.highest.max(piece);
        self.incarnation = self.incarnation.max(record.incarnation);
        if let Some(there) = &there
            && let Place::Segment { segment, .. } = there.place
            && let Some(stat) = self.segments.get_mut(&segment)
        {
            stat.live = stat.live.saturating_sub(there.bytes_in_segment());
        }
        if let Place::Segment { segment, .. } = record.place {
            self.segments.entry(segment).or_default().live += record.bytes_in_segment();
        }
        let mut batch = Batch::new();
        batch.put(&piece_key(piece), &PieceRecord { path_hint: Vec::new(), ..record }.encode());
        self.inner.index.append(&batch, false)?;
        Ok(there.is_none())
    }

    /// Whether the bytes of a small piece match. Of two copies of one generation, the later was on its way into a segment when
    /// the power failed, perhaps: its header can be there and its bytes not.
    fn checks(&self, piece: PieceId, record: &PieceRecord) -> bool {
        match record.place {
            Place::Segment { .. } => {
                self.inner.small_bytes(record).is_ok_and(|bytes| check(piece, record, &bytes).is_ok())
            }
            _ => true,
        }
    }

    fn finish(self) -> Result<(), StoreError> {
        let mut seen = Seen { incarnation: self.incarnation, ..Seen::default() };
        // Whatever was below the highest number may have been used.
        seen.bodies.insert(0, self.highest.body.0.saturating_add(1));
        let mut batch = Batch::new();
        batch.put(SEEN_KEY, &seen.encode());
        for (number, stat) in &self.segments {
            batch.put(&segment_key(*number), &stat.encode());
        }
        let seq = self.inner.index.append(&batch, false)?;
        Ok(self.inner.journal.sync_to(seq)?)
    }
}
