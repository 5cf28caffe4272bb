//! close: of a written file the moment that counts. Its writes have all been done before, in order.

use std::sync::Arc;

use wire::StreamId;
use wire::request::Close;

use crate::connection::{Connection, Stop};
use crate::endings;
use crate::open_file::Access;
use crate::refusal::Refusal;

/// Files up to this size are finished by the connection's own thread: it is only appending to the log.
const INLINE_MAX: u64 = 64 << 10;

impl Connection {
    /// kXR_close.
    // As with an open: seldom asked for, and large on the stack.
    #[inline(never)]
    pub(crate) fn close(&mut self, stream: StreamId, r: &Close) -> Result<Result<(), Refusal>, Stop> {
        let file = match self.file(r.handle) {
            Ok(file) => file,
            Err(refusal) => return Ok(Err(self.session.handles.failure_of(r.handle).unwrap_or(refusal))),
        };
        file.stop_copying();
        let Access::Write(access) = &file.access else {
            self.session.handles.remove(r.handle);
            return Ok(self.ok(stream, |_| ()));
        };
        if access.lease.is_committed() {
            // XrdCl, recovering, opens twice; the other handle's close was the file's. Whoever writes the same content
            // now has another lease.
            self.session.handles.remove(r.handle);
            return Ok(self.ok(stream, |_| ()));
        }
        // From here on somebody has the duty to answer, and to bring the writer to an end.
        let reply = self.hand_on(stream)?;
        let (begun, closing) = {
            let mut writers = self.node.writers.lock();
            let same = writers.lease(file.object).is_some_and(|lease| Arc::ptr_eq(&lease, &access.lease));
            (same && writers.begin_close(file.object, access.key), same && writers.is_closing(file.object, access.key))
        };
        if !begun {
            if access.lease.is_committed() {
                // XrdCl, recovering, opens twice; the other handle's close was the file's.
                self.session.handles.remove(r.handle);
                reply.ok(|_| ());
            } else if closing {
                let text = format!("{} is being closed by another handle of this session", file.path);
                reply.refuse(&Refusal::Wait { seconds: 1, text });
            } else {
                self.session.handles.remove(r.handle);
                reply.refuse(&access.is_over());
            }
            return Ok(Ok(()));
        }
        self.session.handles.close(r.handle, access.lease.failure());
        if access.lease.has_checkpoint() {
            self.out.leave()?;
            access.lease.end_checkpoint();
            self.out.back();
        }
        let doubt = file.not_fetched().or_else(|| access.lease.doubt());
        let lease = Arc::clone(&access.lease);
        let small = lease.writer().is_none_or(|writer| writer.len() <= INLINE_MAX);
        let node = self.node.clone();
        if small {
            endings::close(&node, &lease, doubt, reply);
            return Ok(Ok(()));
        }
        let job = Box::new(move || endings::close(&node, &lease, doubt, reply));
        if let Err(job) = self.node.workers.submit(job) {
            self.out.leave()?;
            job();
            self.out.back();
        }
        Ok(Ok(()))
    }
}
