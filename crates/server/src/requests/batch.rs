//! Batches ([`wire::batch`]): many small requests in one frame. Each entry is checked and refused for itself; what they ask for goes the same ways
//! as single requests, side by side, so that they share what is slow: a new file's place in the committer's batches and in the log's syncs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use namespace::{Durability, How, OpenWrite, RemoveAny};
use types::Crc32c;
use wire::batch::{self, BYTES_MAX, DATA_MAX, ENTRIES_MAX, Entry, Limits, Op};
use wire::request::Batch;
use wire::{ErrorNumber, PathArg, StreamId};

use super::own;
use crate::answer::Reply;
use crate::connection::{Connection, Stop};
use crate::creates::{Create, Creates};
use crate::fair::Class;
use crate::gather::Gather;
use crate::node::{Counters, Node, Role};
use crate::refusal::Refusal;
use crate::requests::{parse_new_path, parse_path};

/// What an entry can make its answer long with: the text of a refusal, with what stands around it.
const ANSWER_MAX: u64 = 1100;
/// Of the memory for writers, one batch takes this part at most: somebody always finds room for one.
const SHARE: usize = 8;

impl Node {
    /// The batches that are taken here; `None`: none.
    pub(crate) fn batch_limits(&self) -> Option<Limits> {
        if !matches!(self.role, Role::Alone { .. }) {
            return None;
        }
        let memory = self.writer_memory.bytes().most / SHARE;
        // As `memory_of` counts them.
        let bytes = u32::try_from((memory as u64).saturating_sub(u64::from(ENTRIES_MAX) * ANSWER_MAX) / 2);
        let bytes = bytes.unwrap_or(BYTES_MAX).min(BYTES_MAX);
        (bytes > DATA_MAX).then_some(Limits { entries: ENTRIES_MAX, bytes })
    }
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
        let (node, session) = (Arc::clone(&self.node), Arc::clone(&self.session));
        let mut turn = node.transfers.of(&session, self.number, Class::Record, behind.len());
        self.input.fill_slice(&mut behind, Some(&mut turn))?;
        drop(turn);
        self.out.back();
        let entries = match batch::entries(r, &behind) {
            Ok(entries) => entries,
            Err(error) => return Ok(Err(Refusal::of_wire(&error))),
        };
        Counters::add(&self.node.counters.bytes_written, entries.iter().map(|entry| entry.data.len() as u64).sum());
        let gather = Gather::new(Arc::clone(&self.node.meter), self.hand_on(stream)?, entries.len(), room);
        let creates = Creates::new(&self.node, &self.session, self.identity(), behind);
        let mut wanted = Vec::new();
        for (number, entry) in entries.into_iter().enumerate() {
            let reply = Reply::of_entry(Arc::clone(&gather), batch::stream_of(number));
            match self.entry(&creates, entry, reply) {
                Ok(None) => {}
                Ok(Some(create)) => wanted.push(create),
                Err((refusal, reply)) => reply.refuse(&refusal),
            }
        }
        creates.begin(wanted);
        Ok(Ok(()))
    }

    fn room_for(&self, r: &Batch) -> Result<crate::writer_memory::Room, Refusal> {
        let Some(limits) = self.node.batch_limits() else {
            return Err(Refusal::unsupported("A batch"));
        };
        if r.len > limits.bytes {
            let text = format!("A batch of {} bytes is refused: {} is the limit here", r.len, limits.bytes);
            return Err(Refusal::new(ErrorNumber::ARG_TOO_LONG, text));
        }
        self.node.writer_memory.take_bytes(self.session.peer.ip(), memory_of(r)).ok_or_else(|| {
            let text = "Cannot take a batch now: as much is being written as there is memory for".to_owned();
            Refusal::Wait { seconds: 1, text }
        })
    }

    /// Does what an entry asks for, or gives back the new file that it is to make, or why not.
    fn entry(&self, creates: &Creates, entry: Entry, reply: Reply) -> Result<Option<Create>, (Refusal, Reply)> {
        let behind = creates.behind();
        let target = match PathArg::parse(&behind[entry.path.clone()]) {
            Ok(target) => target,
            Err(error) => return Err((Refusal::of_wire(&error), reply)),
        };
        let is_create = matches!(entry.op, Op::Create { .. });
        let path = match if is_create { parse_new_path(&target.path) } else { parse_path(&target.path) } {
            Ok(path) => path,
            Err(refusal) => return Err((refusal, reply)),
        };
        match entry.op {
            Op::Stat => match self.node.stat(&"stat", &path) {
                Ok(inode) => {
                    let shown = self.node.show_to(&self.session, &inode);
                    reply.ok(|out| shown.encode(out));
                    Ok(None)
                }
                Err(refusal) => Err((refusal, reply)),
            },
            Op::Remove => {
                self.node.change_urgent(Durability::Synced, RemoveAny { path }, move |result| {
                    let result = result.map(drop);
                    reply.settle(result.map_err(|error| Refusal::of_namespace(&"remove", &error)));
                });
                Ok(None)
            }
            Op::Create { replace, mode, crc32c } => {
                let content = &behind[entry.data.clone()];
                if self.node.floor_reached.load(Ordering::Relaxed) {
                    let text = format!("Cannot make {path}: no space left for new data; remove files or add space");
                    return Err((Refusal::new(ErrorNumber::NO_SPACE, text), reply));
                }
                if Crc32c::of(content).0 != crc32c {
                    let text = format!("Cannot make {path}: its content came damaged; send it again");
                    return Err((Refusal::new(ErrorNumber::CHECKSUM, text), reply));
                }
                let how = if replace { How::Replace } else { How::NewOnly };
                let op = OpenWrite {
                    mkpath: true,
                    mode: super::open::mode_or_usual(mode),
                    expected_len: Some(content.len() as u64),
                    ..OpenWrite::new(path, how, creates.client().clone(), self.node.config.boot)
                };
                Ok(Some(Create { op, mtime: own::mtime_of(&target), data: entry.data, reply }))
            }
            Op::Unknown(other) => {
                let text = format!("Operation {other} of a batch is not known to version {} of it", batch::VERSION);
                Err((Refusal::new(ErrorNumber::UNSUPPORTED, text), reply))
            }
        }
    }
}
