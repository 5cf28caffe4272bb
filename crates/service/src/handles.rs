//! The open files of one session. A handle contains its slot and the number of uses of that slot. So a closed handle
//! is not mistaken for a later one.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use types::ErrorCode;

use crate::error::Error;
use crate::lease::Failure;
use crate::open_file::OpenFile;
use crate::shares::Shares;

/// The number of an open file in its session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub u32);

/// Why no handle is available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoHandle {
    /// The session has its maximum of open files.
    SessionFull(usize),
    /// All sessions together have the maximum, or the client's machine has its share.
    ServerFull(usize),
    /// The session has ended.
    Ended,
}

/// The handles of one session.
pub(crate) struct Handles {
    table: Mutex<Table>,
    per_session_max: usize,
    peer: IpAddr,
    /// Counts the open files of all sessions.
    shares: Arc<Shares>,
}

struct Table {
    slots: Vec<Slot>,
    free: Vec<u16>,
    ended: bool,
}

struct Slot {
    uses: u16,
    file: Option<Arc<OpenFile>>,
    /// Why the last close of this slot failed, if it did.
    failure: Option<Failure>,
}

impl Handles {
    pub(crate) fn new(per_session_max: usize, peer: IpAddr, shares: Arc<Shares>) -> Self {
        let table = Table { slots: Vec::new(), free: Vec::new(), ended: false };
        Self { table: Mutex::new(table), per_session_max: per_session_max.min(usize::from(u16::MAX)), peer, shares }
    }

    /// Adds the file that `make` creates. Does not call `make` if there is no room.
    pub(crate) fn insert(&self, make: impl FnOnce(Handle) -> Arc<OpenFile>) -> Result<Handle, NoHandle> {
        let mut table = self.table.lock();
        if table.ended {
            return Err(NoHandle::Ended);
        }
        let slot = match table.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u16::try_from(table.slots.len()).unwrap_or(u16::MAX);
                if usize::from(slot) >= self.per_session_max {
                    return Err(NoHandle::SessionFull(self.per_session_max));
                }
                table.slots.push(Slot { uses: 0, file: None, failure: None });
                slot
            }
        };
        if !self.shares.take(self.peer) {
            table.free.push(slot);
            return Err(NoHandle::ServerFull(self.shares.most()));
        }
        let entry = &mut table.slots[usize::from(slot)];
        entry.uses = entry.uses.wrapping_add(1);
        let handle = handle_of(slot, entry.uses);
        entry.failure = None;
        entry.file = Some(make(handle));
        Ok(handle)
    }

    /// The open file behind `handle`.
    pub(crate) fn get(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        let (slot, uses) = parts_of(handle);
        let table = self.table.lock();
        table.slots.get(usize::from(slot)).filter(|entry| entry.uses == uses)?.file.clone()
    }

    /// Removes `handle` and returns its file.
    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.remove_from(&mut self.table.lock(), handle)
    }

    fn remove_from(&self, table: &mut Table, handle: Handle) -> Option<Arc<OpenFile>> {
        let (slot, uses) = parts_of(handle);
        let file = table.slots.get_mut(usize::from(slot)).filter(|entry| entry.uses == uses)?.file.take()?;
        table.free.push(slot);
        self.shares.give_back(self.peer);
        Some(file)
    }

    /// Removes `handle`, whose file is now being closed. The result of the close appears in `failure`.
    pub(crate) fn close(&self, handle: Handle, failure: &Failure) {
        let mut table = self.table.lock();
        if self.remove_from(&mut table, handle).is_some()
            && let Some(slot) = table.slots.get_mut(usize::from(parts_of(handle).0))
        {
            slot.failure = Some(Arc::clone(failure));
        }
    }

    /// Why the close of `handle` failed, until its slot is used again.
    pub(crate) fn failure_of(&self, handle: Handle) -> Option<Error> {
        let (slot, uses) = parts_of(handle);
        let table = self.table.lock();
        let entry = table.slots.get(usize::from(slot)).filter(|entry| entry.uses == uses && entry.file.is_none())?;
        let failure = Arc::clone(entry.failure.as_ref()?);
        drop(table);
        failure.lock().clone()
    }

    /// Whether no file is open.
    pub(crate) fn is_empty(&self) -> bool {
        let table = self.table.lock();
        table.slots.len() == table.free.len()
    }

    /// Whether an open file is like this.
    pub(crate) fn any(&self, is_like_this: impl Fn(&OpenFile) -> bool) -> bool {
        self.table.lock().slots.iter().filter_map(|slot| slot.file.as_ref()).any(|file| is_like_this(file))
    }

    /// Accepts no more files.
    pub(crate) fn end(&self) {
        self.table.lock().ended = true;
    }

    /// Removes all handles and returns their files.
    pub(crate) fn drain(&self) -> Vec<Arc<OpenFile>> {
        let mut table = self.table.lock();
        let Table { slots, free, .. } = &mut *table;
        let mut files = Vec::new();
        for (number, slot) in (0u16..).zip(slots.iter_mut()) {
            if let Some(file) = slot.file.take() {
                files.push(file);
                free.push(number);
            }
        }
        self.shares.give_some_back(self.peer, files.len());
        files
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.drain();
    }
}

fn handle_of(slot: u16, uses: u16) -> Handle {
    Handle(u32::from(slot) << 16 | u32::from(uses))
}

fn parts_of(Handle(number): Handle) -> (u16, u16) {
    let [s0, s1, u0, u1] = number.to_be_bytes();
    (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([u0, u1]))
}

impl From<NoHandle> for Error {
    fn from(reason: NoHandle) -> Self {
        let text = match reason {
            NoHandle::SessionFull(limit) => {
                format!("This session has {limit} open files, which is the limit; close some")
            }
            NoHandle::ServerFull(limit) => {
                return Error::Wait {
                    seconds: 5,
                    text: format!(
                        "This machine has its share of the {limit} files that all clients together may have open"
                    ),
                };
            }
            NoHandle::Ended => "The session has ended".into(),
        };
        Error::new(ErrorCode::TooManyOpen, text)
    }
}
