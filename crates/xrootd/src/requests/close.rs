//! close: of a written file the moment that counts. Its writes have all been done before, in order.

use wire::StreamId;
use wire::request::Close;

use crate::connection::{Connection, Stop};
use crate::from_wire::handle;
use crate::to_wire::Refusal;

impl Connection {
    /// kXR_close.
    // As with an open: seldom asked for, and large on the stack.
    #[inline(never)]
    pub(crate) fn close(&mut self, stream: StreamId, r: &Close) -> Result<Result<(), Refusal>, Stop> {
        let reply = self.hand_on(stream)?;
        if let Some(work) = self.front.service.close(&self.session.open, handle(r.handle), reply) {
            self.out.leave()?;
            work.run();
            self.out.back();
        }
        Ok(Ok(()))
    }
}
