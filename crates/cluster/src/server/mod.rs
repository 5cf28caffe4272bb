//! A disk server's decisions. One [`Member`] handles its session with the manager. One [`StorePart`] for each store
//! knows the replicas of which the store is primary or secondary, and what readers may see.
//!
//! The shell around them keeps a queue of disk work for each replica, the connections and the buffers. It must
//! ensure the following:
//! - It does the works of one replica in the order in which they were given, and answers each.
//! - It passes a new [`View`] to each step, because a view is true for one moment only.
//! - It ends a connection from another store when no message has arrived on it for [`PartTerms::kept`]. It ends all
//!   such connections before it passes a view with another session. Messages on these connections must not arrive
//!   later, because by then the store has forgotten the state that would show their age.
//! - For a file that was opened with a capability, it keeps the [`Grant`], and calls [`StorePart::may_read`] for
//!   each read, before and after the I/O.
//! - It bounds the unanswered changes of clients ([`StorePart::pending`]).

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
pub use work::{Found, Work, WorkPurpose, WorkResult};
