//! What a cluster decides, as synchronous machines: time, randomness and what came of I/O are handed in, what is to be done comes out. Knows no
//! sockets, no clocks, no disks.

mod lease;
pub mod placement;
pub mod replication;
mod sessions;
mod time;

pub use lease::{Lease, LeaseTerms};
pub use sessions::{Life, Presence, Register, Registered, SESSIONS_PER_RUN, Sessions};
pub use time::Time;
