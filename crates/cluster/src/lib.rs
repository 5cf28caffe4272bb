//! What a cluster decides, as synchronous machines: time, randomness and what came of I/O are handed in, what is to be done comes out. Knows no
//! sockets, no clocks, no disks.

pub mod placement;
