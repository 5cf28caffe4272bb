//! Requests with numbers: a client that lost the answer to a change repeats it, and it is not done twice.
//!
//! A client begins a session ([`Service::begin_numbering`]) and numbers its changes from 1. The namespace remembers the
//! answers to the last requests of each session, with the changes themselves. Rules for clients:
//! - Each request has its own number. The client repeats a number only for the same request, when its answer was lost or
//!   it was told to wait. After any other answer it uses the next number.
//! - In a cluster it repeats the request where it began: at the manager. A disk server sends it there.
//! - At most as many requests are in progress as a session remembers ([`namespace::Limits`], 64 by default).
//! - Sessions are limited, and unused ones give way to new ones ([`namespace::Limits`]).
//!
//! A repeated open for writing continues the open write that the first one has begun. A repeated close is answered even
//! though its handle is gone. A close whose number cannot be used is refused before it begins. A disk server asks the
//! manager for that, which then also knows that the close is under way. Clients that send no numbers cost no record, and
//! their closes cost no question.

use manager::Manager;
use namespace::{CloseSession, Durability, NsError, OpTag, OpenSession, OpenWrite, Sharing, WriteMode, WriterToken};
use types::{ErrorCode, RequestNumber, SessionId};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::error::Error;
use crate::names::{By, wall_clock};
use crate::numbers::under_way;
use crate::service::{Role, Service};

/// The operations that complete a file, or close one of several handles.
const CLOSES: [OpTag; 5] =
    [OpTag::Commit, OpTag::CommitPlaced, OpTag::CommitStriped, OpTag::EndUnchanged, OpTag::NoteSharer];
/// The operations that complete a truncation by name. The last one finds that the file has that length.
const TRUNCATIONS: [OpTag; 4] = [OpTag::Commit, OpTag::CommitPlaced, OpTag::EndUnchanged, OpTag::Truncate];

impl Service {
    /// Begins a session of numbered requests for the client of `caller`. It is durable, and outlives connections and
    /// restarts.
    pub fn begin_numbering(&self, caller: &Caller, answer: impl Answer<SessionId>) {
        if let Some(elsewhere) = self.names_elsewhere() {
            return answer.give(Err(elsewhere));
        }
        let refused = |error: NsError| Error::of_namespace(&"begin a session of numbered requests:", &error);
        if let Err(error) = self.names.has_room_for_session(wall_clock(), &caller.client) {
            return answer.give(Err(refused(error)));
        }
        let op = OpenSession { client: caller.client.clone() };
        let done = move |result: Result<SessionId, NsError>| answer.give(result.map_err(refused));
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
        op.sharing = Some(Sharing::Keeps(None));
        *request = None;
        Ok(())
    }

    /// The outcome of the close with this number; `None`: it is not known.
    ///
    /// # Errors
    /// The session is unknown, the number was used for another request, or the close is still under way. On a disk
    /// server: the redirect to the manager, which knows.
    pub(crate) fn closed_by(
        &self,
        caller: &Caller,
        request: RequestNumber,
    ) -> Result<Option<Result<(), Error>>, Error> {
        self.ended_by(caller, request, ("close", &CLOSES), Manager::may_be_closing)
    }

    /// The outcome of the truncation by name with this number. The same as [`Service::closed_by`].
    pub(crate) fn truncated_by(
        &self,
        caller: &Caller,
        request: RequestNumber,
    ) -> Result<Option<Result<(), Error>>, Error> {
        self.ended_by(caller, request, ("truncate", &TRUNCATIONS), Manager::is_closing)
    }

    fn ended_by(
        &self,
        caller: &Caller,
        request: RequestNumber,
        (doing, tags): (&'static str, &[OpTag]),
        is_under_way: fn(&Manager, RequestNumber) -> Result<bool, NsError>,
    ) -> Result<Option<Result<(), Error>>, Error> {
        if let Some(elsewhere) = self.names_elsewhere() {
            return Err(elsewhere);
        }
        let refused = |error: NsError| Error::of_namespace(&doing, &error);
        // First whether it is under way: it may end meanwhile, and then its outcome is there.
        let is_under_way = match &self.role {
            Role::Manager(manager) => is_under_way(manager, request).map_err(refused)?,
            Role::Alone { .. } | Role::Disk(_) | Role::Standby(_) => false,
        };
        let outcome = self.names.read(|read| namespace::outcome_of(read, &caller.actor(), request, tags));
        match outcome.map_err(refused)? {
            None if is_under_way => Err(under_way(request)),
            outcome => Ok(outcome.map(|outcome| outcome.map_err(refused))),
        }
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
