//! Removing old segments.
//!
//! A rename takes a segment out of the journal. Its space is freed later and slowly ([`disk::Removal`]), once no reader
//! uses it. The thread that makes segments does this; without that thread it happens at once. The next opening removes
//! files that a stop leaves behind.

use std::io;
use std::sync::Arc;

use disk::Disk;
use parking_lot::MutexGuard;

use crate::scan::join;
use crate::segment::file_name;
use crate::state::{Shared, State, Trimmed};
use crate::{JournalError, Prepare, Seq, StreamId};

/// The prefix of a trimmed segment's file name.
const TRIMMED: &str = "trimmed-";

impl Shared {
    pub(crate) fn set_trim(&self, stream: StreamId, below: Seq) -> Result<(), JournalError> {
        let _one_at_a_time = self.trimming.lock();
        let mut state = self.state.lock();
        let mark = state.trim.entry(stream).or_default();
        *mark = (*mark).max(below.0);
        let below = self.config.streams.iter().map(|s| state.trim.get(s).copied().unwrap_or(0)).min().unwrap_or(0);
        loop {
            let durable = state.durable;
            let Some(oldest) = state.segments.front() else { break };
            // A later record is durable, and therefore the next segment's header too: the rest starts with a durable
            // header. After a power failure, a journal of zeros alone could not be told from a lost one.
            let may_go = state.segments.len() > 1
                && oldest.last < durable
                && self.config.may_trim(oldest.first, oldest.last, below);
            if !may_go {
                break;
            }
            let (path, aside) =
                (oldest.path.clone(), join(&self.dir, &format!("{TRIMMED}{}", file_name(oldest.number))));
            drop(state);
            // Oldest first, each durable before the next: a crash leaves no gap.
            match self.disk.rename(&path, &aside) {
                // An earlier attempt failed after this step.
                Err(e) if e.source.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
            self.disk.sync_dir(&self.dir)?;
            state = self.state.lock();
            let reader = state.segments.pop_front().and_then(|segment| segment.reader);
            state.trimmed.push_back(Trimmed { path: aside, reader });
            state.stats.segments_trimmed += 1;
        }
        match self.config.prepare {
            Prepare::Inline => while self.remove_trimmed(&mut state) {},
            Prepare::Background => {
                self.wanted.notify_all();
            }
        }
        Ok(())
    }

    /// Removes one trimmed segment that no reader uses; releases the lock meanwhile. Returns whether it tried. Failures
    /// are counted; the next opening tries again.
    pub(crate) fn remove_trimmed(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let is_read = |trimmed: &Trimmed| trimmed.reader.as_ref().is_some_and(|reader| Arc::strong_count(reader) > 1);
        if state.replays > 0 || state.trimmed.front().is_none_or(is_read) {
            return false;
        }
        let Some(trimmed) = state.trimmed.pop_front() else { return false };
        let removed = MutexGuard::unlocked(state, || self.config.removal.remove(&*self.disk, &trimmed.path));
        state.stats.removals_failed += u64::from(removed.is_err());
        true
    }
}

/// Removes trimmed segments that an earlier run left.
pub(crate) fn remove_leftovers(disk: &dyn Disk, dir: &str) -> Result<(), JournalError> {
    for entry in disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir && entry.name.starts_with(TRIMMED)) {
        disk.remove(&join(dir, &entry.name))?;
    }
    Ok(())
}
