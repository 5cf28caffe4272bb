//! Letting old segments go.
//!
//! A segment leaves the log by a rename. Its space is given back afterwards, slowly ([`disk::Removal`]), once nobody reads it: by the
//! thread that makes segments, or, where there is none, at once. What a stop leaves of it goes at the next opening.

use std::io;
use std::sync::Arc;

use disk::Disk;
use parking_lot::MutexGuard;

use crate::scan::join;
use crate::segment::file_name;
use crate::state::{Shared, State, Trimmed};
use crate::{JournalError, Prepare, Seq, StreamId};

/// What the file of a trimmed segment is called until it is gone: its name with this before it.
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
            // Something behind it is durable, hence the next segment's header too: what is left begins with one. After
            // a power failure a log of zeros alone could not be told from a lost one.
            let may_go = state.segments.len() > 1
                && oldest.last < durable
                && self.config.may_trim(oldest.first, oldest.last, below);
            if !may_go {
                break;
            }
            let (path, aside) =
                (oldest.path.clone(), join(&self.dir, &format!("{TRIMMED}{}", file_name(oldest.number))));
            drop(state);
            // One at a time, oldest first, each durable before the next: what a crash leaves has no gap.
            match self.disk.rename(&path, &aside) {
                // An earlier try failed after this step.
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

    /// Removes one trimmed segment, if there is one that nobody reads; the lock is let go meanwhile. Says whether it tried: what the
    /// disk does not let go is counted, and goes at the next opening.
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

/// Removes what an earlier run has left of trimmed segments.
pub(crate) fn remove_left(disk: &dyn Disk, dir: &str) -> Result<(), JournalError> {
    for entry in disk.list(dir)?.into_iter().filter(|entry| !entry.is_dir && entry.name.starts_with(TRIMMED)) {
        disk.remove(&join(dir, &entry.name))?;
    }
    Ok(())
}
