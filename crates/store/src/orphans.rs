//! Files of large pieces that belong to nothing: made, and their record lost with the power.
//!
//! A file is removed only if it cannot be anybody's data: it was never completed, or its body's number was never seen (so that even
//! its beginning was lost). A completed file of a known body without a record is left alone and reported.

use types::{BodyId, PieceId, PieceIndex};

use crate::object::ObjectFiles;
use crate::store::Inner;
use crate::{StoreError, StoreRecovery};

/// The piece that a file's name stands for, and whether it is a sidecar.
pub(crate) fn piece_of_name(name: &str) -> Option<(PieceId, bool)> {
    let (stem, side) = name.strip_suffix(".crc").map_or((name, false), |stem| (stem, true));
    let (body, index) = stem.split_once('.')?;
    let piece = PieceId { body: BodyId(u64::from_str_radix(body, 16).ok()?), index: PieceIndex(index.parse().ok()?) };
    (piece.to_string() == stem).then_some((piece, side))
}

impl Inner {
    /// Visits the files below `objects`.
    pub(crate) fn visit_objects(
        &self,
        visit: &mut dyn FnMut(&str, PieceId, bool) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let root = self.objects.root();
        for above in self.disk.list(root)?.into_iter().filter(|entry| entry.is_dir) {
            let above = format!("{root}/{}", above.name);
            for folder in self.disk.list(&above)?.into_iter().filter(|entry| entry.is_dir) {
                let folder = format!("{above}/{}", folder.name);
                for file in self.disk.list(&folder)? {
                    if let Some((piece, side)) = piece_of_name(&file.name) {
                        visit(&format!("{folder}/{}", file.name), piece, side)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn remove_orphans(&self, recovery: &mut StoreRecovery) -> Result<(), StoreError> {
        let mut orphans = Vec::new();
        self.visit_objects(&mut |path, piece, side| {
            let living = self.table.lock().contains_key(&piece);
            let being_removed = self.holds.lock().is_being_removed(piece);
            if living || being_removed || self.record(piece)?.is_some() {
                return Ok(());
            }
            let unseen = !self.seen.lock().seen.has(piece.body);
            if unseen || !self.was_completed(piece)? {
                orphans.push(path.to_owned());
            } else if !side {
                recovery.unexplained.push(path.to_owned());
            }
            Ok(())
        })?;
        for path in &orphans {
            self.disk.remove(path)?;
        }
        recovery.orphans_removed = orphans.len() as u64;
        Ok(())
    }

    /// Whether a file's sidecar says that its piece had been completed (or interrupted) once.
    fn was_completed(&self, piece: PieceId) -> Result<bool, StoreError> {
        let files = self.objects.open(piece, disk::Access::Read)?;
        let header = files.as_ref().map(ObjectFiles::newest_header).transpose()?.flatten();
        Ok(header.is_some_and(|header| header.ended.is_some()))
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_store_makes_are_looked_at() {
        let piece = PieceId { body: BodyId(0xabc), index: PieceIndex(2) };
        assert_eq!(piece_of_name(&piece.to_string()), Some((piece, false)));
        assert_eq!(piece_of_name(&format!("{piece}.crc")), Some((piece, true)));
        for name in ["", "x", "abc.2", "0000000000000abc.02", "0000000000000ABC.2", "notes.txt", ".crc"] {
            assert_eq!(piece_of_name(name), None, "{name}");
        }
    }
}
