//! Closing files. All writes of the handle were done before, in order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use types::RequestNumber;

use crate::answer::Answer;
use crate::endings::Endings;
use crate::error::Error;
use crate::handles::Handle;
use crate::lease::{Lease, WriteAccess};
use crate::numbers::{Numbered, under_way};
use crate::open_file::{Access, OpenFile};
use crate::open_writes::Ends;
use crate::service::{Role, Service};
use crate::session::Session;

/// The calling thread itself closes files up to this size, because that only appends to the journal.
const INLINE_MAX: u64 = 64 << 10;

/// The rest of a request, which waits for the disk. The caller must run it on a thread that may block.
#[must_use = "nobody else does it"]
pub struct LongWork(Box<dyn FnOnce() + Send>);

impl LongWork {
    pub(crate) fn new(work: Box<dyn FnOnce() + Send>) -> Self {
        Self(work)
    }

    /// Does the work and answers the request.
    pub fn run(self) {
        (self.0)();
    }
}

impl Service {
    /// Closes a file of `session`. When `answer` receives `Ok` for a written file, its object and its name are on the
    /// disk. Returns work that the caller must run. `request` is the number of the request, if the client numbers its
    /// requests. If the number cannot be used, the file stays open.
    pub fn close(
        self: &Arc<Self>,
        session: &Arc<Session>,
        handle: Handle,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) -> Option<LongWork> {
        let answer = self.audited_close(session, "close", handle, answer);
        self.close_numbered(session, handle, request, answer)
    }

    /// A close whose line somebody else writes.
    pub(crate) fn close_numbered(
        self: &Arc<Self>,
        session: &Arc<Session>,
        handle: Handle,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) -> Option<LongWork> {
        let Some(number) = request else { return self.close_once(session, handle, None, answer) };
        match self.numbers.begin(number) {
            Some(under_way) => self.close_once(session, handle, request, Numbered::new(answer, under_way)),
            None => {
                answer.give(Err(under_way(number)));
                None
            }
        }
    }

    fn close_once(
        self: &Arc<Self>,
        session: &Arc<Session>,
        handle: Handle,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) -> Option<LongWork> {
        let (file, ends, answer) = self.begin_close(session, handle, request, answer)?;
        let Access::Write(access) = &file.access else { return None };
        if ends == Ends::Leaves {
            let (this, session) = (Arc::clone(self), Arc::clone(session));
            return Some(LongWork::new(Box::new(move || this.leave(session, handle, file, request, answer))));
        }
        let lease = Arc::clone(&access.lease);
        self.note_sharer(&lease, session.caller().client.clone(), file.path.clone(), false);
        let (Some(number), Role::Disk(disk)) = (request, &self.role) else {
            return self.go_on_closing(session, handle, (&file, lease), request, answer);
        };
        // Only the manager knows whether the number can be used. Afterwards the file can no longer stay open.
        let (this, session, token) = (Arc::clone(self), Arc::clone(session), lease.token());
        disk.announce_close(token, number, move |agreed| {
            let service = Arc::clone(&this);
            service.workers.must_do(answer, move |answer| match agreed {
                Ok(()) => {
                    let work = this.go_on_closing(&session, handle, (&file, lease), request, answer);
                    work.into_iter().for_each(LongWork::run);
                }
                Err(not_agreed) => {
                    this.stays_open(&session, handle, &file);
                    answer.give(Err(Error::of_manager(&format_args!("close {}", file.path), &not_agreed)));
                }
            });
        });
        None
    }

    /// The file of a close that has not begun stays open for its session, or for its client to return.
    fn stays_open(&self, session: &Session, handle: Handle, file: &OpenFile) {
        let Access::Write(access) = &file.access else { return };
        access.is_closing.store(false, Ordering::Release);
        {
            let mut writers = self.writes.lock();
            writers.stays_open(file.object, access.key);
            // A session that ends from now on detaches the file.
            if session.handles.get(handle).is_some() {
                return;
            }
        }
        self.detach(file, access, Instant::now());
    }

    fn go_on_closing(
        &self,
        session: &Session,
        handle: Handle,
        (file, lease): (&OpenFile, Arc<Lease>),
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) -> Option<LongWork> {
        session.handles.close(handle, lease.failure());
        file.stop_copying();
        let endings = Arc::clone(&self.endings);
        let not_fetched = file.not_fetched();
        if !lease.has_checkpoint() {
            return finish(endings, not_fetched, lease, request, answer);
        }
        Some(LongWork(Box::new(move || {
            lease.end_checkpoint();
            if let Some(work) = finish(endings, not_fetched, lease, request, answer) {
                work.run();
            }
        })))
    }

    /// `None`: the request is answered. [`Ends::Last`]: nobody else can end the open write meanwhile.
    fn begin_close<A: Answer<()>>(
        &self,
        session: &Session,
        handle: Handle,
        request: Option<RequestNumber>,
        answer: A,
    ) -> Option<(Arc<OpenFile>, Ends, A)> {
        let file = match self.file(session, handle) {
            Ok(file) => file,
            Err(error) => {
                answer.give(self.closed_before(session, handle, request, error));
                return None;
            }
        };
        let Access::Write(access) = &file.access else {
            file.stop_copying();
            session.handles.remove(handle);
            answer.give(Ok(()));
            return None;
        };
        if access.lease.is_committed() {
            // After an error XrdCl opens the file twice, and the other handle has closed it. A later writer of the
            // same object has another lease.
            session.handles.remove(handle);
            answer.give(Ok(()));
            return None;
        }
        if let Some(request) = request
            && let Err(error) = self.may_close_with(&session.caller(), request)
        {
            answer.give(Err(error));
            return None;
        }
        match self.begin_to_end(session, handle, &file, access) {
            Ok(ends) => Some((file, ends, answer)),
            Err(outcome) => {
                answer.give(outcome);
                None
            }
        }
    }

    /// Begins the end of an open write, or of one handle of several. Afterwards the request must be answered, and the open
    /// write must end or stay open. `Err`: nothing was begun; the outcome of a close by this handle.
    pub(crate) fn begin_to_end(
        &self,
        session: &Session,
        handle: Handle,
        file: &OpenFile,
        access: &WriteAccess,
    ) -> Result<Ends, Result<(), Error>> {
        let is_first = !access.is_closing.swap(true, Ordering::AcqRel);
        let ends = if is_first { self.writes.begin_close(access) } else { Ends::Nothing };
        if ends != Ends::Nothing {
            return Ok(ends);
        }
        let closing = !is_first || self.is_closing(file, access);
        if is_first {
            access.is_closing.store(false, Ordering::Release);
        }
        Err(if access.lease.is_committed() {
            // After an error XrdCl opens the file twice, and the other handle has closed it.
            session.handles.remove(handle);
            Ok(())
        } else if closing {
            let text = format!("{} is being closed by another handle of this session", file.path);
            Err(Error::Wait { seconds: 1, text })
        } else {
            session.handles.remove(handle);
            Err(access.is_over())
        })
    }

    /// Whether another handle of the session is closing the file.
    fn is_closing(&self, file: &OpenFile, access: &WriteAccess) -> bool {
        let writers = self.writes.lock();
        let is_same = writers.lease(file.object).is_some_and(|lease| Arc::ptr_eq(&lease, &access.lease));
        is_same && writers.is_closing(file.object, access.key)
    }

    /// The outcome of a close whose handle is gone: the reason why that close has failed, what this very request has
    /// got before, or `error`.
    fn closed_before(
        &self,
        session: &Session,
        handle: Handle,
        request: Option<RequestNumber>,
        error: Error,
    ) -> Result<(), Error> {
        if let Some(failure) = session.handles.failure_of(handle) {
            return Err(failure);
        }
        let outcome = request.map(|request| self.closed_by(&session.caller(), request));
        outcome.transpose()?.flatten().unwrap_or(Err(error))
    }
}

pub(crate) fn finish(
    endings: Arc<Endings>,
    not_fetched: Option<Error>,
    lease: Arc<Lease>,
    request: Option<RequestNumber>,
    answer: impl Answer<()>,
) -> Option<LongWork> {
    let doubt = not_fetched.or_else(|| lease.doubt());
    if lease.writer().is_none_or(|writer| writer.len() <= INLINE_MAX) {
        endings.close(&lease, doubt, request, answer);
        return None;
    }
    let workers = Arc::clone(&endings.workers);
    workers.submit(Box::new(move || endings.close(&lease, doubt, request, answer))).err().map(LongWork)
}
