//! What a cluster decides, as synchronous machines: time, randomness and what came of I/O are handed in, what is to be done comes out. Knows no
//! sockets, no clocks, no disks.

mod copying;
mod fences;
pub mod filling;
mod lease;
pub mod message;
pub mod placement;
mod reopening;
pub mod replication;
pub mod server;
mod sessions;
mod time;

pub use copying::{CopyEffect, CopyId, CopyRate, Copying, Owed, OwedPage};
pub use fences::{Fence, FenceId, Fences};
pub use lease::{Lease, LeaseTerms};
pub use reopening::{Reopening, Standing, reopening};
pub use sessions::{Life, Presence, Register, Registered, SESSIONS_PER_RUN, Sessions};
pub use time::Time;
