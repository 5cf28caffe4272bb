//! The number of a client's request.

use crate::SessionId;

/// The number of a change within a client's session. A retry with the same number gets the first answer and changes
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct RequestNumber {
    /// The client's session of numbered requests.
    pub session: SessionId,
    /// Counts up from 1 in each session.
    pub number: u64,
}
