//! clone (protocol 5.2.0): copies ranges from one open file into another on the server. The stock server uses
//! FICLONERANGE of the file system. Here ranges need no alignment, and every page is compared with its checksum on
//! the way.

use std::sync::Arc;

use service::CopyRange;
use wire::StreamId;
use wire::request::CloneRanges;

use crate::answer::WhileListening;
use crate::connection::{Connection, Stop};
use crate::to_wire::RequestError;

impl Connection {
    /// kXR_clone. If a range is invalid, nothing is copied.
    #[inline(never)] // see `dispatch`
    pub(crate) fn clone_ranges(&mut self, stream: StreamId, r: &CloneRanges) -> Result<Result<(), RequestError>, Stop> {
        if let Err(error) = self.must_take_unsigned("clone") {
            return Ok(Err(error.into()));
        }
        let target = match self.writable(r.target) {
            Ok(target) => target,
            Err(request_error) => return Ok(Err(request_error)),
        };
        let ranges = r.ranges.iter().map(|range| {
            let source = self.file(range.source)?;
            Ok(CopyRange { source, from: range.source_offset, len: range.len, to: range.target_offset })
        });
        let ranges = match ranges.collect::<Result<Vec<_>, RequestError>>() {
            Ok(ranges) => ranges,
            Err(request_error) => return Ok(Err(request_error)),
        };
        let answer = WhileListening { answer: self.hand_on(stream)?, outgoing: Arc::clone(&self.out) };
        self.out.leave()?;
        self.front.service.copy_ranges(&self.session.open, &target, ranges, answer);
        self.out.back();
        Ok(Ok(()))
    }
}
