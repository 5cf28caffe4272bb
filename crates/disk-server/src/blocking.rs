//! Blocking calls, for front ends that give each request a thread. The calling thread does the work on this server's own store and then waits for the
//! other stores. Nothing else in this crate waits for an answer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use store::PageSum;
use types::ErrorCode;

use super::store_shell::Waiter;
use super::{DiskServer, DiskServerError, ReplicatedWriter, WriteGrant};

/// The answer to a request for which a thread waits.
struct Answer(Receiver<Result<(), ErrorCode>>);

impl Answer {
    fn new() -> (Waiter, Self) {
        let (sender, receiver) = sync_channel(1);
        let waiter: Waiter = Box::new(move |result| {
            // The receiver is there as long as its thread is.
            let _ = sender.send(result);
        });
        (waiter, Self(receiver))
    }

    fn wait(self, server: &DiskServer) -> Result<(), DiskServerError> {
        self.0.recv().unwrap_or(Err(ErrorCode::Unavailable)).map_err(|code| server.refused(code))
    }
}

/// A write that the other stores have not answered yet.
pub struct PendingWrite {
    replicated: Arc<ReplicatedWriter>,
    answer: Answer,
}

impl PendingWrite {
    /// Waits for the other stores.
    ///
    /// # Errors
    /// It is unknown whether the bytes are written.
    pub fn wait(self) -> Result<(), DiskServerError> {
        self.answer.wait(&self.replicated.server)
    }
}

impl WriteGrant {
    /// Calls [`WriteGrant::attach_then`] and waits.
    ///
    /// # Errors
    /// Another store is the primary by now, or the store failed.
    pub fn attach(self, path: &[u8], expected_len: Option<u64>) -> Result<Arc<ReplicatedWriter>, DiskServerError> {
        let (sender, receiver) = sync_channel(1);
        self.attach_then(path, expected_len, move |attached| {
            // The receiver is there as long as its thread is.
            let _ = sender.send(attached);
        });
        receiver.recv().unwrap_or(Err(DiskServerError::Refused(ErrorCode::Unavailable)))
    }
}

impl ReplicatedWriter {
    fn wait_for(&self, begin: impl FnOnce(Waiter)) -> Result<(), DiskServerError> {
        let (waiter, answer) = Answer::new();
        begin(waiter);
        answer.wait(&self.server)
    }

    /// Calls [`ReplicatedWriter::write_then`] and waits.
    ///
    /// # Errors
    /// After an error it is unknown whether the bytes are written.
    pub fn write(&self, offset: u64, data: &[u8], sums: Option<&[PageSum]>) -> Result<(), DiskServerError> {
        if data.is_empty() {
            return Ok(());
        }
        self.wait_for(|waiter| self.begin_write(self.at_hand(data, sums, false), offset, waiter))
    }

    /// Writes a whole new object without waiting for the other in-sync replicas. Later requests are executed after it, and a successful close
    /// confirms it. Wait for the returned value if too much is in transit.
    ///
    /// # Errors
    /// Nothing is written.
    pub fn write_whole(self: &Arc<Self>, data: &[u8]) -> Result<Option<PendingWrite>, DiskServerError> {
        if data.is_empty() {
            return Ok(None);
        }
        let (waiter, answer) = Answer::new();
        self.begin_write(self.at_hand(data, None, true), 0, waiter);
        if !self.is_shared {
            return answer.wait(&self.server).map(|()| None);
        }
        // An error on the own store is known already.
        match answer.0.try_recv() {
            Ok(result) => result.map(|()| None).map_err(|code| self.server.refused(code)),
            Err(_) => Ok(Some(PendingWrite { replicated: Arc::clone(self), answer })),
        }
    }

    /// Shortens or extends all in-sync replicas.
    ///
    /// # Errors
    /// After an error it is unknown whether the length has changed.
    pub fn truncate(&self, len: u64) -> Result<(), DiskServerError> {
        self.wait_for(|waiter| self.begin_truncate(len, waiter))
    }

    /// Calls [`ReplicatedWriter::sync_then`] and waits. Then all acknowledged bytes are durable on all in-sync replicas.
    ///
    /// # Errors
    /// Acknowledged bytes may be lost.
    pub fn sync(&self) -> Result<(), DiskServerError> {
        self.wait_for(|waiter| self.begin_sync(waiter))
    }
}
