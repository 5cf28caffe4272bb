//! What a store's machine is handed, and what it says that is to be done.

use std::time::Duration;

use types::{ErrorCode, ReplicaId, StoreId, Timestamp};

use super::{Grant, Work, WorkPurpose, WorkResult};
use crate::message::{BetweenStores, ClosedBy, FromStore, ToStore};
use crate::replication::{Epoch, ObjectDigest, Patience, Planted};

/// What a store's machine goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartTerms {
    /// How long others are waited for.
    pub patience: Patience,
    /// Bytes of a copy that are fetched at a time.
    pub fetch: u32,
    /// A part that does not come in that time: the copy is given up.
    pub fetch_patience: Duration,
    /// What is over is remembered for so long: longer than a capability is good for, and than a message may be on its way.
    pub kept: Duration,
    /// A bug on purpose.
    pub planted: Option<Planted>,
}

impl Default for PartTerms {
    fn default() -> Self {
        Self {
            patience: Patience::default(),
            fetch: 4 << 20,
            fetch_patience: Duration::from_secs(8),
            kept: Duration::from_secs(120),
            planted: None,
        }
    }
}

/// What happens to a store. `C` names a client's request, for the shell; `B` is what a change is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input<C, B> {
    /// The manager tells it something.
    OfManager(ToStore),
    /// Another store does; the change or the part of a copy that came beside it.
    OfStore(BetweenStores, Option<B>),
    /// A client comes with what the manager gave it, to write. Again with the same: it goes on where it was.
    Attach {
        /// Its request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// What it was given.
        grant: Grant,
    },
    /// A client that is attached with this epoch changes something.
    Change {
        /// Its request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// Its writer's epoch.
        epoch: Epoch,
        /// What is changed.
        change: B,
    },
    /// It wants what it was told is changed to be durable.
    Sync {
        /// Its request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// Its writer's epoch.
        epoch: Epoch,
    },
    /// It has written all.
    Close {
        /// Its request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// Its writer's epoch.
        epoch: Epoch,
        /// When it was changed, if the client says so.
        mtime: Option<Timestamp>,
        /// Who closes.
        closed: ClosedBy,
    },
    /// It has gone, or what it wrote is not what it announced: the writing ends here, and what there is is kept. Changes and syncs that are not answered
    /// are refused; [`ErrorCode::Busy`] if it is being ended already.
    Interrupt {
        /// The shell's request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// The writer's epoch.
        epoch: Epoch,
    },
    /// A writing was to be ended here with what the manager gave for that, and attaching said [`ErrorCode::Exists`]: no record here speaks of it, so
    /// nothing of it was ever promised, and what is in its place is left alone. It ends with nothing.
    NothingKept {
        /// The replica.
        replica: ReplicaId,
        /// What was given.
        grant: Grant,
    },
    /// A work on a replica was done.
    WorkResult {
        /// The replica.
        replica: ReplicaId,
        /// For what, as it was given.
        by: WorkPurpose,
        /// What came of it.
        did: WorkResult<B>,
    },
    /// Time has passed, or the lease has changed; to be handed in several times a second, and at once when there is another session.
    Tick,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<C, B> {
    /// Tell the manager.
    ToManager(FromStore),
    /// Tell another store, with this beside it.
    ToStore {
        /// Whom.
        to: StoreId,
        /// What.
        message: BetweenStores,
        /// What goes beside it.
        change: Option<B>,
    },
    /// Answer a request.
    Answer {
        /// Which.
        to: C,
        /// With what.
        result: Result<(), ErrorCode>,
    },
    /// Give a replica's disk something to do.
    Work {
        /// The replica.
        replica: ReplicaId,
        /// For what.
        by: WorkPurpose,
        /// What.
        work: Work<B>,
    },
    /// For the log and the figures.
    Note(ReplicaId, Note),
}

/// Something worth telling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// Some of the stores are to be left out of the writing.
    LeftOut(usize),
    /// This store's copy is not like the primary's, and counts for nothing.
    Differs(StoreId),
}

/// What of a replica may be shown to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadView {
    /// What its writer has written, as this store has it.
    OfWriter,
    /// What is kept of a content that was interrupted.
    Kept,
    /// This content, if that is what the store has; otherwise that is [`ErrorCode::Stale`].
    ObjectDigest(ObjectDigest),
}
