//! What an index has left when its log is lost: the engine as far as it was flushed, and the checkpoints.

use std::sync::Arc;

use disk::Disk;
use journal::{Seq, StreamId};

use crate::KvError;
use crate::checkpoint::CheckpointSet;
use crate::engine::{Applied, Engine, NoEntries};
use crate::index::IndexConfig;

/// How far the parts of an index are that do not need the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The engine; 0: it has nothing.
    pub engine: Seq,
    /// The checkpoints; 0: there are none.
    pub checkpoint: Seq,
}

impl Standing {
    /// The last record that any part of the index has.
    #[must_use]
    pub fn furthest(&self) -> Seq {
        self.engine.max(self.checkpoint)
    }
}

/// The checkpoints of an index without its log.
pub struct WithoutLog {
    set: CheckpointSet,
}

impl WithoutLog {
    /// Looks at the checkpoints of `stream` in `checkpoint_dir`, which nobody else has open. Files that do not check are set
    /// aside, as when an index is opened.
    pub fn open(stream: StreamId, disk: Arc<dyn Disk>, checkpoint_dir: &str) -> Result<Self, KvError> {
        // No file is made here, so it does not matter which log they would be said to be from.
        let set = CheckpointSet::open(disk, checkpoint_dir, stream, 0, &IndexConfig::default())?;
        Ok(Self { set })
    }

    /// How far `engine` and the checkpoints are. Changes nothing.
    #[must_use]
    pub fn standing(&self, engine: &dyn Engine) -> Standing {
        Standing { engine: engine.applied().seq, checkpoint: self.set.upto() }
    }

    /// Gives `engine` what the checkpoints have, if that is more; what it had is kept aside. Afterwards the engine has all
    /// that is left of the index, durably. Done again after an interruption it comes to the same.
    ///
    /// # Errors
    /// [`KvError::Damaged`] where the checkpoints do not read back as they were written and the engine has nothing either.
    pub fn bring_up(&mut self, engine: &dyn Engine) -> Result<(), KvError> {
        let standing = self.standing(engine);
        if standing.checkpoint <= standing.engine {
            return engine.flush();
        }
        match self.set.verify_all() {
            // The older state is whole at least.
            Err(KvError::Damaged(what)) if standing.engine > Seq::ZERO => {
                tracing::error!("{what}; going on with the index, which is as far as record {}", standing.engine);
                self.set.set_all_aside()?;
                return engine.flush();
            }
            verified => drop(verified?),
        }
        engine.reset("the checkpoint is further, and there is no journal")?;
        let applied = Applied { seq: standing.checkpoint, incarnation: self.set.incarnation() };
        self.set.content().and_then(|mut content| engine.load(&mut content, applied))
    }

    /// Says that `engine`, as it is, is where the log's record `applied` left it: the first step in another log. Durable when
    /// it returns.
    pub fn place(engine: &dyn Engine, applied: Applied) -> Result<(), KvError> {
        engine.apply(&mut NoEntries, applied)?;
        engine.flush()
    }
}
