//! Closing files. All writes of the handle were done before, in order.

use std::sync::Arc;

use types::RequestNumber;

use crate::answer::Answer;
use crate::endings::Endings;
use crate::error::Error;
use crate::handles::Handle;
use crate::lease::Lease;
use crate::open_file::{Access, OpenFile};
use crate::service::Service;
use crate::session::Session;

/// The calling thread itself closes files up to this size, because that only appends to the journal.
const INLINE_MAX: u64 = 64 << 10;

/// The rest of a request, which waits for the disk. The caller must run it on a thread that may block.
#[must_use = "nobody else does it"]
pub struct LongWork(Box<dyn FnOnce() + Send>);

impl LongWork {
    /// Does the work and answers the request.
    pub fn run(self) {
        (self.0)();
    }
}

impl Service {
    /// Closes a file of `session`. When `answer` receives `Ok` for a written file, its object and its name are on the
    /// disk. Returns work that the caller must run. `request` is the number of the request, if the client numbers its
    /// requests.
    pub fn close(
        &self,
        session: &Session,
        handle: Handle,
        request: Option<RequestNumber>,
        answer: impl Answer<()>,
    ) -> Option<LongWork> {
        self.begin_close(session, handle, request, answer).and_then(|(file, is_shared, answer)| {
            let Access::Write(access) = &file.access else { return None };
            if is_shared {
                // The last close ends the write. What this handle has written is safe now.
                return Some(LongWork(Box::new(move || answer.give(file.sync()))));
            }
            let (endings, lease) = (Arc::clone(&self.endings), Arc::clone(&access.lease));
            if !lease.has_checkpoint() {
                return finish(endings, &file, lease, request, answer);
            }
            Some(LongWork(Box::new(move || {
                lease.end_checkpoint();
                if let Some(work) = finish(endings, &file, lease, request, answer) {
                    work.run();
                }
            })))
        })
    }

    /// `None`: the request is answered. `true`: the file is open for writing elsewhere, too.
    fn begin_close<A: Answer<()>>(
        &self,
        session: &Session,
        handle: Handle,
        request: Option<RequestNumber>,
        answer: A,
    ) -> Option<(Arc<OpenFile>, bool, A)> {
        let file = match self.file(session, handle) {
            Ok(file) => file,
            Err(error) => {
                answer.give(self.closed_before(session, handle, request, error));
                return None;
            }
        };
        file.stop_copying();
        let Access::Write(access) = &file.access else {
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
        // From here on the request must be answered and the open write must end.
        let (begun, closing, is_shared) = {
            let mut writers = self.writes.lock();
            let same = writers.lease(file.object).is_some_and(|lease| Arc::ptr_eq(&lease, &access.lease));
            let is_open = same && writers.is_attached(file.object, access.key);
            let is_shared = is_open && !access.lease.fresh && access.lease.sharers.lock().leave(access.session);
            let begun = same && (is_shared || writers.begin_close(file.object, access.key));
            (begun, same && writers.is_closing(file.object, access.key), is_shared)
        };
        if !begun {
            answer.give(if access.lease.is_committed() {
                // After an error XrdCl opens the file twice, and the other handle has closed it.
                session.handles.remove(handle);
                Ok(())
            } else if closing {
                let text = format!("{} is being closed by another handle of this session", file.path);
                Err(Error::Wait { seconds: 1, text })
            } else {
                session.handles.remove(handle);
                Err(access.is_over())
            });
            return None;
        }
        session.handles.close(handle, access.lease.failure());
        Some((file, is_shared, answer))
    }

    /// The outcome of a close whose handle is gone: `error`, the reason why an earlier close has failed, or what this
    /// very request has got before.
    fn closed_before(
        &self,
        session: &Session,
        handle: Handle,
        request: Option<RequestNumber>,
        error: Error,
    ) -> Result<(), Error> {
        if let Some(request) = request
            && let Some(outcome) = self.closed_by(&session.caller(), request)?
        {
            return outcome;
        }
        Err(session.handles.failure_of(handle).unwrap_or(error))
    }
}

fn finish(
    endings: Arc<Endings>,
    file: &OpenFile,
    lease: Arc<Lease>,
    request: Option<RequestNumber>,
    answer: impl Answer<()>,
) -> Option<LongWork> {
    let doubt = file.not_fetched().or_else(|| lease.doubt());
    if lease.writer().is_none_or(|writer| writer.len() <= INLINE_MAX) {
        endings.close(&lease, doubt, request, answer);
        return None;
    }
    let workers = Arc::clone(&endings.workers);
    workers.submit(Box::new(move || endings.close(&lease, doubt, request, answer))).err().map(LongWork)
}
