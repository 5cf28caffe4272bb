//! When to make checkpoints, and how far the journal may be trimmed.

use journal::Seq;

use crate::KvError;
use crate::background::restore_priority;
use crate::checkpoint::CheckpointSet;
use crate::engine::{Applied, NoEntries};
use crate::index::{Shared, from_journal};

impl Shared {
    /// Makes deltas if too many sealed segments wait, merges if due, and trims. Returns whether it made files.
    pub(crate) fn checkpoint(&self) -> Result<bool, KvError> {
        let made = self.make_checkpoint()?;
        self.trim_by_checkpoint()?;
        Ok(made)
    }

    /// The first part of [`Shared::checkpoint`]: makes the files. No thread waits for it.
    pub(crate) fn make_checkpoint(&self) -> Result<bool, KvError> {
        let mut set = self.checkpoints.lock();
        if set.rotten.is_some() {
            self.mend(&mut set)?;
        }
        let from = set.upto();
        let waiting = self.waiting_after(from);
        let mut made = false;
        if let Some(&target) = waiting.last()
            && waiting.len() > self.config.segments_kept_max
        {
            // The appender's lock waits for a running append.
            let idle = self.appender.lock().last <= from.0;
            while set.upto() < target {
                if self.waiting_after(set.upto()).len() > self.config.urgent_segments() {
                    restore_priority();
                }
                self.add_delta(&mut set, target, idle)?;
            }
            made = true;
        }
        Ok(made)
    }

    /// Makes deltas up to the durable record `target`, anywhere in its segment.
    pub(crate) fn checkpoint_up_to(&self, set: &mut CheckpointSet, target: Seq) -> Result<(), KvError> {
        if set.rotten.is_some() {
            self.mend(set)?;
        }
        while set.upto() < target {
            self.add_delta(set, target, false)?;
        }
        Ok(())
    }

    /// Makes a delta of the following records, up to `target` or fewer, and merges if due. `idle` means that no records
    /// follow.
    fn add_delta(&self, set: &mut CheckpointSet, target: Seq, idle: bool) -> Result<(), KvError> {
        let delta = if idle {
            set.add_empty_delta(target)
        } else {
            set.add_delta(&self.journal, target, self.config.delta_bytes_max)
        };
        self.count(&delta.map(|()| true))?;
        let merged = set.merge_if_due(self.config.deltas_max);
        if let Err(error) = &merged {
            set.note_rot(error);
        }
        self.count(&merged).map(drop)
    }

    /// The second part: makes the engine as durable as the files, and trims the journal. Sweeps wait for this.
    pub(crate) fn trim_by_checkpoint(&self) -> Result<(), KvError> {
        let upto = self.checkpoints.lock().upto();
        self.advance_idle_engine(upto)?;
        self.sweeping.lock().check()?;
        if self.engine.flushed().seq < upto && self.engine.applied().seq > self.engine.flushed().seq {
            self.engine.flush()?;
        }
        self.trim_below(upto)
    }

    /// The last records of the sealed segments that wait for a checkpoint.
    pub(crate) fn segments_waiting(&self) -> Vec<Seq> {
        let from = self.checkpoints.lock().upto();
        self.waiting_after(from)
    }

    fn waiting_after(&self, from: Seq) -> Vec<Seq> {
        let durable = self.journal.durable();
        let sealed = self.journal.segments();
        let waiting = sealed.iter().filter(|segment| segment.sealed && segment.last > from && segment.last <= durable);
        waiting.map(|segment| segment.last).collect()
    }

    /// Makes a new checkpoint from the engine because a file of the old one has rotted. Nothing is trimmed until this
    /// succeeds.
    fn mend(&self, set: &mut CheckpointSet) -> Result<(), KvError> {
        let what = set.rotten.clone().unwrap_or_default();
        let (state, upto) = {
            let alone = self.sweeping.lock();
            alone.check()?;
            if let Some(why) = self.engine.damaged() {
                return Err(KvError::Damaged(format!("{what}; and the index is damaged too: {why}")));
            }
            self.engine.flush()?;
            (self.engine.snapshot(), self.engine.applied())
        };
        if upto.incarnation != self.journal.incarnation() || upto.seq.next() < self.journal.oldest() {
            return Err(KvError::Damaged(format!("{what}; and the index cannot stand in for it")));
        }
        tracing::error!(stream = self.stream.0, "{what}; making a new checkpoint from the index, which is whole");
        set.renew_from(&*state, upto.seq)?;
        self.stats.lock().checkpoints_renewed += 1;
        Ok(())
    }

    /// Counts a file that was made (true) or refused.
    fn count(&self, result: &Result<bool, KvError>) -> Result<(), KvError> {
        let mut stats = self.stats.lock();
        match result {
            Ok(made) => stats.checkpoints += u64::from(*made),
            Err(KvError::Damaged(_)) => stats.checkpoints_refused += 1,
            Err(_) => {}
        }
        result.clone().map(drop)
    }

    /// Advances the engine of a stream without new records, which would keep the journal from being trimmed. The engine
    /// is complete up to the end of the journal.
    fn advance_idle_engine(&self, upto: Seq) -> Result<(), KvError> {
        let alone = self.sweeping.lock();
        alone.check()?;
        let appender = self.appender.lock();
        let applied = self.engine.applied();
        if appender.last > applied.seq.0 || applied.seq >= upto {
            return Ok(());
        }
        drop(appender);
        // New records get numbers above `upto`, which is durable.
        self.engine.apply(&mut NoEntries, Applied { seq: upto, incarnation: self.journal.incarnation() })
    }

    /// Trims the journal by the present files, without making any.
    pub(crate) fn trim(&self) -> Result<(), KvError> {
        let set = self.checkpoints.lock();
        if set.rotten.is_some() {
            return Ok(());
        }
        let upto = set.upto();
        drop(set);
        self.trim_below(upto)
    }

    fn trim_below(&self, checkpointed: Seq) -> Result<(), KvError> {
        let flushed = self.engine.flushed();
        if flushed.incarnation != self.journal.incarnation() && flushed.seq != Seq::ZERO {
            return Ok(());
        }
        // At most up to the last durable record: a segment is then removed only if a later record is durable. The rest
        // therefore always starts with a segment whose header is durable.
        let below = checkpointed.min(flushed.seq).next().min(self.journal.durable());
        #[cfg(test)]
        let below = match self.config.planted {
            Some(crate::tests::PlantedBug::TrimTooEarly) => flushed.seq.next(),
            _ => below,
        };
        self.journal.set_trim(self.stream, below).map_err(from_journal)
    }
}
