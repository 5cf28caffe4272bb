//! Discarding an open write: its client has aborted it, or its data broke off and nobody will come back for it.

use std::sync::Arc;

use types::ErrorCode;

use crate::answer::Answer;
use crate::closing::LongWork;
use crate::error::Error;
use crate::handles::Handle;
use crate::open_file::Access;
use crate::service::Service;
use crate::session::Session;

impl Service {
    /// Discards what was written through a handle of `session`. When `answer` receives `Ok`, a new file is gone, and a
    /// file that was to be replaced is as before; a power failure does not bring anything back. The stores give the space
    /// back soon afterwards. Nobody can continue the open write. Returns work that the caller must run.
    ///
    /// An update in place cannot be discarded: its old bytes are gone. It is closed if nothing was changed, and is
    /// otherwise refused and stays open. If the discard fails for another reason, the server tries it again.
    pub fn discard(
        self: &Arc<Self>,
        session: &Arc<Session>,
        handle: Handle,
        answer: impl Answer<()>,
    ) -> Option<LongWork> {
        let answer = self.audited_close(session, "discard", handle, answer);
        let file = match self.file(session, handle) {
            Ok(file) => file,
            Err(error) => {
                answer.give(Err(error));
                return None;
            }
        };
        let Access::Write(access) = &file.access else {
            let text = format!("{} is open for reading only; close it", file.path);
            answer.give(Err(Error::new(ErrorCode::NotAllowedNow, text)));
            return None;
        };
        let lease = Arc::clone(&access.lease);
        if !lease.fresh && lease.is_untouched() && !lease.is_committed() {
            return self.close_numbered(session, handle, None, answer);
        }
        if !lease.fresh {
            let text = format!(
                "Cannot discard {}: it is changed in place, and its old bytes are gone; close it, or write them again",
                file.path
            );
            answer.give(Err(Error::new(ErrorCode::NotAllowedNow, text)));
            return None;
        }
        if let Err(outcome) = self.begin_to_end(session, handle, &file, access) {
            answer.give(outcome.and_then(|()| Err(Error::closed_before(&file.path))));
            return None;
        }
        session.handles.close(handle, lease.failure());
        file.stop_copying();
        let endings = Arc::clone(&self.endings);
        // This waits for writes that have begun, and the last user of a striped file closes its connections.
        let workers = Arc::clone(&self.workers);
        let discard = move || endings.discard(&lease, move |result| answer.give(result));
        workers.submit(Box::new(discard)).err().map(LongWork::new)
    }
}
