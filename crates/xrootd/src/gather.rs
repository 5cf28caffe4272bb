//! The answers to the entries of one batch, as they come; the last one sends all of them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::answer::Reply;
use crate::meter::Meter;
use service::Room;

/// The answer to a batch in the making.
pub(crate) struct Gather {
    meter: Arc<Meter>,
    state: Mutex<State>,
}

struct State {
    /// Whole frames, one for each entry that is answered.
    frames: Vec<u8>,
    /// Entries that are not answered yet.
    left: usize,
    /// The batch's own; `None` once it has been given.
    reply: Option<Reply>,
    /// What the batch holds in memory is counted until its answer is given.
    _room: Room,
}

impl Gather {
    /// For a batch of `entries`, which is at least one.
    pub(crate) fn new(meter: Arc<Meter>, reply: Reply, entries: usize, room: Room) -> Arc<Self> {
        let state = State { frames: Vec::new(), left: entries, reply: Some(reply), _room: room };
        Arc::new(Self { meter, state: Mutex::new(state) })
    }

    /// Where refusals are counted.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// One entry is answered with the frame that `write` makes. The last one's caller sends the whole answer.
    pub(crate) fn answer(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        write(&mut state.frames);
        state.left = state.left.saturating_sub(1);
        let is_last = state.left == 0;
        drop(state);
        if is_last {
            self.send();
        }
    }

    fn send(&self) {
        let mut state = self.state.lock();
        let (frames, reply) = (std::mem::take(&mut state.frames), state.reply.take());
        drop(state);
        if let Some(reply) = reply {
            reply.ok(|out| out.extend_from_slice(&frames));
        }
    }
}
