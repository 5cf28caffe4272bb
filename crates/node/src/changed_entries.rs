//! What a standby manager asks the active one before it answers readers: what has changed in the namespace.

use serde::{Deserialize, Serialize};

use crate::Committed;

/// The answer of the active manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Changes {
    /// What has changed.
    Entries(ChangedEntries),
    /// Somebody has seen more in the database than is acknowledged. Until it is, the standby manager reads there.
    Later,
}

/// The entries of the namespace that have changed since a batch that the standby manager knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChangedEntries {
    /// What is acknowledged.
    pub committed: Committed,
    /// Each entry that has changed, once. `None`: they cannot be told, so nothing of what was known before is sure any more.
    pub entries: Option<Vec<ChangedEntry>>,
}

/// An entry of the namespace that has changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChangedEntry {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value, `Some(None)` if there is none any more. `None`: it was left out, because the answer would be too long.
    pub now: Option<Option<Vec<u8>>>,
}
