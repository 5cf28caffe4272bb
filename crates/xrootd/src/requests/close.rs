//! close. All writes of the handle were done before, in order.

use wire::StreamId;
use wire::request::Close;

use crate::connection::{Connection, Stop};
use crate::from_wire::handle;
use crate::to_wire::RequestError;

impl Connection {
    /// kXR_close.
    // Not inlined for the same reason as `open`: it is rare and uses much stack.
    #[inline(never)]
    pub(crate) fn close(&mut self, stream: StreamId, r: &Close) -> Result<Result<(), RequestError>, Stop> {
        let reply = self.hand_on(stream)?;
        if let Some(work) = self.front.service.close(&self.session.open, handle(r.handle), None, reply) {
            // The file must be closed even if this connection is gone by now.
            let left = self.out.leave();
            work.run();
            left?;
            self.out.back();
        }
        Ok(Ok(()))
    }
}
