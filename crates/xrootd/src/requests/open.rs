//! open.

use std::sync::Arc;

use service::{Intent, OpenFile, Opened, Role};
use wire::request::{Open, OpenOptions, OpenOptions2};
use wire::{ErrorNumber, StreamId};

use crate::answer::{self, WhileListening};
use crate::connection::{Connection, Stop};
use crate::from_wire::{capability_of, open_of, parse_new_path, parse_path};
use crate::to_wire::{Refusal, open_reply};

/// From this version on, the reserved bytes of an open have a meaning.
const OPTIONS2_VERSION: u32 = 0x520;

impl Connection {
    /// kXR_open.
    // Not inlined: otherwise its stack frame would be part of every connection's stack, even of idle ones.
    #[inline(never)]
    pub(crate) fn open(&mut self, stream: StreamId, r: &Open) -> Result<Result<(), Refusal>, Stop> {
        let makes = r.options.has(OpenOptions::NEW) || r.options.has(OpenOptions::DELETE);
        let path = if makes { parse_new_path(&r.target.path) } else { parse_path(&r.target.path) };
        let open = path.and_then(|path| {
            let mut open = open_of(r, path, self.wants_stat(r), None)?;
            // An open with a capability on a disk server has no template.
            if !matches!(self.front.service.role(), Role::Disk(_)) || capability_of(&r.target).is_none() {
                open.template = self.template_of(r)?;
            }
            Ok(open)
        });
        let open = match open {
            Ok(open) => open,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let reply = self.hand_on(stream)?.framed(|opened: Opened, out, stream| {
            answer::ok(out, stream, |out| open_reply(&opened).encode(out));
        });
        let (service, session) = (Arc::clone(&self.front.service), Arc::clone(&self.session.open));
        if open.template.is_some() && open.intent != Intent::Read {
            // The data is copied before the answer.
            self.out.leave()?;
            service.open(&session, open, WhileListening { answer: reply, outgoing: Arc::clone(&self.out) });
            self.out.back();
        } else {
            service.open(&session, open, reply);
        }
        Ok(Ok(()))
    }

    fn options2(&self, r: &Open) -> OpenOptions2 {
        if self.client_version < OPTIONS2_VERSION { OpenOptions2::NONE } else { r.options2 }
    }

    fn wants_stat(&self, r: &Open) -> bool {
        r.options.has(OpenOptions::RETSTAT) || self.options2(r).has(OpenOptions2::RETSTATX)
    }

    /// The file whose data the new file gets, checked as in the stock server. A request for the same file system as
    /// an open file is always met: there is only one.
    fn template_of(&self, r: &Open) -> Result<Option<Arc<OpenFile>>, Refusal> {
        let options = self.options2(r);
        let (dup, samefs) = (options.has(OpenOptions2::DUP), options.has(OpenOptions2::SAMEFS));
        if !dup && !samefs {
            return Ok(None);
        }
        let invalid = |text| Err(Refusal::new(ErrorNumber::ARG_INVALID, text));
        if dup && !r.options.has(OpenOptions::UPDATE) && !r.options.has(OpenOptions::WRITE_ONLY) {
            return invalid("A file that gets the data of another one must be opened for writing");
        }
        if !r.options.has(OpenOptions::NEW) {
            return invalid("Only a new file can get the data, or the stores, of another one");
        }
        let template = self.file(r.template)?;
        Ok(dup.then_some(template))
    }
}
