//! `weir fsck --repair-journal`. After a damaged journal was cut, the two indexes on disk belong to the uncut journal. The repair assigns them to the
//! new one, because they hold more than any other source: everything up to their last write, including records that the journal has lost.

use std::sync::Arc;

use foundation::layout::{INDEXES, JOURNAL_DIR};
use foundation::{DataDir, OpenError, Settings, disk_of, engine};
use journal::{Journal, Repaired, Seq};
use kv::{Applied, NoEntries};

/// Cuts a damaged journal where the damage begins, saves the removed part aside, and makes the indexes follow the cut journal. `None`: it is not
/// damaged.
///
/// # Errors
///
/// Errors of the disk, the journal or an index.
pub fn repair_journal(data: &DataDir, settings: &Settings) -> Result<Option<Repaired>, OpenError> {
    let repaired = Journal::repair(&*disk_of(data), JOURNAL_DIR, &settings.journal())?;
    if let Some(repaired) = &repaired {
        follow(data, settings, repaired)?;
    }
    Ok(repaired)
}

/// Makes both indexes follow the cut journal in `repaired`.
fn follow(data: &DataDir, settings: &Settings, repaired: &Repaired) -> Result<(), OpenError> {
    let disk = disk_of(data);
    let (journal, _) = Journal::open(Arc::clone(&disk), JOURNAL_DIR, settings.journal())?;
    for (which, dir) in INDEXES {
        let failed = |source| OpenError::Index { which, source };
        let engine = engine(data, dir, settings).map_err(failed)?;
        if let Some(applied) = position(engine.applied(), repaired.last, &journal) {
            engine.apply(&mut NoEntries, applied).and_then(|()| engine.flush()).map_err(failed)?;
        }
        engine.close();
    }
    Ok(journal.close()?)
}

/// The position in the cut journal of an index that was at `applied`. `None`: the index cannot be used.
fn position(applied: Applied, kept: Seq, journal: &Journal) -> Option<Applied> {
    position_in(applied, kept, journal.oldest(), journal.appended(), journal.incarnation())
}

fn position_in(applied: Applied, kept: Seq, oldest: Seq, last: Seq, incarnation: u64) -> Option<Applied> {
    if applied.seq == Seq::ZERO {
        return None;
    }
    let seq = if applied.seq.next() >= oldest {
        applied.seq
    } else if applied.seq >= kept {
        // The index has all kept records, so its position is right before the next one.
        Seq(oldest.0.saturating_sub(1))
    } else {
        return None;
    };
    (seq <= last).then_some(Applied { seq, incarnation })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seq: u64) -> Applied {
        Applied { seq: Seq(seq), incarnation: 1 }
    }

    #[test]
    fn index_position_skips_no_record() {
        let place = |applied, kept, oldest, last| {
            position_in(at(applied), Seq(kept), Seq(oldest), Seq(last), 2).map(|applied| applied.seq.0)
        };
        // Kept records 10 to 20, then 1000 and later: an index behind, at, and ahead of the damage.
        assert_eq!(place(15, 20, 10, 1000), Some(15));
        assert_eq!(place(20, 20, 10, 1000), Some(20));
        assert_eq!(place(25, 20, 10, 1000), Some(25));
        // No record was kept.
        assert_eq!(place(25, 20, 1000, 1000), Some(999));
        // It lacks records that no longer exist: the checkpoint must help.
        assert_eq!(place(15, 20, 1000, 1000), None);
        assert_eq!(place(0, 20, 10, 1000), None);
        // From a journal that went further than any known record.
        assert_eq!(place(2000, 20, 10, 1000), None);
    }
}
