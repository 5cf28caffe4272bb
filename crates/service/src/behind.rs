//! Storing what a connection has received while it receives more.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use types::ErrorCode;

use crate::answer::Answer;
use crate::error::Error;
use crate::fair::Class;
use crate::part::Part;
use crate::service::Service;
use crate::session::Session;

/// What of a connection's data is being stored by another thread.
///
/// One part is at a time, and whatever else the connection is asked waits for it. So its requests keep their order, as if it did
/// everything itself, and it holds two buffers at most.
#[derive(Default)]
pub struct Behind {
    under_way: Option<Receiver<Result<(), Error>>>,
}

impl Behind {
    /// Has `part` stored, in a turn of its own; by the caller itself if all threads for it have something to do. The part before
    /// it must have been waited for. `answer` is told how it went; without one, whoever waits for the part is.
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
            // The connection goes on first; nobody listens where its thread has panicked.
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

    /// Whether there is something to wait for.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Waits until it is stored.
    ///
    /// # Errors
    /// Why it is not, if nobody else was told.
    pub fn wait(&mut self) -> Result<(), Error> {
        let lost = || Error::new(ErrorCode::Internal, "The server failed while it stored this; please report it");
        self.under_way.take().map_or(Ok(()), |under_way| under_way.recv().unwrap_or_else(|_| Err(lost())))
    }
}
