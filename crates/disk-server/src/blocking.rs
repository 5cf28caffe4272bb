//! For front ends whose threads wait. The thread that asks does the work on this server's own store, and then waits for the other stores. Nothing else in
//! this crate waits for an answer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use store::PageSum;
use types::ErrorCode;

use super::store_shell::Waiter;
use super::{DiskServer, Placed, PlacedError, WriteGrant};

/// The answer to a request, which a thread waits for.
struct Answer(Receiver<Result<(), ErrorCode>>);

impl Answer {
    fn new() -> (Waiter, Self) {
        let (sender, receiver) = sync_channel(1);
        let waiter: Waiter = Box::new(move |result| {
            // Whoever waits is there as long as its thread is.
            let _ = sender.send(result);
        });
        (waiter, Self(receiver))
    }

    fn wait(self, server: &DiskServer) -> Result<(), PlacedError> {
        self.0.recv().unwrap_or(Err(ErrorCode::Unavailable)).map_err(|code| server.refused(code))
    }
}

/// A write that others have not answered yet.
pub struct PendingWrite {
    placed: Arc<Placed>,
    answer: Answer,
}

impl PendingWrite {
    /// Waits until they have.
    ///
    /// # Errors
    /// Nobody knows whether it is written.
    pub fn wait(self) -> Result<(), PlacedError> {
        self.answer.wait(&self.placed.server)
    }
}

impl WriteGrant {
    /// [`WriteGrant::attach_then`], and waits.
    ///
    /// # Errors
    /// Somebody else orders them by now, or the store cannot.
    pub fn attach(self, path: &[u8], expected_len: Option<u64>) -> Result<Arc<Placed>, PlacedError> {
        let (sender, receiver) = sync_channel(1);
        self.attach_then(path, expected_len, move |attached| {
            // As above.
            let _ = sender.send(attached);
        });
        receiver.recv().unwrap_or(Err(PlacedError::Refused(ErrorCode::Unavailable)))
    }
}

impl Placed {
    fn wait_for(&self, begin: impl FnOnce(Waiter)) -> Result<(), PlacedError> {
        let (waiter, answer) = Answer::new();
        begin(waiter);
        answer.wait(&self.server)
    }

    /// [`Placed::write_then`], and waits.
    ///
    /// # Errors
    /// After one nobody knows whether it is written.
    pub fn write(&self, offset: u64, data: &[u8], sums: Option<&[PageSum]>) -> Result<(), PlacedError> {
        if data.is_empty() {
            return Ok(());
        }
        self.wait_for(|waiter| self.begin_write(self.at_hand(data, sums, false), offset, waiter))
    }

    /// Writes all of a new content, and does not wait for the others that take part: what is asked next is done behind it. A close that succeeds says
    /// that it is written. What comes back is to be waited for where too much would be on its way.
    ///
    /// # Errors
    /// Nothing is written.
    pub fn write_whole(self: &Arc<Self>, data: &[u8]) -> Result<Option<PendingWrite>, PlacedError> {
        if data.is_empty() {
            return Ok(None);
        }
        let (waiter, answer) = Answer::new();
        self.begin_write(self.at_hand(data, None, true), 0, waiter);
        if !self.is_shared {
            return answer.wait(&self.server).map(|()| None);
        }
        // What went wrong here is known already.
        match answer.0.try_recv() {
            Ok(result) => result.map(|()| None).map_err(|code| self.server.refused(code)),
            Err(_) => Ok(Some(PendingWrite { placed: Arc::clone(self), answer })),
        }
    }

    /// Cuts or extends on all stores that take part.
    ///
    /// # Errors
    /// After one nobody knows whether it is done.
    pub fn truncate(&self, len: u64) -> Result<(), PlacedError> {
        self.wait_for(|waiter| self.begin_truncate(len, waiter))
    }

    /// [`Placed::sync_then`], and waits: all that was acknowledged is durable, on all stores that take part, when this returns.
    ///
    /// # Errors
    /// It may be lost.
    pub fn sync(&self) -> Result<(), PlacedError> {
        self.wait_for(|waiter| self.begin_sync(waiter))
    }
}
