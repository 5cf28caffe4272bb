//! The state that recorders share with the readers of their files: which files have begun, when each block was
//! written, and which files are finished.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::load::Worker;

/// How often a wait checks whether everything must end.
const TICK: Duration = Duration::from_millis(50);

/// The state of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The file grows.
    Growing,
    /// The file is complete.
    Whole,
    /// Its recorder has abandoned it.
    Broken,
}

/// A file of a recorder.
#[derive(Debug)]
struct Track {
    state: State,
    /// When each block was written; `None`: not yet.
    written: Vec<Option<Instant>>,
    /// The followers that have not finished it.
    followers: u32,
}

#[derive(Debug, Default)]
struct Board {
    tracks: BTreeMap<(u32, u32), Track>,
    /// The number of files that each recorder has begun.
    begun: BTreeMap<u32, u32>,
    /// The recorders that continue.
    recording: u32,
    /// Finished files that wait for copying.
    to_copy: VecDeque<(u32, u32)>,
}

/// The shared state. See the module.
#[derive(Debug)]
pub(super) struct Floor {
    followers: u32,
    copied: bool,
    board: Mutex<Board>,
    changed: Condvar,
}

impl Floor {
    pub(super) fn new(recorders: u32, followers: u32, copied: bool) -> Self {
        let board = Board { recording: recorders, ..Board::default() };
        Self { followers, copied, board: Mutex::new(board), changed: Condvar::new() }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A recorder begins a file.
    pub(super) fn begin(&self, recorder: u32, file: u32) {
        let mut board = self.board();
        board.begun.insert(recorder, file + 1);
        if self.followers > 0 {
            let track = Track { state: State::Growing, written: Vec::new(), followers: self.followers };
            board.tracks.insert((recorder, file), track);
            self.changed.notify_all();
        }
    }

    /// A block is written.
    pub(super) fn written(&self, recorder: u32, file: u32, block: usize) {
        if self.followers == 0 {
            return;
        }
        if let Some(track) = self.board().tracks.get_mut(&(recorder, file)) {
            if track.written.len() <= block {
                track.written.resize(block + 1, None);
            }
            track.written[block] = Some(Instant::now());
        }
    }

    /// A recorder has finished or abandoned a file.
    pub(super) fn end(&self, recorder: u32, file: u32, whole: bool) {
        let mut board = self.board();
        if let Some(track) = board.tracks.get_mut(&(recorder, file)) {
            track.state = if whole { State::Whole } else { State::Broken };
        }
        if whole && self.copied {
            board.to_copy.push_back((recorder, file));
        }
        self.changed.notify_all();
    }

    /// A recorder has ended.
    pub(super) fn leave(&self) {
        self.board().recording -= 1;
        self.changed.notify_all();
    }

    /// Waits until a file has begun. Returns `false` if it never will.
    pub(super) fn wait_for(&self, recorder: u32, file: u32, worker: &Worker) -> bool {
        let mut board = self.board();
        loop {
            if board.begun.get(&recorder).is_some_and(|begun| *begun > file) {
                return true;
            }
            if board.recording == 0 || worker.is_stopped() {
                return false;
            }
            board = self.changed.wait_timeout(board, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the state of a file that has begun.
    pub(super) fn state(&self, recorder: u32, file: u32) -> State {
        self.board().tracks.get(&(recorder, file)).map_or(State::Broken, |track| track.state)
    }

    /// Returns how long ago a block was written.
    pub(super) fn age(&self, recorder: u32, file: u32, block: usize) -> Option<Duration> {
        let written = self.board().tracks.get(&(recorder, file))?.written.get(block).copied()??;
        Some(written.elapsed())
    }

    /// A follower has finished a file. After the last follower, the file is forgotten.
    pub(super) fn forget(&self, recorder: u32, file: u32) {
        let mut board = self.board();
        if let Some(track) = board.tracks.get_mut(&(recorder, file)) {
            track.followers -= 1;
            if track.followers == 0 {
                board.tracks.remove(&(recorder, file));
            }
        }
    }

    /// Returns the next file to copy; `None`: there will be none.
    pub(super) fn next_to_copy(&self, worker: &Worker) -> Option<(u32, u32)> {
        let mut board = self.board();
        loop {
            if worker.is_stopped() {
                return None;
            }
            if let Some(file) = board.to_copy.pop_front() {
                return Some(file);
            }
            if board.recording == 0 {
                return None;
            }
            board = self.changed.wait_timeout(board, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_followers_is_forgotten() {
        let floor = Floor::new(1, 2, false);
        floor.begin(0, 0);
        floor.written(0, 0, 1);
        assert!(floor.age(0, 0, 0).is_none() && floor.age(0, 0, 1).is_some());
        assert_eq!(floor.state(0, 0), State::Growing);
        floor.end(0, 0, true);
        floor.forget(0, 0);
        assert_eq!(floor.state(0, 0), State::Whole);
        floor.forget(0, 0);
        assert!(floor.board().tracks.is_empty());
    }
}
