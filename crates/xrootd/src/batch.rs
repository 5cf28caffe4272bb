//! Batches ([`wire::batch`]): many small requests in one frame. Each entry is checked separately and has its own
//! result. The requests are handled concurrently in the same way as single ones. So they share the slow steps: the
//! committer's batches and the syncs of the journal.
//!
//! In a cluster the manager opens new files in a batch, and the disk servers of the redirects create them in batches.

use std::sync::Arc;

use service::{Change, Class, NewFile, NewFiles, OpenAtOnce, Role, Room, Service};
use types::Crc32c;
use wire::batch::{self, BYTES_MAX, DATA_MAX, ENTRIES_MAX, Entry, Limits, Op, Takes};
use wire::request::Batch;
use wire::{ErrorNumber, PathArg, StreamId};

use crate::answer::Reply;
use crate::connection::{Connection, Stop};
use crate::from_wire::{capability_of, hints_of, mtime_of, parse_new_path, parse_path};
use crate::gather::Gather;
use crate::to_wire::{RequestError, stat_reply};

/// Maximum length of an entry's answer: the text of an error, with its frame.
const ANSWER_MAX: u64 = 1100;
/// A batch may use at most this fraction of the memory for open writes, so that there is always room for one.
const SHARE: usize = 8;

/// The limits of batches on this server; `None`: it takes no batches.
pub(crate) fn limits(service: &Service) -> Option<Limits> {
    let takes = match service.role() {
        Role::Alone { .. } => Takes::Whole,
        Role::Manager(_) | Role::Standby(_) => Takes::Names,
        Role::Disk(_) => Takes::Contents,
    };
    let memory = service.writers_memory_max() / SHARE;
    // The inverse of `memory_of`.
    let bytes = u32::try_from((memory as u64).saturating_sub(u64::from(ENTRIES_MAX) * ANSWER_MAX) / 2);
    let bytes = bytes.unwrap_or(BYTES_MAX).min(BYTES_MAX);
    (bytes > DATA_MAX).then_some(Limits { entries: ENTRIES_MAX, bytes, takes })
}

/// Maximum memory of a batch: the data as received, the same data in the store's writers until they complete, and the
/// answers.
fn memory_of(batch: &Batch) -> u64 {
    2 * u64::from(batch.len) + u64::from(batch.entries) * ANSWER_MAX
}

impl Connection {
    /// Handles a batch. Its answer is sent when all of its entries are done.
    #[inline(never)] // see `dispatch`
    pub(crate) fn batch(&mut self, stream: StreamId, r: &Batch) -> Result<Result<(), RequestError>, Stop> {
        let room = match self.room_for(r) {
            Ok(room) => room,
            Err(request_error) => {
                self.skip(u64::from(r.len))?;
                return Ok(Err(request_error));
            }
        };
        let mut behind = vec![0; r.len as usize];
        self.out.leave()?;
        let (service, session) = (Arc::clone(&self.front.service), Arc::clone(&self.session.open));
        let mut turn = service.transfers().of(&*session, self.number, Class::Record, behind.len());
        self.input.fill_slice(&mut behind, Some(&mut turn))?;
        drop(turn);
        self.out.back();
        let entries = match batch::entries(r, &behind) {
            Ok(entries) => entries,
            Err(error) => return Ok(Err(RequestError::of_wire(&error))),
        };
        service.counters().written(entries.iter().map(|entry| entry.data.len() as u64).sum());
        let gather = Gather::new(Arc::clone(&self.front.meter), self.hand_on(stream)?, entries.len(), room);
        let mut files = service.new_files(&session, behind);
        for (number, entry) in entries.into_iter().enumerate() {
            let reply = Reply::of_entry(Arc::clone(&gather), batch::stream_of(number));
            if let Err((request_error, reply)) = begin(&service, &session, &mut files, entry, reply) {
                reply.refuse(&request_error);
            }
        }
        files.begin();
        Ok(Ok(()))
    }

    fn room_for(&self, r: &Batch) -> Result<Room, RequestError> {
        // A signature does not cover what is in a batch.
        let Some(limits) = limits(&self.front.service).filter(|_| !self.takes_signed()) else {
            return Err(RequestError::unsupported("A batch"));
        };
        if r.len > limits.bytes {
            let text = format!("A batch of {} bytes is refused: {} is the limit here", r.len, limits.bytes);
            return Err(RequestError::new(ErrorNumber::ARG_TOO_LONG, text));
        }
        Ok(self.front.service.room_for(&self.session.open.caller(), memory_of(r))?)
    }
}

/// Begins the request of an entry. New files are collected in `files` and created together.
fn begin(
    service: &Arc<Service>,
    session: &Arc<service::Session>,
    files: &mut NewFiles<Reply>,
    entry: Entry,
    reply: Reply,
) -> Result<(), (RequestError, Reply)> {
    let target = match PathArg::parse(&files.buffer()[entry.path.clone()]) {
        Ok(target) => target,
        Err(error) => return Err((RequestError::of_wire(&error), reply)),
    };
    let makes = matches!(entry.op, Op::Create { .. } | Op::Open { .. });
    let path = match if makes { parse_new_path(&target.path) } else { parse_path(&target.path) } {
        Ok(path) => path,
        Err(request_error) => return Err((request_error, reply)),
    };
    let elsewhere = match entry.op {
        // The service sends the client away itself, if it must.
        Op::Create { .. } | Op::Stat => None,
        Op::Remove | Op::Open { .. } | Op::Unknown(_) => service.names_elsewhere(),
    };
    if let Some(elsewhere) = elsewhere {
        return Err((elsewhere.into(), reply));
    }
    match entry.op {
        Op::Stat => match service.stat(session, &"stat", &path) {
            Ok(stat) => reply.ok(|out| stat_reply(service, &stat).encode(out)),
            Err(error) => return Err((error.into(), reply)),
        },
        Op::Remove => service.change(&session.caller(), Change::Remove(path), None, reply),
        Op::Open { len, .. } if len > DATA_MAX && matches!(service.role(), Role::Manager(_)) => {
            let text = format!("Cannot make {path} in a batch: it is {len} bytes long, and {DATA_MAX} is the limit");
            return Err((RequestError::new(ErrorNumber::ARG_TOO_LONG, text), reply));
        }
        Op::Open { replace, mode, len } => {
            let open = OpenAtOnce { path, replace, mode, len: u64::from(len), hints: hints_of(&target) };
            service.open_at_once(&session.caller(), open, reply);
        }
        Op::Create { replace, mode, crc32c } => {
            let (mtime, capability) = (mtime_of(&target), capability_of(&target).map(<[u8]>::to_vec));
            let crc32c = Crc32c(crc32c);
            files.add(NewFile { path, replace, mode, mtime, data: entry.data, crc32c, capability }, reply);
        }
        Op::Unknown(other) => {
            let text = format!("Operation {other} of a batch is not known to version {} of it", batch::VERSION);
            return Err((RequestError::new(ErrorNumber::UNSUPPORTED, text), reply));
        }
    }
    Ok(())
}
