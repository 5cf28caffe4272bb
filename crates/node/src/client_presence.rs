//! Whether the client of an open write is there, and how other clients are told.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use types::ClientIdentity;
use types::units::show_seconds;

/// Added to the text of [`ClientPresence::describe`] for a client that could end the open write, and does not ask for it.
pub const GO_ON_HINT: &str =
    "; to go on with what is there, open it for update with ?weir.resume=1, or replace the file";

/// Whether the client of an open write is connected to the server that was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientPresence {
    /// It has the file open.
    There,
    /// It has lost its connection.
    Gone {
        /// How long ago, in milliseconds.
        ago_ms: u64,
        /// How long the server still waits for it, in milliseconds.
        left_ms: u64,
    },
    /// The open write is being closed or ended.
    Ending,
    /// The server does not have the open write.
    Unknown,
}

impl ClientPresence {
    /// Says who writes a file, since when, and until when the server waits for it. The client has opened the file the time
    /// `opened` ago.
    #[must_use]
    pub fn describe(self, client: &ClientIdentity, opened: Duration) -> String {
        let opened = show_seconds(opened);
        match self {
            Self::There => {
                format!("it is being written by {client}, which opened it {opened} ago; try again when that has ended")
            }
            Self::Gone { ago_ms, left_ms } => {
                let [gone, left] = [ago_ms, left_ms].map(|ms| show_seconds(Duration::from_millis(ms)));
                format!(
                    "it is being written by {client}, which opened it {opened} ago and lost its connection {gone} ago; it may come back within {left}, and then the file is completed if all of it is here, or marked as interrupted"
                )
            }
            Self::Ending => format!("it was written by {client}, and is being closed at this moment"),
            Self::Unknown => format!(
                "it is being written by {client}, which opened it {opened} ago, and is not connected to the servers of the file at this moment"
            ),
        }
    }
}
