//! [`Inline`]: a committer without a thread. It does the work of [`crate::Embedded`] on the caller's thread, one
//! operation at a time, in the same journal. Simulations use it because they must know the order of events, and so do
//! tools.

use std::sync::Arc;

use journal::Seq;
use parking_lot::Mutex;

use crate::index::from_journal;
use crate::write_set::{Transaction, WriteSet};
use crate::{Durability, JournaledIndex, Kv, KvError, Op, OpDone, OpOutcome, Read, Savepoint};

/// A committer without a thread. When [`Kv::submit`] returns, it has run the completion too.
pub struct Inline {
    index: Arc<JournaledIndex>,
    last: Mutex<Seq>,
}

impl Inline {
    /// Uses an open index, which has no other appender.
    #[must_use]
    pub fn new(index: Arc<JournaledIndex>) -> Self {
        Self { index, last: Mutex::new(Seq::ZERO) }
    }

    fn run(&self, durability: Durability, op: &mut Op) -> Result<(), KvError> {
        let mut last = self.last.lock();
        let mut writes = WriteSet::default();
        let outcome = {
            let base = self.index.snapshot();
            op(&mut Transaction { base: &*base, writes: &mut writes })
        };
        if outcome == OpOutcome::Commit
            && let Some(refused) = writes.refused_since(Savepoint(0))
        {
            return Err(refused);
        }
        if outcome == OpOutcome::Commit && !writes.is_empty() {
            *last = self.index.append_unpublished(&writes.take(), false)?;
        }
        // Needed even if nothing changed: the operation may have seen changes that are only written.
        let journal = self.index.journal();
        let done = match durability {
            _ if *last == Seq::ZERO => Ok(()),
            Durability::Synced => journal.sync_to(*last),
            Durability::Written => journal.write_to(*last),
        };
        done.map_err(|error| match from_journal(error) {
            stopped @ KvError::Stopped { .. } => stopped,
            // The record is appended, but may not be on the disk: nothing may follow it.
            other => KvError::Stopped { reason: other.to_string() },
        })?;
        self.index.publish(*last);
        Ok(())
    }
}

impl Kv for Inline {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        self.index.snapshot()
    }

    fn submit(&self, durability: Durability, mut op: Op, done: OpDone) {
        let result = self.run(durability, &mut op);
        done(result);
    }
}
