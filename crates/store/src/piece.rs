//! A piece that somebody has open, or that is being written.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use types::PieceId;

use crate::life::Life;
use crate::log_record::{Beginning, Subject};
use crate::object::ObjectFiles;
use crate::record::{Ended, PieceRecord};
use crate::{PieceState, PieceStatus, StoreError};

/// A piece that somebody has open, or that is being written. Readers and writers of one piece share it.
pub(crate) struct OpenPiece {
    pub(crate) id: PieceId,
    pub(crate) state: Mutex<State>,
    /// Something that writers wait for has changed.
    pub(crate) changed: Condvar,
}

/// What is known of an open piece.
#[derive(Default)]
pub(crate) struct State {
    /// How its last life ended.
    pub(crate) record: Option<PieceRecord>,
    /// It is being written.
    pub(crate) life: Option<Life>,
    /// It was removed.
    pub(crate) removed: bool,
    /// The content of a small piece, once read and checked. Goes when a life begins.
    pub(crate) content: Option<Arc<[u8]>>,
    /// The files of a large piece.
    pub(crate) files: Option<Arc<ObjectFiles>>,
    /// Pages (as byte ranges) that a write is doing something to at the moment.
    pub(crate) in_flight: Vec<(u64, u64)>,
    /// Somebody waits until no write or sync is under way, and none may begin.
    pub(crate) paused: bool,
    /// A sync is under way; another one waits for it, and so does [`OpenPiece::pause`].
    pub(crate) syncing: bool,
    /// Raised when a life begins or ends: what readers remember of the sidecar counts no more.
    pub(crate) version: u64,
}

impl OpenPiece {
    pub(crate) fn ended(id: PieceId, record: PieceRecord) -> Self {
        let state = State { record: Some(record), ..State::default() };
        Self { id, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn living(id: PieceId, record: Option<PieceRecord>, life: Life) -> Self {
        let state = State { record, life: Some(life), ..State::default() };
        Self { id, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The life of `generation`, or why it is not there any more.
    pub(crate) fn life<'a>(&self, state: &'a mut State, generation: u64) -> Result<&'a mut Life, StoreError> {
        if state.removed {
            return Err(StoreError::Closed { piece: self.id, why: "it was removed" });
        }
        match &mut state.life {
            Some(life) if life.birth.generation == generation => Ok(life),
            _ => Err(StoreError::Closed { piece: self.id, why: "it was completed or interrupted" }),
        }
    }

    /// Waits until no write and no sync is under way and keeps new ones from beginning. Undone by [`OpenPiece::resume`].
    pub(crate) fn pause(&self, state: &mut MutexGuard<'_, State>) {
        while state.paused {
            self.changed.wait(state);
        }
        state.paused = true;
        while !state.in_flight.is_empty() || state.syncing {
            self.changed.wait(state);
        }
    }

    pub(crate) fn resume(&self, state: &mut State) {
        state.paused = false;
        self.changed.notify_all();
    }

    pub(crate) fn status(&self) -> Option<PieceStatus> {
        let state = self.state.lock();
        if state.removed {
            return None;
        }
        match &state.life {
            None => state.record.as_ref().map(PieceRecord::status),
            Some(life) => Some(PieceStatus {
                len: life.len,
                state: match life.birth.beginning {
                    Beginning::Update => PieceState::Dirty,
                    Beginning::New | Beginning::Resumed => PieceState::InMaking {
                        written: life.written.as_slice().to_vec(),
                        prefix: life.written.prefix(),
                        durable_prefix: life.durable_prefix,
                    },
                },
                generation: life.birth.generation,
                incarnation: life.birth.incarnation,
            }),
        }
    }
}

impl PieceRecord {
    pub(crate) fn status(&self) -> PieceStatus {
        PieceStatus {
            len: self.len,
            state: match self.ended {
                Ended::Complete => PieceState::Complete { adler32: self.adler32, crc32c: self.crc32c },
                Ended::Interrupted => PieceState::Interrupted,
            },
            generation: self.generation,
            incarnation: self.incarnation,
        }
    }
}

impl Life {
    pub(crate) fn subject(&self, piece: PieceId) -> Subject {
        Subject { piece, generation: self.birth.generation }
    }
}
