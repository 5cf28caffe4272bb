//! Striped files of a cluster, for clients that know nothing of them: this disk server puts them together. It reads and writes the units, one of
//! which it may have itself, as a client of their servers; what does that is handed in ([`Striper`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disk_server::StripedGrant;
use types::{ErrorCode, NsPath, Timestamp};

/// Opens striped files.
pub trait Striper: Send + Sync {
    /// Opens one, which may take a while.
    ///
    /// # Errors
    /// What went wrong, for the client.
    fn open(&self, open: &StripedOpen) -> Result<Arc<dyn StripedFile>, StripedError>;
}

/// Which file, and what for.
#[derive(Clone, Debug)]
pub struct StripedOpen {
    /// Where the manager is: host and port.
    pub manager: (String, u16),
    /// Its name.
    pub path: NsPath,
    /// What the manager said of it.
    pub grant: StripedGrant,
    /// The length that the client has announced.
    pub expected_len: Option<u64>,
}

/// An open striped file. Its methods wait for other servers, or for this one.
pub trait StripedFile: Send + Sync {
    /// How long it is, as far as is known here.
    fn len(&self) -> u64;
    /// Whether that is nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Reads; fewer bytes than there is room for only at its end.
    ///
    /// # Errors
    /// What went wrong, for the client.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StripedError>;
    /// Writes.
    ///
    /// # Errors
    /// After one nobody knows what is written.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), StripedError>;
    /// Cuts or extends.
    ///
    /// # Errors
    /// After one nobody knows whether it is done.
    fn truncate(&self, len: u64) -> Result<(), StripedError>;
    /// What was acknowledged is durable when this returns.
    ///
    /// # Errors
    /// It may be lost.
    fn sync(&self) -> Result<(), StripedError>;
    /// The client has written all: it is the file when this returns.
    ///
    /// # Errors
    /// It is not, or nobody knows.
    fn complete(&self, mtime: Option<Timestamp>) -> Result<(), StripedError>;
}

/// Why something was not done with a striped file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct StripedError {
    /// For programs.
    pub code: ErrorCode,
    /// The same in words.
    pub text: String,
}

/// Opens of striped files that may be under way at a time: each has a thread.
const OPENS_MAX: usize = 256;

/// How many are.
#[derive(Default)]
pub(crate) struct StripedOpens(Arc<AtomicUsize>);

/// One of them, as long as it lives.
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl StripedOpens {
    /// One more; `None`: there are as many as may be.
    pub(crate) fn take(&self) -> Option<UnderWay> {
        let more = |count: usize| (count < OPENS_MAX).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(UnderWay(Arc::clone(&self.0)))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_opened_at_a_time_and_no_more() {
        let opens = StripedOpens::default();
        let mut under_way: Vec<_> = (0..OPENS_MAX).filter_map(|_| opens.take()).collect();
        assert!(under_way.len() == OPENS_MAX && opens.take().is_none());
        under_way.pop();
        assert!(opens.take().is_some() && opens.take().is_some(), "one that is given back can be taken again");
    }
}
