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
    /// A token for a node that is to join the cluster. The answer is its text.
    MakeToken {
        /// What the node may become.
        role: crate::config::ClusterRole,
        /// For how long it is good.
        valid_millis: u64,
    },
    /// The tokens that are kept.
    Tokens,
    /// Nobody joins with a token any more. The answer is those that are left.
    RevokeToken {
        /// Which: its id, or the beginning of that.
        id: String,
    },
    /// The stores of the cluster.
    Stores,
    /// The cluster as a whole.
    ClusterStatus,
    /// The same, with what it does just now.
    Top,
    /// A file, and where it is.
    File {
        /// Its path.
        path: String,
    },
    /// Files that lack copies, some of them.
    Missing {
        /// Where an earlier answer ended.
        after: Option<manager::MissingAfter>,
        /// Only those that nobody can read just now.
        unreadable: bool,
    },
    /// A directory gets a policy.
    PolicySet {
        /// Its path.
        path: String,
        /// The policy.
        words: String,
    },
    /// The policy of a directory.
    PolicyGet {
        /// Its path.
        path: String,
    },
    /// A directory loses its own policy.
    PolicyRemove {
        /// Its path.
        path: String,
    },
    /// All policies that were set.
    PolicyList,
    /// How far repairs are; before that, a store may be given up for good.
    Repair {
        /// Which.
        give_up: Option<u64>,
        /// Also if its node is there.
        force: bool,
    },
    /// A store is only to be read from, or is used as ever. All stores are told.
    StoreReadOnly {
        /// Which.
        store: u64,
        /// Nothing new is put on it.
        read_only: bool,
    },
    /// A store is gone. Those left are told.
    StoreRemove {
        /// Which.
        store: u64,
    },
    /// A node is gone. The cluster as it is then is told.
    NodeRemove {
        /// Its name or number.
        name: String,
    },
    /// How far it is with stores that are emptied; before that, one may be begun or left as it is.
    Drain {
        /// Which.
        store: Option<u64>,
        /// It is not to be emptied any more.
        stop: bool,
    },
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
    /// Not done: what it is about is not there.
    Absent(String),
}

impl Reply {
    /// An answer that may be longer than a line: JSON that follows one.
    pub fn long(answer: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(answer) {
            Ok(bytes) => Self::Stream(serde_json::Value::Null, Box::new(move |out| out.write_all(&bytes))),
            Err(error) => Self::Refused(format!("the answer cannot be written: {error}")),
        }
    }
}

/// Answers requests. May take its time; several may be asked at once.
pub type Answerer = dyn Fn(Ask) -> Reply + Send + Sync;
