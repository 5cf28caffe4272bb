//! The way to speak to a running node: a socket in its data directory that only its owner (and root) may open.
//!
//! One request a connection: a line of JSON, [`Ask`]. One answer: a line of JSON, `{"ok": ...}` or `{"error": "..."}`; for some requests
//! bytes follow it, to the end of the connection. A request that is not known is answered with an error that says so, so that commands
//! and nodes of different versions can tell.

pub mod client;
mod server;

use std::io::Write;

pub use server::{Control, ControlError};

/// The socket's name in the data directory.
pub const SOCKET: &str = "control";
/// Longest line, of a request or an answer.
const LINE_MAX: u64 = 64 << 10;

/// What is asked of a node.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// What the scrub is at.
    ScrubStatus,
    /// Begin a pass of the scrub now, or go on with the one under way.
    ScrubNow {
        /// Bytes a second for this pass, instead of what is configured.
        rate: Option<u64>,
    },
    /// End the pass under way. The next one comes when it is due.
    ScrubStop,
    /// The namespace as of now. The answer says what follows it: a checkpoint file.
    Backup {
        /// Where an earlier backup stands: (record, incarnation of the log). Only what changed since is wanted.
        since: Option<(u64, u64)>,
    },
}

/// Writes what follows an answer.
pub type Following = Box<dyn FnOnce(&mut dyn Write) -> std::io::Result<()> + Send>;

/// An answer.
pub enum Reply {
    /// Done, or told.
    Done(serde_json::Value),
    /// The same, and bytes follow.
    Stream(serde_json::Value, Following),
    /// Not done, and why.
    Refused(String),
}

/// Answers requests. May take its time; several may be asked at once.
pub type Answerer = dyn Fn(Ask) -> Reply + Send + Sync;
