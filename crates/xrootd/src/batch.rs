//! Batches ([`wire::batch`]): many small requests in one frame. Each entry is checked and refused for itself; what they ask for goes the same ways
//! as single requests, side by side, so that they share what is slow: a new file's place in the committer's batches and in the log's syncs.
//!
//! In a cluster a new file is opened in a batch at the manager, and made in one at the disk server that its redirect names.

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
use crate::to_wire::{Refusal, stat_reply};

/// What an entry can make its answer long with: the text of a refusal, with what stands around it.
const ANSWER_MAX: u64 = 1100;
/// Of the memory for writers, one batch takes this part at most: somebody always finds room for one.
const SHARE: usize = 8;

/// The batches that are taken here; `None`: none.
pub(crate) fn limits(service: &Service) -> Option<Limits> {
    let takes = match service.role() {
        Role::Alone { .. } => Takes::Whole,
        Role::Manager(_) => Takes::Names,
        Role::Disk(_) => Takes::Contents,
    };
    let memory = service.writers_memory_max() / SHARE;
    // As `memory_of` counts them.
    let bytes = u32::try_from((memory as u64).saturating_sub(u64::from(ENTRIES_MAX) * ANSWER_MAX) / 2);
    let bytes = bytes.unwrap_or(BYTES_MAX).min(BYTES_MAX);
    (bytes > DATA_MAX).then_some(Limits { entries: ENTRIES_MAX, bytes, takes })
}

/// The most that a batch holds at a time: its contents as they came and as the store's writers keep them until they are complete, and the answers.
fn memory_of(batch: &Batch) -> u64 {
    2 * u64::from(batch.len) + u64::from(batch.entries) * ANSWER_MAX
}

impl Connection {
    /// A batch. Its answer comes when the last of its entries is done with.
    #[inline(never)] // see `dispatch`
    pub(crate) fn batch(&mut self, stream: StreamId, r: &Batch) -> Result<Result<(), Refusal>, Stop> {
        let room = match self.room_for(r) {
            Ok(room) => room,
            Err(refusal) => {
                self.skip(u64::from(r.len))?;
                return Ok(Err(refusal));
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
            Err(error) => return Ok(Err(Refusal::of_wire(&error))),
        };
        service.counters().written(entries.iter().map(|entry| entry.data.len() as u64).sum());
        let gather = Gather::new(Arc::clone(&self.front.meter), self.hand_on(stream)?, entries.len(), room);
        let mut files = service.new_files(&session, behind);
        for (number, entry) in entries.into_iter().enumerate() {
            let reply = Reply::of_entry(Arc::clone(&gather), batch::stream_of(number));
            if let Err((refusal, reply)) = begin(&service, &session, &mut files, entry, reply) {
                reply.refuse(&refusal);
            }
        }
        files.begin();
        Ok(Ok(()))
    }

    fn room_for(&self, r: &Batch) -> Result<Room, Refusal> {
        let Some(limits) = limits(&self.front.service) else {
            return Err(Refusal::unsupported("A batch"));
        };
        if r.len > limits.bytes {
            let text = format!("A batch of {} bytes is refused: {} is the limit here", r.len, limits.bytes);
            return Err(Refusal::new(ErrorNumber::ARG_TOO_LONG, text));
        }
        Ok(self.front.service.room_for(&self.session.open.caller(), memory_of(r))?)
    }
}

/// Asks for what an entry wants; a new file is made with those of the other entries.
fn begin(
    service: &Arc<Service>,
    session: &Arc<service::Session>,
    files: &mut NewFiles<Reply>,
    entry: Entry,
    reply: Reply,
) -> Result<(), (Refusal, Reply)> {
    let target = match PathArg::parse(&files.buffer()[entry.path.clone()]) {
        Ok(target) => target,
        Err(error) => return Err((Refusal::of_wire(&error), reply)),
    };
    let makes = matches!(entry.op, Op::Create { .. } | Op::Open { .. });
    let path = match if makes { parse_new_path(&target.path) } else { parse_path(&target.path) } {
        Ok(path) => path,
        Err(refusal) => return Err((refusal, reply)),
    };
    if let (Some(elsewhere), false) = (service.names_elsewhere(), matches!(entry.op, Op::Create { .. })) {
        return Err((elsewhere.into(), reply));
    }
    match entry.op {
        Op::Stat => match service.stat(session, &"stat", &path) {
            Ok(stat) => reply.ok(|out| stat_reply(&stat).encode(out)),
            Err(error) => return Err((error.into(), reply)),
        },
        Op::Remove => service.change(&session.caller(), Change::Remove(path), reply),
        Op::Open { len, .. } if len > DATA_MAX && matches!(service.role(), Role::Manager(_)) => {
            let text = format!("Cannot make {path} in a batch: it is {len} bytes long, and {DATA_MAX} is the limit");
            return Err((Refusal::new(ErrorNumber::ARG_TOO_LONG, text), reply));
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
            return Err((Refusal::new(ErrorNumber::UNSUPPORTED, text), reply));
        }
    }
    Ok(())
}
