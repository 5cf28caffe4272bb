//! Why a peer that is not known yet does not get what it asks for: to join, or to become an administrator.

use serde::Serialize;

use crate::channel::SplitChannel;
use crate::error::CloseCause;
use crate::join::send;

/// See the module. Each has the reason.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Anyone could have asked this, without a token or an invitation of this cluster.
    OfStranger(String),
    /// The secret was right.
    OfInvited(String),
}

/// Tells a stranger that it is refused, and ends the connection. Returns the cause for the listener, which limits how often such causes stand in the log.
pub(crate) fn turn_away(halves: &mut SplitChannel, verdict: &impl Serialize, cause: String) -> CloseCause {
    // Whether it stays to read that does not matter.
    if send(halves, verdict).is_ok() {
        halves.writing.end();
    }
    CloseCause::Misbehaved(cause)
}
