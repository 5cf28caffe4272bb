//! What the store knows of where its pieces come from: for an export without the namespace.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use kv::ScanOrder;
use types::PieceId;

use crate::StoreError;
use crate::record::{PIECES_END, Place, piece_key, piece_of_key};
use crate::store::Store;

/// Where a piece comes from, as far as the store knows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Provenance {
    /// Where its file was in the namespace when it was made. Empty: that is not known.
    pub path_hint: Vec<u8>,
    /// The file that its bytes lie in, relative to the disk's root; `None`: in the log, or nowhere.
    pub file: Option<String>,
}

impl Store {
    /// Pieces before `before` (`None`: all), the highest number first, at most `limit`.
    pub fn pieces_before(&self, before: Option<PieceId>, limit: usize) -> Result<Vec<PieceId>, StoreError> {
        let end = before.map_or(PIECES_END.to_vec(), piece_key);
        let mut found = BTreeSet::new();
        let mut bad = false;
        self.inner.index.snapshot().scan(b"p", &end, ScanOrder::Descending, &mut |key, _| {
            match piece_of_key(key) {
                Some(piece) => {
                    found.insert(piece);
                }
                None => bad = true,
            }
            if bad || found.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if bad {
            return Err(StoreError::damaged("a key in the index"));
        }
        found.extend(self.inner.open_pieces().into_iter().filter(|piece| before.is_none_or(|before| *piece < before)));
        Ok(found.into_iter().rev().take(limit).collect())
    }

    /// Where a piece comes from. What cannot be read of that is not known: it is worth no error.
    pub fn provenance(&self, piece: PieceId) -> Result<Provenance, StoreError> {
        let inner = &self.inner;
        let Some(open) = inner.find(piece)? else { return Ok(Provenance::default()) };
        let mut state = open.lock();
        let provenance = match (&state.life, inner.record(piece)?) {
            (Some(life), _) => Provenance { path_hint: life.birth.path_hint.clone(), file: None },
            (None, Some(record)) => {
                let path_hint = inner.path_hint(piece, &mut state, &record).unwrap_or_default();
                let file = match record.place {
                    Place::Object => Some(inner.objects.path(piece)),
                    Place::Segment { segment, .. } => Some(inner.segments.path(segment)),
                    Place::Log { .. } | Place::Empty => None,
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
