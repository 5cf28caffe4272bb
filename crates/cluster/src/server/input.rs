//! The events that a store's machine takes, and the effects that it returns.

use std::time::Duration;

use types::{ErrorCode, ReplicaId, StoreId, Timestamp};

use super::{Grant, Work, WorkPurpose, WorkResult};
use crate::message::{BetweenStores, ClosedBy, FromStore, ToStore};
use crate::replication::{Epoch, ObjectDigest, PlantedBug, ReplicaTimeouts};

/// The limits of a store's machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartTerms {
    /// How long a primary waits for others.
    pub patience: ReplicaTimeouts,
    /// The bytes of one part of a copy. All copies that a manager orders at a time ([`CopyRate::at_once`]) may come from
    /// one server and go to one server. Their parts together must fit into half of what a connection queues. Otherwise
    /// the connection drops some, and copies wait for nothing.
    ///
    /// [`CopyRate::at_once`]: crate::CopyRate::at_once
    pub fetch: u32,
    /// A store requests a part again if it has not arrived in this time. Each further pause is twice as long.
    pub fetch_again: Duration,
    /// A store abandons a copy if a part does not arrive in this time.
    pub fetch_patience: Duration,
    /// A store remembers ended work for this time. It is longer than a capability is valid, and longer than a message
    /// can be in transit.
    pub kept: Duration,
    /// A deliberate bug.
    pub planted: Option<PlantedBug>,
}

impl Default for PartTerms {
    fn default() -> Self {
        Self {
            patience: ReplicaTimeouts::default(),
            fetch: 512 << 10,
            fetch_again: Duration::from_secs(1),
            fetch_patience: Duration::from_secs(8),
            kept: Duration::from_secs(120),
            planted: None,
        }
    }
}

/// An event for a store. `C` names a client's request for the shell; `B` holds the bytes of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input<C, B> {
    /// A message from the manager.
    OfManager(ToStore),
    /// A message from another store, with the change or the part of a copy that came with it.
    OfStore(BetweenStores, Option<B>),
    /// A client presents its grant to write. If it presents the same grant again, it continues its write.
    Attach {
        /// Its request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// Its grant.
        grant: Grant,
        /// It is no client: the manager has this store end the open write, and refuses the client since then.
        is_ending: bool,
    },
    /// A client that is attached with this epoch sends a change.
    Change {
        /// Its request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// Its writer's epoch.
        epoch: Epoch,
        /// The change.
        change: B,
    },
    /// The client asks for its acknowledged changes to be durable.
    Sync {
        /// Its request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// Its writer's epoch.
        epoch: Epoch,
    },
    /// The client has written everything.
    Close {
        /// Its request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// Its writer's epoch.
        epoch: Epoch,
        /// The modification time, if the client sets it.
        mtime: Option<Timestamp>,
        /// Who closes the file.
        closed: ClosedBy,
    },
    /// The client has gone, or has not written what it announced. The open write ends here, and its bytes are kept.
    /// Unanswered changes and syncs are refused. The result is [`ErrorCode::Busy`] if the open write is ending already.
    Interrupt {
        /// The shell's request.
        by: C,
        /// The replica.
        replica: ReplicaId,
        /// The writer's epoch.
        epoch: Epoch,
    },
    /// The shell tried to end an open write here with a grant for that, and the attach returned
    /// [`ErrorCode::Exists`]. This store has no record of that write, so it has never acknowledged any of its bytes.
    /// The existing object stays untouched, and the open write ends with no bytes.
    NothingKept {
        /// The replica.
        replica: ReplicaId,
        /// The grant.
        grant: Grant,
    },
    /// Disk work on a replica has ended.
    WorkResult {
        /// The replica.
        replica: ReplicaId,
        /// Its purpose, as it was given.
        by: WorkPurpose,
        /// Its result.
        did: WorkResult<B>,
    },
    /// Time has passed, or the lease has changed. The shell sends this several times a second, and at once when
    /// there is another session.
    Tick,
}

/// What the shell must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect<C, B> {
    /// Send a message to the manager.
    ToManager(FromStore),
    /// Send a message to another store.
    ToStore {
        /// The store.
        to: StoreId,
        /// The message.
        message: BetweenStores,
        /// The bytes that are sent with it.
        change: Option<B>,
    },
    /// Answer a request.
    Answer {
        /// The request.
        to: C,
        /// The result.
        result: Result<(), ErrorCode>,
    },
    /// Give work to a replica's disk.
    Work {
        /// The replica.
        replica: ReplicaId,
        /// Its purpose.
        by: WorkPurpose,
        /// The work.
        work: Work<B>,
    },
    /// Report something in the log and the metrics.
    Note(ReplicaId, Note),
}

/// Something worth reporting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// This number of stores is being left out of the open write.
    LeftOut(usize),
    /// A store's replica differs from the primary's, and does not count.
    Differs {
        /// The store.
        store: StoreId,
        /// The open write ended after an earlier primary: changes that were not acknowledged may be on some stores only.
        is_expected: bool,
    },
    /// The store cannot go on as the primary, and asks the manager to let another in-sync replica take over.
    HandingOver,
}

/// What a reader may see of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadView {
    /// The bytes of an open write, as this store has them.
    OfWriter,
    /// The bytes kept of an interrupted file.
    Kept,
    /// The object with this digest. If the store has another one, the read fails with [`ErrorCode::Stale`].
    Whole(ObjectDigest),
}
