//! When checkpoints are made, and how far the log may be trimmed.

use journal::Seq;

use crate::KvError;
use crate::background::come_back;
use crate::checkpoint::CheckpointSet;
use crate::engine::{Applied, NoEntries};
use crate::index::{Shared, from_journal};

impl Shared {
    /// Makes deltas if more sealed segments wait than configured, merges if due, trims. Says whether files were made.
    pub(crate) fn checkpoint(&self) -> Result<bool, KvError> {
        let made = self.make_checkpoint()?;
        self.trim_by_checkpoint()?;
        Ok(made)
    }

    /// The first part of [`Shared::checkpoint`]: the files. Nobody waits for it.
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
            // The appender's lock orders this after any append that is under way.
            let idle = self.appender.lock().last <= from.0;
            while set.upto() < target {
                if self.waiting_after(set.upto()).len() > self.config.urgent_segments() {
                    come_back();
                }
                self.add_delta(&mut set, target, idle)?;
            }
            made = true;
        }
        Ok(made)
    }

    /// Makes deltas up to the durable record `target`, wherever that is in its segment.
    pub(crate) fn checkpoint_up_to(&self, set: &mut CheckpointSet, target: Seq) -> Result<(), KvError> {
        if set.rotten.is_some() {
            self.mend(set)?;
        }
        while set.upto() < target {
            self.add_delta(set, target, false)?;
        }
        Ok(())
    }

    /// A delta of what follows the last one, up to `target` or less, and a merge if one is due then. `idle`: nothing follows.
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

    /// The second part: the engine is made durable as far as the files are, and the log is trimmed. Sweeps wait for this.
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

    /// Makes the checkpoint anew from the engine, because a file of it has rotted. Until that has worked nothing is trimmed.
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

    /// A stream without new records would keep the log from being trimmed: its engine is as far as the log is.
    fn advance_idle_engine(&self, upto: Seq) -> Result<(), KvError> {
        let alone = self.sweeping.lock();
        alone.check()?;
        let appender = self.appender.lock();
        let applied = self.engine.applied();
        if appender.last > applied.seq.0 || applied.seq >= upto {
            return Ok(());
        }
        drop(appender);
        // Records that come now have numbers above `upto`, which is durable.
        self.engine.apply(&mut NoEntries, Applied { seq: upto, incarnation: self.journal.incarnation() })
    }

    /// Trims by what is there, without making anything.
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
        // Up to the last durable record at most: a segment then goes only if something behind it is durable, so that
        // what is left always begins with a segment whose header is.
        let below = checkpointed.min(flushed.seq).next().min(self.journal.durable());
        #[cfg(test)]
        let below = match self.config.planted {
            Some(crate::tests::Planted::TrimTooEarly) => flushed.seq.next(),
            _ => below,
        };
        self.journal.set_trim(self.stream, below).map_err(from_journal)
    }
}
