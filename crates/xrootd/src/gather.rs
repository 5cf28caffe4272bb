//! Collects the answers to the entries of a batch. The last one sends all of them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::answer::Reply;
use crate::meter::Meter;
use service::Room;

/// The answer to a batch that is in progress.
pub(crate) struct Gather {
    meter: Arc<Meter>,
    state: Mutex<State>,
}

struct State {
    /// Complete frames, one per answered entry.
    frames: Vec<u8>,
    /// The number of unanswered entries.
    left: usize,
    /// The answer to the batch; `None` after it is given.
    reply: Option<Reply>,
    /// Counts the memory of the batch until it is answered.
    _room: Room,
}

impl Gather {
    /// For a batch of `entries` entries, at least one.
    pub(crate) fn new(meter: Arc<Meter>, reply: Reply, entries: usize, room: Room) -> Arc<Self> {
        let state = State { frames: Vec::new(), left: entries, reply: Some(reply), _room: room };
        Arc::new(Self { meter, state: Mutex::new(state) })
    }

    /// Where errors are counted.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Adds the frame that `write` appends. The last call sends the whole answer.
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
