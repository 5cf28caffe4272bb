//! Storing what a connection has received while it receives more.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use wire::ErrorNumber;

use crate::fair::Class;
use crate::node::Node;
use crate::part::Part;
use crate::refusal::Refusal;
use crate::session::Session;

/// What of a connection's data is being stored by another thread.
///
/// One part is at a time, and whatever else the connection is asked waits for it. So its requests keep their order, as if it did
/// everything itself, and it holds two buffers at most.
#[derive(Default)]
pub(crate) struct Behind {
    under_way: Option<Receiver<Result<(), Refusal>>>,
}

/// Told how it went; or whoever waits for the part is, if there is nobody to tell.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

impl Behind {
    /// Has `part` stored, in a turn of its own; by the caller itself if all threads for it have something to do. The part before
    /// it must have been waited for.
    pub(crate) fn store(
        &mut self,
        node: &Arc<Node>,
        session: &Arc<Session>,
        connection: u64,
        part: Part,
        answer: Option<Answer>,
    ) {
        let (done, under_way) = sync_channel(1);
        self.under_way = Some(under_way);
        let (of_node, session) = (Arc::clone(node), Arc::clone(session));
        let job = move || {
            let mut turn = of_node.transfers.of(&session, connection, Class::Record, part.in_turns());
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
            answer(result);
        };
        if let Err(job) = node.storers.offer(Box::new(job)) {
            job();
        }
    }

    /// Whether there is something to wait for.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Waits until it is stored.
    ///
    /// # Errors
    /// Why it is not, if nobody else was told.
    pub(crate) fn wait(&mut self) -> Result<(), Refusal> {
        let lost =
            || Refusal::new(ErrorNumber::SERVER_ERROR, "The server failed while it stored this; please report it");
        self.under_way.take().map_or(Ok(()), |under_way| under_way.recv().unwrap_or_else(|_| Err(lost())))
    }
}
