//! Batches ([`wire::batch`]): many small requests in one frame. Each entry is checked and refused for itself; what they ask for goes the same ways
//! as single requests, side by side, so that they share what is slow: a new file's place in the committer's batches and in the log's syncs.
//!
//! In a cluster a new file is opened in a batch at the manager, and made in one at the disk server that its redirect names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk_server::{DiskServer, VerifiedCapability, WriteGrant};
use manager::{Manager, OpenRequest};
use namespace::{Durability, How, OpenWrite, RemoveAny};
use types::{Crc32c, NsPath};
use wire::batch::{self, BYTES_MAX, DATA_MAX, ENTRIES_MAX, Entry, Limits, Op, Takes};
use wire::request::Batch;
use wire::{ErrorNumber, PathArg, StreamId};

use super::own;
use crate::answer::Reply;
use crate::connection::{Connection, Stop};
use crate::creates::{Create, Creates, PlacedCreate};
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
        let takes = match &self.role {
            Role::Alone { .. } => Takes::Whole,
            Role::Manager(_) => Takes::Names,
            Role::Disk(_) => Takes::Contents,
        };
        let memory = self.writer_memory.bytes().most / SHARE;
        // As `memory_of` counts them.
        let bytes = u32::try_from((memory as u64).saturating_sub(u64::from(ENTRIES_MAX) * ANSWER_MAX) / 2);
        let bytes = bytes.unwrap_or(BYTES_MAX).min(BYTES_MAX);
        (bytes > DATA_MAX).then_some(Limits { entries: ENTRIES_MAX, bytes, takes })
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
        let (mut wanted, mut placed) = (Vec::new(), Vec::new());
        for (number, entry) in entries.into_iter().enumerate() {
            let reply = Reply::of_entry(Arc::clone(&gather), batch::stream_of(number));
            match self.entry(&creates, entry, reply) {
                Ok(Next::Nothing) => {}
                Ok(Next::Make(create)) => wanted.push(create),
                Ok(Next::Place(create)) => placed.push(create),
                Err((refusal, reply)) => reply.refuse(&refusal),
            }
        }
        creates.begin(wanted);
        creates.begin_placed(placed);
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
            let text = "Cannot take a batch now: the memory for open writes is used up".to_owned();
            Refusal::Wait { seconds: 1, text }
        })
    }

    /// Does what an entry asks for, or gives back the new file that it is to make, or why not.
    fn entry(&self, creates: &Creates, entry: Entry, reply: Reply) -> Result<Next, (Refusal, Reply)> {
        let behind = creates.behind();
        let target = match PathArg::parse(&behind[entry.path.clone()]) {
            Ok(target) => target,
            Err(error) => return Err((Refusal::of_wire(&error), reply)),
        };
        let makes = matches!(entry.op, Op::Create { .. } | Op::Open { .. });
        let path = match if makes { parse_new_path(&target.path) } else { parse_path(&target.path) } {
            Ok(path) => path,
            Err(refusal) => return Err((refusal, reply)),
        };
        if let (Role::Disk(disk), false) = (&self.node.role, matches!(entry.op, Op::Create { .. })) {
            return Err((self.to_manager(disk), reply));
        }
        match entry.op {
            Op::Stat => match self.node.stat(&"stat", &path) {
                Ok(inode) => {
                    let shown = self.node.show_to(&self.session, &inode);
                    reply.ok(|out| shown.encode(out));
                    Ok(Next::Nothing)
                }
                Err(refusal) => Err((refusal, reply)),
            },
            Op::Remove => {
                self.node.change_urgent(Durability::Synced, RemoveAny { path }, move |result| {
                    let result = result.map(drop);
                    reply.settle(result.map_err(|error| Refusal::of_namespace(&"remove", &error)));
                });
                Ok(Next::Nothing)
            }
            Op::Open { replace, mode, len } => match self.open_entry(creates, (path, &target), (replace, mode, len)) {
                Ok((manager, open_request, op)) => {
                    self.redirect_entry(&manager, open_request, op, reply);
                    Ok(Next::Nothing)
                }
                Err(refusal) => Err((refusal, reply)),
            },
            Op::Create { replace, mode, crc32c } => {
                let content = &behind[entry.data.clone()];
                if let Some(refusal) = self.refused_content(&path, content, crc32c) {
                    return Err((refusal, reply));
                }
                let mtime = own::mtime_of(&target);
                match &self.node.role {
                    Role::Alone { .. } => {
                        let op = OpenWrite {
                            mkpath: true,
                            mode: super::open::mode_or_usual(mode),
                            expected_len: Some(content.len() as u64),
                            ..OpenWrite::new(path, how(replace), creates.client().clone(), self.node.config.boot)
                        };
                        Ok(Next::Make(Create { op, mtime, data: entry.data, reply }))
                    }
                    Role::Manager(_) => {
                        let text = format!("Cannot make {path} here: open it, and send its data where the answer says");
                        Err((Refusal::new(ErrorNumber::UNSUPPORTED, text), reply))
                    }
                    Role::Disk(disk) => match self.granted_entry(disk, &path, &target) {
                        Ok(grant) => Ok(Next::Place(PlacedCreate { path, grant, mtime, data: entry.data, reply })),
                        Err(refusal) => Err((refusal, reply)),
                    },
                }
            }
            Op::Unknown(other) => {
                let text = format!("Operation {other} of a batch is not known to version {} of it", batch::VERSION);
                Err((Refusal::new(ErrorNumber::UNSUPPORTED, text), reply))
            }
        }
    }

    /// Why a content is not taken, whoever's it is.
    fn refused_content(&self, path: &NsPath, content: &[u8], crc32c: u32) -> Option<Refusal> {
        if self.node.floor_reached.load(Ordering::Relaxed) {
            return Some(no_space(path));
        }
        (Crc32c::of(content).0 != crc32c).then(|| {
            let text = format!("Cannot make {path}: its data arrived damaged; send it again");
            Refusal::new(ErrorNumber::CHECKSUM, text)
        })
    }

    /// What the manager is to do for an open.
    fn open_entry(
        &self,
        creates: &Creates,
        (path, target): (NsPath, &PathArg),
        (replace, mode, len): (bool, u16, u32),
    ) -> Result<(Arc<Manager>, OpenRequest, OpenWrite), Refusal> {
        let Role::Manager(manager) = &self.node.role else {
            return Err(Refusal::unsupported("An open in a batch, without the file's data,"));
        };
        if len > DATA_MAX {
            let text = format!("Cannot make {path} in a batch: it is {len} bytes long, and {DATA_MAX} is the limit");
            return Err(Refusal::new(ErrorNumber::ARG_TOO_LONG, text));
        }
        if self.node.floor_reached.load(Ordering::Relaxed) {
            return Err(no_space(&path));
        }
        let op = OpenWrite {
            mkpath: true,
            mode: super::open::mode_or_usual(mode),
            expected_len: Some(u64::from(len)),
            ..OpenWrite::new(path, how(replace), creates.client().clone(), self.node.config.boot)
        };
        let open_request =
            OpenRequest { announced: Some(u64::from(len)), at_once: true, ..self.open_request(&op.path, target) };
        Ok((Arc::clone(manager), open_request, op))
    }

    /// What the client may do at this disk server.
    fn granted_entry(&self, disk: &Arc<DiskServer>, path: &NsPath, target: &PathArg) -> Result<WriteGrant, Refusal> {
        let Some(capability) = target.get(types::capability::OPAQUE_KEY.as_bytes()) else {
            return Err(self.to_manager(disk));
        };
        match disk.verified(capability, path, Some(self.node.config.actor.principal)) {
            Ok(VerifiedCapability::Write(grant)) if grant.is_new() => Ok(grant),
            Ok(VerifiedCapability::Striped(_)) => Err(Refusal::unsupported("To make a striped file in a batch")),
            Ok(_) => {
                let text = format!("Cannot make {path}: the capability is for an existing file");
                Err(Refusal::new(ErrorNumber::NOT_AUTHORIZED, text))
            }
            Err(error) => Err(Refusal::of_placed(&format_args!("make {path}"), &error)),
        }
    }
}

/// What is left to do of an entry.
enum Next {
    /// Nothing: it is answered, or will be.
    Nothing,
    /// A file is to be made.
    Make(Create),
    /// A file that the manager has opened is to get its content.
    Place(PlacedCreate),
}

fn how(replace: bool) -> How {
    if replace { How::Replace } else { How::NewOnly }
}

fn no_space(path: &NsPath) -> Refusal {
    let text = format!("Cannot make {path}: no space left for new data; remove files or add space");
    Refusal::new(ErrorNumber::NO_SPACE, text)
}
