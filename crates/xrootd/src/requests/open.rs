//! open.

use std::sync::Arc;

use service::{Answer, Error, Intent, OpenFile, Opened, SMALL_TRANSFER_BYTES, Service};
use types::NsPath;
use wire::request::{Open, OpenOptions, OpenOptions2};
use wire::response::OpenReply;
use wire::{ErrorNumber, StreamId};

use crate::answer::{self, WhileListening};
use crate::connection::{Connection, Stop};
use crate::from_wire::{open_of, parse_new_path, parse_path};
use crate::session::Session;
use crate::to_wire::{RequestError, open_reply};

/// From this version on, the reserved bytes of an open have a meaning.
const OPTIONS2_VERSION: u32 = 0x520;

/// Answers an open, and reads the beginning of the file for it. It reads before the answer takes the connection's lock.
struct WithBeginning<A> {
    answer: A,
    service: Arc<Service>,
    session: Arc<Session>,
    /// The path and the mode of an open that makes a file.
    makes: Option<(NsPath, u16)>,
    len: usize,
}

impl<A: Answer<(Opened, Vec<u8>)>> Answer<Opened> for WithBeginning<A> {
    fn give(self, outcome: Result<Opened, Error>) {
        let Self { answer, service, session, makes, len } = self;
        if let (Err(Error::Wait { .. }), Some((path, mode))) = (&outcome, makes) {
            session.repeated.waits(path, mode);
        }
        answer.give(outcome.map(|opened| {
            let beginning = if len > 0 { beginning_of(&service, &session.open, &opened, len) } else { Vec::new() };
            (opened, beginning)
        }));
    }

    fn is_unwanted(&self) -> bool {
        self.answer.is_unwanted()
    }

    fn put_off(&mut self, seconds: u32) {
        self.answer.put_off(seconds);
    }
}

/// The first bytes of a file that is open now; none if they cannot be read. The client's next read then says why. Those
/// of a striped file are on other servers, for which an open does not wait.
fn beginning_of(service: &Service, session: &service::Session, opened: &Opened, len: usize) -> Vec<u8> {
    let Ok(file) = service.file(session, opened.handle) else { return Vec::new() };
    if file.is_striped() {
        return Vec::new();
    }
    let mut bytes = vec![0; file.bounded(0, u32::try_from(len).unwrap_or(u32::MAX))];
    let got = file.read(0, &mut bytes).unwrap_or(0);
    file.was_read(std::iter::once(0..got as u64));
    service.counters().read(got as u64);
    bytes.truncate(got);
    bytes
}

impl Connection {
    /// kXR_open.
    // Not inlined: otherwise its stack frame would be part of every connection's stack, even of idle ones.
    #[inline(never)]
    pub(crate) fn open(&mut self, stream: StreamId, r: &Open) -> Result<Result<(), RequestError>, Stop> {
        let makes = r.options.has(OpenOptions::NEW) || r.options.has(OpenOptions::DELETE);
        let path = if makes { parse_new_path(&r.target.path) } else { parse_path(&r.target.path) };
        let open = path.and_then(|path| {
            if !self.front.service.makes_files_like_open_ones() && self.has_template(r) {
                return Err(template_in_cluster());
            }
            let mut open = open_of(r, path, self.wants_stat(r), None)?;
            open.template = self.template_of(r)?;
            if makes {
                open.mode = self.session.repeated.mode(&open.path, open.mode);
            }
            Ok(open)
        });
        let open = match open {
            Ok(open) => open,
            Err(request_error) => return Ok(Err(request_error)),
        };
        let (service, session) = (Arc::clone(&self.front.service), Arc::clone(&self.session));
        let shows = Arc::clone(&service);
        let reply = self.hand_on(stream)?.framed(move |(opened, beginning): (Opened, Vec<u8>), out, stream| {
            answer::ok(out, stream, |out| OpenReply { beginning, ..open_reply(&shows, &opened) }.encode(out));
        });
        let len = if open.intent == Intent::Read { self.wants_beginning(r) } else { 0 };
        let makes = makes.then(|| (open.path.clone(), open.mode));
        let reply =
            WithBeginning { answer: reply, service: Arc::clone(&service), session: Arc::clone(&session), makes, len };
        if open.template.is_some() && open.intent != Intent::Read {
            // The data is copied before the answer.
            self.out.leave()?;
            service.open(&session.open, open, WhileListening { answer: reply, outgoing: Arc::clone(&self.out) });
            self.out.back();
        } else {
            service.open(&session.open, open, reply);
        }
        Ok(Ok(()))
    }

    fn options2(&self, r: &Open) -> OpenOptions2 {
        if self.client_version < OPTIONS2_VERSION { OpenOptions2::NONE } else { r.options2 }
    }

    /// Whether the open names an open file that the new one gets its data, or its place, from.
    pub(super) fn has_template(&self, r: &Open) -> bool {
        let options = self.options2(r);
        options.has(OpenOptions2::DUP) || options.has(OpenOptions2::SAMEFS)
    }

    fn wants_stat(&self, r: &Open) -> bool {
        r.options.has(OpenOptions::RETSTAT) || self.options2(r).has(OpenOptions2::RETSTATX)
    }

    /// How many bytes of the file's beginning the answer should have; never more than a small transfer.
    fn wants_beginning(&self, r: &Open) -> usize {
        let has_meaning = self.client_version >= OPTIONS2_VERSION && self.wants_stat(r);
        if has_meaning { (usize::from(r.beginning_kib) << 10).min(SMALL_TRANSFER_BYTES) } else { 0 }
    }

    /// The file whose data the new file gets, checked as in the stock server. A request for the same file system as
    /// an open file is always met: there is only one.
    fn template_of(&self, r: &Open) -> Result<Option<Arc<OpenFile>>, RequestError> {
        let options = self.options2(r);
        let dup = options.has(OpenOptions2::DUP);
        if !self.has_template(r) {
            return Ok(None);
        }
        let invalid = |text| Err(RequestError::new(ErrorNumber::ARG_INVALID, text));
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

/// A client sends such an open to the server of the file that it names, and follows no redirect from there.
fn template_in_cluster() -> RequestError {
    let text = "A new file cannot be opened with another open file as its template (kXR_dup, kXR_samefs) here: this is one server of a cluster, and the manager says where a new file is; open the file without a template and copy the data, or copy by third party (xrdcp --tpc only)";
    RequestError::new(ErrorNumber::UNSUPPORTED, text)
}
