//! Stores data of a connection while it receives more.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use types::ErrorCode;

use crate::answer::Answer;
use crate::error::Error;
use crate::fair::Class;
use crate::part::Part;
use crate::service::Service;
use crate::session::Session;

/// The data of a connection that another thread is storing.
///
/// There is at most one part, and every other request of the connection waits for it. So the requests keep their
/// order, as if the connection stored the data itself, and the connection holds at most two buffers.
#[derive(Default)]
pub struct BackgroundStore {
    under_way: Option<Receiver<Result<(), Error>>>,
}

impl BackgroundStore {
    /// Has another thread store `part`, with its own transfer slot. If all storers are busy, the caller stores it.
    /// The caller must have waited for the previous part. The result goes to `answer` if there is one, and otherwise
    /// to [`BackgroundStore::wait`].
    pub fn store(
        &mut self,
        service: &Arc<Service>,
        session: &Arc<Session>,
        connection: u64,
        part: Part,
        answer: Option<impl Answer<()>>,
    ) {
        let (done, under_way) = sync_channel(1);
        self.under_way = Some(under_way);
        let (transfers, session) = (Arc::clone(&service.transfers), Arc::clone(session));
        let job = move || {
            let mut turn = transfers.of(&*session, connection, Class::Record, part.in_turns());
            turn.take(|| part.len() as u64);
            let result = part.store();
            drop(turn);
            drop(part);
            // Release the connection first. It does not listen if its thread has panicked.
            let Some(answer) = answer else {
                let _ = done.send(result);
                return;
            };
            let _ = done.send(Ok(()));
            answer.give(result);
        };
        if let Err(job) = service.storers.offer(Box::new(job)) {
            job();
        }
    }

    /// Whether a part is being stored.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Waits until the part is stored.
    ///
    /// # Errors
    /// The part was not stored, and it had no `answer` to tell.
    pub fn wait(&mut self) -> Result<(), Error> {
        let lost = || Error::new(ErrorCode::Internal, "The server failed while it stored this; please report it");
        self.under_way.take().map_or(Ok(()), |under_way| under_way.recv().unwrap_or_else(|_| Err(lost())))
    }
}
