//! The decisions of a cluster, as synchronous machines. They take time, randomness and the results of I/O as
//! arguments, and return the actions that the caller must take. This crate has no sockets, no clocks and no disks,
//! so the simulator and the real node run the same code.
//!
//! | module | decides |
//! | --- | --- |
//! | [`placement`] | which stores a new object gets: a pure function of map, policy, client's location and seed |
//! | `lease`, `sessions` | how long a disk server may answer, and when the manager may be sure that it has stopped |
//! | `fences` | which store must have stopped before a change takes effect |
//! | [`replication`] | the order of a write, and when it is answered |
//! | [`server`] | what one disk server may write, show and refuse |
//! | `reopening` | which store continues an open write when its client returns |
//! | [`backfill`] | how another store replaces one that leaves a group |
//! | `copying` | which missing replica is made next, at a bounded rate |
//!
//! # Invariants
//!
//! - A primary answers a change when every in-sync replica has applied it, under a lease that is valid after the I/O.
//! - A primary leaves a replica out only after the manager has recorded that.
//! - A store that takes over has every acknowledged change, and the old primary has stopped.
//! - A replica counts when the namespace has recorded it, never earlier.
//!
//! `docs/explanation/cluster.md` has the reasons and the cases.

pub mod backfill;
mod copying;
mod fences;
mod lease;
pub mod message;
pub mod placement;
mod reopening;
pub mod replication;
pub mod server;
mod sessions;
mod time;

pub use copying::{CopyEffect, CopyId, CopyRate, Copying, MissingReplica, MissingReplicaPage};
pub use fences::{Fence, FenceId, Fences};
pub use lease::{Lease, LeaseTerms};
pub use reopening::{Reopening, StoreStatus, reopening};
pub use sessions::{Presence, ProcessEpoch, Register, Registered, SESSIONS_PER_RUN, Sessions};
pub use time::Time;
