//! Time limits and bounds of a node towards its peers.

use std::time::Duration;

/// Time limits and bounds of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// To make a connection, including TLS and both hellos.
    pub connect_time: Duration,
    /// For a frame that has begun to arrive; the same again for each MiB of its bulk.
    pub frame_time: Duration,
    /// For the peer to take 64 KiB.
    pub send_time: Duration,
    /// After this time without a frame, a node sends a sign of life.
    pub alive_every: Duration,
    /// After this time without a frame from the peer, the connection ends.
    pub silence_max: Duration,
    /// For the goodbye.
    pub close_time: Duration,
    /// How many unanswered requests of the peer are accepted.
    pub requests_max: u32,
    /// Their maximum total size in bytes: messages, bulk, and the allowed bulk of their answers.
    pub bytes_max: u64,
    /// Bytes of queued one-way frames. A sender of more must wait.
    pub one_way_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_time: Duration::from_secs(10),
            frame_time: Duration::from_secs(10),
            send_time: Duration::from_secs(20),
            alive_every: Duration::from_secs(2),
            silence_max: Duration::from_secs(10),
            close_time: Duration::from_secs(2),
            requests_max: 256,
            bytes_max: 64 << 20,
            one_way_bytes_max: 8 << 20,
        }
    }
}
