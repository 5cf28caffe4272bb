//! Requests with numbers: a client that lost the answer to a change repeats it, and it is not done twice.
//!
//! A client begins a session ([`Service::begin_numbering`]) and numbers its changes from 1. The namespace remembers the
//! answers to the last requests of each session, with the changes themselves. Rules for clients:
//! - Each request has its own number. The client repeats a number only for the same request, when its answer was lost.
//!   After any other answer than a wait it uses the next number.
//! - In a cluster it repeats the request where it began: at the manager. A disk server sends it there.
//! - At most as many requests are in progress as a session remembers ([`namespace::Limits`], 64 by default).
//!
//! A repeated open for writing continues the open write that the first one has begun. A repeated close is answered even
//! though its handle is gone. Clients that send no numbers cost no record.

use namespace::{CloseSession, Durability, NsError, OpTag, OpenSession, OpenWrite, WriteMode, WriterToken};
use types::{ErrorCode, RequestNumber, SessionId};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::error::Error;
use crate::names::By;
use crate::service::Service;

/// The operations that complete a file.
const CLOSES: [OpTag; 3] = [OpTag::Commit, OpTag::CommitPlaced, OpTag::EndUnchanged];

impl Service {
    /// Begins a session of numbered requests for the client of `caller`. It is durable, and outlives connections and
    /// restarts.
    pub fn begin_numbering(&self, caller: &Caller, answer: impl Answer<SessionId>) {
        if let Some(elsewhere) = self.names_elsewhere() {
            return answer.give(Err(elsewhere));
        }
        let op = OpenSession { client: caller.client.clone() };
        let done = move |result: Result<SessionId, NsError>| {
            answer.give(result.map_err(|error| Error::of_namespace(&"begin a session of numbered requests", &error)));
        };
        self.names.change(By::caller(caller), Durability::Synced, op, done);
    }

    /// Ends a session of numbered requests. Its answers are forgotten.
    pub fn end_numbering(&self, caller: &Caller, session: SessionId, answer: impl Answer<()>) {
        if let Some(elsewhere) = self.names_elsewhere() {
            return answer.give(Err(elsewhere));
        }
        let done = move |result: Result<(), NsError>| {
            answer.give(result.map_err(|error| Error::of_namespace(&"end a session of numbered requests", &error)));
        };
        self.names.change(By::caller(caller).urgently(), Durability::Written, CloseSession { session }, done);
    }

    /// Makes an open for writing continue the open write that the same request has begun before. Then the number is
    /// used up, and `request` becomes `None`.
    ///
    /// # Errors
    /// The session is unknown, the number was used for another request, or the open write has ended.
    pub(crate) fn go_on_if_repeated(
        &self,
        caller: &Caller,
        request: &mut Option<RequestNumber>,
        op: &mut OpenWrite,
    ) -> Result<(), Error> {
        let Some(number) = *request else { return Ok(()) };
        let begun = self.names.read(|read| {
            let answer = namespace::answer_to::<OpenWrite>(read, &caller.actor(), number)?.transpose()?;
            let Some(WriterToken { key, object, .. }) = answer.map(|opened| opened.writer) else { return Ok(None) };
            // A takeover has raised its epoch.
            Ok(Some(namespace::writer_of(read, key, object)?.map(|record| record.token())))
        });
        let Some(writer) = begun.map_err(|error| Error::of_namespace(&"open", &error))? else { return Ok(()) };
        let Some(writer) = writer else {
            let text =
                format!("Request {} has opened {} before, and that open write has ended", number.number, op.path);
            return Err(Error::new(ErrorCode::Stale, text));
        };
        (op.how, op.only, op.resume) = (WriteMode::Update, Some(writer), None);
        *request = None;
        Ok(())
    }

    /// The outcome of the close with this number; `None`: it is not known.
    ///
    /// # Errors
    /// The session is unknown, or the number was used for another request. On a disk server: the redirect to the
    /// manager, which knows.
    pub(crate) fn closed_by(
        &self,
        caller: &Caller,
        request: RequestNumber,
    ) -> Result<Option<Result<(), Error>>, Error> {
        if let Some(elsewhere) = self.names_elsewhere() {
            return Err(elsewhere);
        }
        let refused = |error: NsError| Error::of_namespace(&"close", &error);
        let outcome = self.names.read(|read| namespace::outcome_of(read, &caller.actor(), request, &CLOSES));
        Ok(outcome.map_err(refused)?.map(|outcome| outcome.map_err(refused)))
    }

    /// Fails unless the number of this close can be used: its session is known, and nothing was done for it yet. On a
    /// disk server the manager finds out.
    pub(crate) fn may_close_with(&self, caller: &Caller, request: RequestNumber) -> Result<(), Error> {
        if !self.has_names() {
            return Ok(());
        }
        match self.closed_by(caller, request)? {
            None => Ok(()),
            Some(_) => {
                let text = format!("Request {} was used to close another file; use the next number", request.number);
                Err(Error::new(ErrorCode::Invalid, text))
            }
        }
    }
}
