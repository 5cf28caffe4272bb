//! Striped files of a cluster, for clients that do not know about striping. This disk server assembles them: it
//! accesses the stripe units as a client of their servers, one of which may be itself. The caller supplies the
//! implementation ([`Striper`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disk_server::StripedGrant;
use types::{ErrorCode, NsPath, RequestNumber, Timestamp};

/// Opens striped files.
pub trait Striper: Send + Sync {
    /// Opens a striped file. This may take a while.
    ///
    /// # Errors
    /// The open failed; the error is for the client.
    fn open(&self, open: &StripedOpen) -> Result<Arc<dyn StripedFile>, StripedError>;
}

/// A striped file to open.
#[derive(Clone, Debug)]
pub struct StripedOpen {
    /// Host and port of the manager.
    pub manager: (String, u16),
    /// The name of the file.
    pub path: NsPath,
    /// What the manager permits.
    pub grant: StripedGrant,
    /// The length that the client has announced.
    pub expected_len: Option<u64>,
}

/// An open striped file. Its methods wait for other servers, or for this one.
pub trait StripedFile: Send + Sync {
    /// The length, as far as this server knows it.
    fn len(&self) -> u64;
    /// Whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Reads into `into`. It returns fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// The read failed; the error is for the client.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StripedError>;
    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// The write failed. An unknown part of the data may be written.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), StripedError>;
    /// Truncates or extends the file.
    ///
    /// # Errors
    /// The operation failed. It may have been done in part.
    fn truncate(&self, len: u64) -> Result<(), StripedError>;
    /// Makes all acknowledged data durable.
    ///
    /// # Errors
    /// Acknowledged data may be lost.
    fn sync(&self) -> Result<(), StripedError>;
    /// Completes the file after the client has written everything, in a request of the client with this number.
    ///
    /// # Errors
    /// The file is not complete, or its state is unknown.
    fn complete(&self, mtime: Option<Timestamp>, request: Option<RequestNumber>) -> Result<(), StripedError>;
}

/// Why an operation on a striped file failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct StripedError {
    /// The code, for programs.
    pub code: ErrorCode,
    /// The text, for users.
    pub text: String,
    /// The manager, if a reader should ask it how to go on, with its host and port.
    pub ask: Option<(String, u16)>,
}

impl StripedError {
    /// An error that is the last word.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), ask: None }
    }
}

/// Maximum number of striped files being opened at a time. Each open has a thread.
const OPENS_MAX: usize = 256;

/// Counts the striped files that are being opened.
#[derive(Default)]
pub(crate) struct StripedOpens(Arc<AtomicUsize>);

/// One open of a striped file, until it is dropped.
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl StripedOpens {
    /// Begins an open. `None`: the maximum is reached.
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
    fn opens_are_limited_and_a_finished_open_makes_room() {
        let opens = StripedOpens::default();
        let mut under_way: Vec<_> = (0..OPENS_MAX).filter_map(|_| opens.take()).collect();
        assert!(under_way.len() == OPENS_MAX && opens.take().is_none());
        under_way.pop();
        assert!(opens.take().is_some() && opens.take().is_some(), "one that is given back can be taken again");
    }
}
