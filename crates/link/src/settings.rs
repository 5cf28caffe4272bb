//! How patient a node is with its peers, and how much it takes of them.

use std::time::Duration;

/// Patience and bounds of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// For a connection to be made, TLS and both hellos included.
    pub connect_time: Duration,
    /// For a frame that has begun to arrive, and as long again for each MiB of its bulk.
    pub frame_time: Duration,
    /// For the peer to take 64 KiB of what is sent.
    pub send_time: Duration,
    /// Who has sent nothing for so long says that it is there.
    pub alive_every: Duration,
    /// A peer of whom nothing came for so long is taken for gone.
    pub silence_max: Duration,
    /// For the last words at the end.
    pub close_time: Duration,
    /// Requests of the peer that are taken before one is answered.
    pub requests_max: u32,
    /// Bytes of these in all: messages, bulk, and the bulk that their answers may have.
    pub bytes_max: u64,
    /// Bytes of one-way frames that wait to be sent, before who sends more has to wait.
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
