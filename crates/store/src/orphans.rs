//! Files that belong to nothing: they were created, and a power failure lost their record.
//!
//! A file is removed only if it cannot be anybody's data: the file of a large replica that was never finished, or a
//! segment whose replicas all exist elsewhere. All other files without a record are left alone and reported. Such a
//! file may be the only copy, if an older index was restored.

use types::{ObjectId, ReplicaId, ReplicaIndex};

use crate::record::ByteLocation;
use crate::segment::{FILE_HEADER, Found, scan};
use crate::store::Inner;
use crate::{StoreError, StoreRecovery};

/// The replica that a file's name stands for, and whether the file is a sidecar.
pub(crate) fn replica_of_name(name: &str) -> Option<(ReplicaId, bool)> {
    let (stem, side) = name.strip_suffix(".crc").map_or((name, false), |stem| (stem, true));
    let (object, index) = stem.split_once('.')?;
    let replica =
        ReplicaId { object: ObjectId(u64::from_str_radix(object, 16).ok()?), index: ReplicaIndex(index.parse().ok()?) };
    (replica.to_string() == stem).then_some((replica, side))
}

impl Inner {
    /// Visits the files below `objects`.
    pub(crate) fn visit_objects(
        &self,
        visit: &mut dyn FnMut(&str, ReplicaId, bool) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let root = self.objects.root();
        for above in self.disk.list(root)?.into_iter().filter(|entry| entry.is_dir) {
            let above = format!("{root}/{}", above.name);
            for folder in self.disk.list(&above)?.into_iter().filter(|entry| entry.is_dir) {
                let folder = format!("{above}/{}", folder.name);
                for file in self.disk.list(&folder)? {
                    if let Some((replica, side)) = replica_of_name(&file.name) {
                        visit(&format!("{folder}/{}", file.name), replica, side)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn clear_orphan_objects(&self, recovery: &mut StoreRecovery) -> Result<(), StoreError> {
        let mut orphans = Vec::new();
        self.visit_objects(&mut |path, replica, side| {
            let living = self.table.lock().contains_key(&replica);
            let being_removed = self.holds.lock().is_being_removed(replica);
            if living || being_removed || self.record(replica)?.is_some() {
                return Ok(());
            }
            if !self.objects.ended(replica)? {
                orphans.push(path.to_owned());
            } else if !side {
                recovery.unexplained.push(path.to_owned());
            }
            Ok(())
        })?;
        if !self.config.clear_away {
            recovery.orphans_left += orphans.len() as u64;
            return Ok(());
        }
        for path in &orphans {
            self.disk.remove(path)?;
        }
        recovery.orphans_removed += orphans.len() as u64;
        Ok(())
    }

    /// Removes segments, and the end of the newest one, if they hold only copies (made by an unfinished move, or left
    /// by a finished one). Appends continue after all other segments.
    pub(crate) fn clear_orphan_segments(&self, recovery: &mut StoreRecovery) -> Result<(), StoreError> {
        let known = self.records.lock().clone();
        let mut highest = known.keys().next_back().copied().unwrap_or(0);
        for entry in self.disk.list(self.segments.root())? {
            let Some(number) = u64::from_str_radix(&entry.name, 16).ok().filter(|n| !known.contains_key(n)) else {
                continue;
            };
            if !self.has_only_copies(number, FILE_HEADER)? {
                recovery.unexplained.push(self.segments.path(number));
            } else if self.config.clear_away {
                self.segments.remove(number)?;
                recovery.orphans_removed += 1;
                continue;
            } else {
                recovery.orphans_left += 1;
            }
            highest = highest.max(number);
        }
        let newest = known.last_key_value().filter(|(number, _)| **number == highest);
        if let Some((number, stat)) = newest {
            if self.has_only_copies(*number, stat.end)? {
                if self.config.clear_away {
                    return self.segments.continue_at(*number, stat.end, self.config.segment_bytes);
                }
            } else {
                recovery.unexplained.push(format!("{} from byte {} on", self.segments.path(*number), stat.end));
            }
        }
        self.segments.start_after(highest);
        Ok(())
    }

    /// Whether all replicas in a segment from `start` on, where no record points, surely exist elsewhere or were
    /// removed.
    fn has_only_copies(&self, number: u64, start: u64) -> Result<bool, StoreError> {
        let file = self.segments.open(number)?;
        let mut copies_only = true;
        scan(&*file, start, file.len()?, &mut |_, found| {
            copies_only &= self.exists_elsewhere(&found)?;
            Ok(())
        })?;
        Ok(copies_only)
    }

    fn exists_elsewhere(&self, found: &Found) -> Result<bool, StoreError> {
        // An unseen number, or a later generation than that of the open write: the index is older than the segment.
        if !self.seen.lock().seen.has(found.replica.object) {
            return Ok(false);
        }
        let open = self.table.lock().get(&found.replica).cloned();
        let living =
            open.and_then(|open| open.lock().write_state.as_ref().map(|write_state| write_state.birth.generation));
        if living.is_some_and(|generation| generation > found.record.generation) {
            return Ok(true);
        }
        let Some(record) = self.record(found.replica)? else { return Ok(living.is_none()) };
        Ok(match record.place {
            _ if record.generation != found.record.generation => record.generation > found.record.generation,
            ByteLocation::Segment { .. } => true,
            // The journal may have been trimmed since, and an old record restored.
            ByteLocation::Journal { .. } => {
                self.small_bytes(&record).and_then(|bytes| crate::small::check(found.replica, &record, &bytes)).is_ok()
            }
            ByteLocation::Object | ByteLocation::Empty => false,
        })
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use super::*;

    #[test]
    fn only_names_made_by_the_store_are_recognised() {
        let replica = ReplicaId { object: ObjectId(0xabc), index: ReplicaIndex(2) };
        assert_eq!(replica_of_name(&replica.to_string()), Some((replica, false)));
        assert_eq!(replica_of_name(&format!("{replica}.crc")), Some((replica, true)));
        for name in ["", "x", "abc.2", "0000000000000abc.02", "0000000000000ABC.2", "notes.txt", ".crc"] {
            assert_eq!(replica_of_name(name), None, "{name}");
        }
    }
}
