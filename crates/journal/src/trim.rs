//! Letting old segments go.

use std::io;

use crate::state::Shared;
use crate::{JournalError, Seq, StreamId};

impl Shared {
    pub(crate) fn set_trim(&self, stream: StreamId, below: Seq) -> Result<(), JournalError> {
        let _one_at_a_time = self.trimming.lock();
        let mut state = self.state.lock();
        let mark = state.trim.entry(stream).or_default();
        *mark = (*mark).max(below.0);
        let below = self.config.streams.iter().map(|s| state.trim.get(s).copied().unwrap_or(0)).min().unwrap_or(0);
        loop {
            let durable = state.durable;
            let Some(oldest) = state.segments.front() else { return Ok(()) };
            // Something behind it is durable, hence the next segment's header too: what is left begins with one. After
            // a power failure a log of zeros alone could not be told from a lost one.
            let may_go = state.segments.len() > 1
                && oldest.last < durable
                && self.config.may_trim(oldest.first, oldest.last, below);
            if !may_go {
                return Ok(());
            }
            let path = oldest.path.clone();
            drop(state);
            // One at a time, oldest first, each durable before the next: what a crash leaves has no gap.
            match self.disk.remove(&path) {
                // An earlier try failed after this step.
                Err(e) if e.source.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
            self.disk.sync_dir(&self.dir)?;
            state = self.state.lock();
            state.segments.pop_front();
            state.stats.segments_trimmed += 1;
        }
    }
}
