//! How an operation's answer is kept for a retry.

/// An answer that can be remembered.
pub trait Answer: Sized {
    /// Appends the answer's bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads what [`Self::encode`] wrote; `None` if it does not read back.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

macro_rules! later { ($($t:ty),*) => { $(impl Answer for $t { fn encode(&self, _out: &mut Vec<u8>) { todo!() } fn decode(_b: &[u8]) -> Option<Self> { todo!() } })* } }
later!(
    (),
    types::Ino,
    types::BodyId,
    Option<types::BodyId>,
    Option<u64>,
    types::SessionId,
    types::TreeId,
    types::Incarnation,
    crate::Made,
    crate::Removed,
    crate::Renamed,
    crate::OpenedWrite,
    Option<crate::OpenedWrite>,
    crate::CommitReply,
    crate::InterruptReply
);
