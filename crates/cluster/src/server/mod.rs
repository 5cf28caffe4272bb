//! A disk server's decisions: one [`Member`] for its session with the manager, and for each of its stores one [`StorePart`], which knows the replicas that
//! the store is primary or replica of, and what may be shown to readers.
//!
//! The shell around them keeps a queue of disk work for each replica, connections and buffers. What it has to see to:
//! - Works of one replica are done in the order in which they were given, and each is answered.
//! - A [`View`] is taken anew for each step: what it says is true for that moment alone.
//! - What other stores send arrives on connections that the shell ends when nothing has moved on them for [`PartTerms::kept`], and all of them before it hands
//!   in a view with another session: what was on its way on them must not arrive any more, since what would tell that it is old is forgotten then.
//! - Whoever reads by a capability that was opened before keeps its [`Grant`], and is asked about with [`StorePart::may_read`] for each read, before and
//!   after the I/O.
//! - A client's changes that are not answered are bounded ([`StorePart::pending`]).

mod copy;
mod follow;
mod grant;
mod input;
mod member;
mod part;
mod primary_replica;
#[cfg(test)]
mod tests;
mod work;

pub use grant::{Grant, GrantRights};
pub use input::{Effect, Input, Note, PartTerms, ReadView};
pub use member::{Member, View};
pub use part::StorePart;
pub use work::{Work, WorkPurpose, WorkResult};
