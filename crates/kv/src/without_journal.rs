//! The remains of an index whose journal is lost: the flushed part of the engine, and the checkpoints.

use std::sync::Arc;

use disk::Disk;
use journal::{Seq, StreamId};

use crate::KvError;
use crate::checkpoint::CheckpointSet;
use crate::engine::{Applied, Engine, NoEntries};
use crate::index::IndexConfig;

/// The positions of the parts of an index that do not need the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexPositions {
    /// The engine's position; 0 if it has nothing.
    pub engine: Seq,
    /// The checkpoints' position; 0 if there are none.
    pub checkpoint: Seq,
}

impl IndexPositions {
    /// The last record that any part of the index has.
    #[must_use]
    pub fn furthest(&self) -> Seq {
        self.engine.max(self.checkpoint)
    }
}

/// The checkpoints of an index without its journal.
pub struct WithoutJournal {
    set: CheckpointSet,
}

impl WithoutJournal {
    /// Opens the checkpoints of `stream` in `checkpoint_dir`, which nobody else has open. Sets invalid files aside, as
    /// opening an index does.
    pub fn open(stream: StreamId, disk: Arc<dyn Disk>, checkpoint_dir: &str) -> Result<Self, KvError> {
        // This makes no file, so the incarnation does not matter.
        let set = CheckpointSet::open(disk, checkpoint_dir, stream, 0, &IndexConfig::default())?;
        Ok(Self { set })
    }

    /// The positions of `engine` and the checkpoints. Changes nothing.
    #[must_use]
    pub fn standing(&self, engine: &dyn Engine) -> IndexPositions {
        IndexPositions { engine: engine.applied().seq, checkpoint: self.set.upto() }
    }

    /// Gives `engine` the contents of the checkpoints if they have more; sets its old contents aside. Afterwards the
    /// engine has everything that is left of the index, durably. A repeated call after an interruption has the same
    /// result.
    ///
    /// # Errors
    /// [`KvError::Damaged`]: the checkpoints do not match their checksums, and the engine has nothing either.
    pub fn bring_up(&mut self, engine: &dyn Engine) -> Result<(), KvError> {
        let standing = self.standing(engine);
        if standing.checkpoint <= standing.engine {
            return engine.flush();
        }
        match self.set.verify_all() {
            // The older state is at least complete.
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

    /// Declares that the present `engine` is the state after the journal's record `applied`: the first step in a new
    /// journal. Durable on return.
    pub fn place(engine: &dyn Engine, applied: Applied) -> Result<(), KvError> {
        engine.apply(&mut NoEntries, applied)?;
        engine.flush()
    }
}
