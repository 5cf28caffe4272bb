//! `weir fsck --repair-journal`. After a damaged log was cut: the two indexes on disk belong to the log as it was. They are told that they belong to
//! the new one, because they hold more than can be had otherwise: everything up to where they were written last, also
//! what the lost records of the log had said.

use std::sync::Arc;

use foundation::layout::{INDEXES, JOURNAL_DIR};
use foundation::{DataDir, OpenError, Settings, disk_of, engine};
use journal::{Journal, Repaired, Seq};
use kv::{Applied, NoEntries};

/// Cuts a damaged log where the damage begins, saving all from there on aside, and has the indexes follow the cut log.
/// `None`: it is not damaged.
///
/// # Errors
/// Of the disk, the log or an index.
pub fn repair_journal(data: &DataDir, settings: &Settings) -> Result<Option<Repaired>, OpenError> {
    let repaired = Journal::repair(&*disk_of(data)?, JOURNAL_DIR, &settings.journal())?;
    if let Some(repaired) = &repaired {
        follow(data, settings, repaired)?;
    }
    Ok(repaired)
}

/// Makes both indexes follow the log that `repaired` is about.
fn follow(data: &DataDir, settings: &Settings, repaired: &Repaired) -> Result<(), OpenError> {
    let disk = disk_of(data)?;
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

/// Where an index that was at `applied` stands in the cut log; `None`: it is of no use there.
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
        // Nothing was kept that it lacks: it stands right before what comes next.
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
    fn an_index_is_placed_where_nothing_is_skipped() {
        let place = |applied, kept, oldest, last| {
            position_in(at(applied), Seq(kept), Seq(oldest), Seq(last), 2).map(|applied| applied.seq.0)
        };
        // Kept records 10 to 20, then 1000 and on. Behind, at, and ahead of the damage.
        assert_eq!(place(15, 20, 10, 1000), Some(15));
        assert_eq!(place(20, 20, 10, 1000), Some(20));
        assert_eq!(place(25, 20, 10, 1000), Some(25));
        // Nothing was kept.
        assert_eq!(place(25, 20, 1000, 1000), Some(999));
        // It lacks records that are nowhere any more: the checkpoint must help.
        assert_eq!(place(15, 20, 1000, 1000), None);
        assert_eq!(place(0, 20, 10, 1000), None);
        // From a log that went further than anybody knows.
        assert_eq!(place(2000, 20, 10, 1000), None);
    }
}
