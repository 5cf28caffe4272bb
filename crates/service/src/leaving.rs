//! Closes of files that other clients go on writing. What was written is durable then. The last close completes the file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use namespace::{Durability, NoteSharer, NsError};
use types::RequestNumber;

use crate::answer::Answer;
use crate::closing::finish;
use crate::error::Error;
use crate::handles::Handle;
use crate::lease::{Failure, WriteAccess};
use crate::names::By;
use crate::open_file::{Access, OpenFile};
use crate::open_writes::Ends;
use crate::service::{Role, Service};
use crate::session::Session;

impl Service {
    /// Closes a handle while others write the file. May wait for the disk.
    pub(crate) fn leave(
        self: Arc<Self>,
        session: Arc<Session>,
        handle: Handle,
        file: Arc<OpenFile>,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) {
        let Access::Write(access) = &file.access else { return };
        // Before the share leaves: afterwards the last close may end the write at any moment.
        let outcome = file.sync().and_then(|()| access.lease.doubt().map_or(Ok(()), Err));
        let (Some(number), Ok(())) = (request, &outcome) else {
            return self.has_left((&session, handle), &file, (outcome, request), answer);
        };
        let doing = format!("close {}", file.path);
        let (this, writer) = (Arc::clone(&self), access.lease.token());
        let caller = session.caller();
        let client = caller.client.clone();
        // With another handle the client may still be lost.
        let is_away = access.lease.sharers.lock().has_another(access.share, &client);
        let op = NoteSharer { client, path: file.path.clone(), object: file.object, is_away, boot: access.lease.boot };
        // The answer must be recorded, so that a repeated close finds it. After that the number is used.
        let recorded = move |recorded: Result<(), Error>| {
            let service = Arc::clone(&this);
            service.workers.must_do(answer, move |answer| match recorded {
                Ok(()) => this.has_left((&session, handle), &file, (Ok(()), None), answer),
                Err(error) => {
                    this.stays_with_others((&session, handle), &file);
                    answer.give(Err(error));
                }
            });
        };
        match &self.role {
            Role::Disk(disk) => disk.leave(writer, number, move |agreed| {
                recorded(agreed.map_err(|error| Error::of_manager(&doing, &error)));
            }),
            // A standby manager has no open write: the names refuse this.
            Role::Alone { .. } | Role::Manager(_) | Role::Standby(_) => {
                let by = By::caller(&caller).numbered(Some(number));
                self.names.change(by, Durability::Synced, op, move |result: Result<(), NsError>| {
                    recorded(result.map_err(|error| Error::of_namespace(&doing, &error)));
                });
            }
        }
    }

    /// The handle is closed. If the others have closed meanwhile, it completes the file. `request` is the number of the request, if it is not
    /// recorded yet.
    fn has_left(
        &self,
        (session, handle): (&Session, Handle),
        file: &OpenFile,
        (outcome, request): (Result<(), Error>, Option<RequestNumber>),
        answer: impl Answer<()>,
    ) {
        let Access::Write(access) = &file.access else { return };
        let failure = Failure::default();
        *failure.lock() = outcome.as_ref().err().cloned();
        session.handles.close(handle, &failure);
        if self.end_or_leave(file, access, session) == Ends::Last {
            let (endings, lease) = (Arc::clone(&self.endings), Arc::clone(&access.lease));
            if let Some(work) = finish(endings, None, lease, request, answer) {
                work.run();
            }
            return;
        }
        answer.give(outcome);
    }

    fn end_or_leave(&self, file: &OpenFile, access: &WriteAccess, session: &Session) -> Ends {
        let ends = self.writes.finish_close(access, true, Instant::now());
        let client = session.caller().client.clone();
        if !access.lease.sharers.lock().has_client(&client) || ends == Ends::Last {
            self.note_sharer(&access.lease, client, file.path.clone(), false);
        }
        ends
    }

    /// The close does not take place. The file stays open for its session, or for its client to return.
    fn stays_with_others(&self, (session, handle): (&Session, Handle), file: &OpenFile) {
        let Access::Write(access) = &file.access else { return };
        access.is_closing.store(false, Ordering::Release);
        let ends = self.writes.finish_close(access, false, Instant::now());
        debug_assert_ne!(ends, Ends::Last, "it has something open");
        // A session that has ended meanwhile has lost its share then.
        if session.handles.get(handle).is_none() {
            self.detach(file, access, Instant::now());
        }
    }
}
