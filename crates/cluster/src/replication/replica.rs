//! A secondary, which applies a primary's changes.

use types::{BootGeneration, ErrorCode};

use super::{Epoch, FromReplica, ObjectDigest, PlantedBug, Seq, Stream, ToReplica};
use crate::Time;

/// The events that a secondary takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A message from a primary.
    Told(ToReplica),
    /// The replica is open, or could not be opened.
    Opened(Stream, Result<(), ErrorCode>),
    /// A change was applied. Changes are given to the store in order.
    Applied(Stream, Seq, Result<(), ErrorCode>),
    /// The replica is durable.
    Synced(Stream, Result<(), ErrorCode>),
    /// The replica is complete and durable, or what it keeps of an interrupted file is.
    Completed(Stream, Result<ObjectDigest, ErrorCode>),
}

/// What the caller must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Open the replica for writing, after all earlier work. With `may_make`, create it if it does not exist.
    Open {
        /// The stream that needs it.
        stream: Stream,
        /// Whether to create a replica that does not exist.
        may_make: bool,
    },
    /// Apply the change whose bytes came with the message.
    Apply(Stream, Seq),
    /// Make the replica durable.
    Sync(Stream),
    /// Make the replica complete and durable.
    Complete(Stream),
    /// End the replica without making it complete, and make durable what it keeps.
    Interrupt(Stream),
    /// Send this to the primary.
    Say(FromReplica),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flush {
    Sync,
    Complete,
    Interrupt,
}

/// A secondary. See the module.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The boot generation of its node.
    boot_generation: BootGeneration,
    planted: Option<PlantedBug>,
    /// Lower epochs are refused.
    floor: Epoch,
    stream: Option<Stream>,
    is_open: bool,
    /// The next change for the store.
    next: Seq,
    applied: Seq,
    flush: Option<(Flush, Seq)>,
    /// When the last message came.
    heard: Time,
}

impl Replica {
    /// Makes the secondary for a node with this boot generation.
    #[must_use]
    pub fn new(now: Time, boot_generation: BootGeneration, planted: Option<PlantedBug>) -> Self {
        Self {
            boot_generation,
            planted,
            floor: Epoch(0),
            stream: None,
            is_open: false,
            next: Seq(1),
            applied: Seq(0),
            flush: None,
            heard: now,
        }
    }

    /// Refuses lower epochs from now on.
    pub fn fence(&mut self, epoch: Epoch) {
        self.floor = self.floor.max(epoch);
        if self.stream.is_some_and(|stream| stream.epoch < self.floor)
            && self.planted != Some(PlantedBug::EpochNotChecked)
        {
            self.stream = None;
        }
    }

    /// Returns the lowest epoch that it follows.
    #[must_use]
    pub fn floor(&self) -> Epoch {
        self.floor
    }

    /// Returns the stream that it follows.
    #[must_use]
    pub fn stream(&self) -> Option<Stream> {
        self.stream
    }

    /// Returns when the last message came. The caller may forget a secondary that has heard nothing for long.
    #[must_use]
    pub fn heard(&self) -> Time {
        self.heard
    }

    /// Takes one event, and appends the resulting effects to `out`.
    pub fn step(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Told(told) => {
                self.heard = now;
                self.told(told, out);
            }
            Input::Opened(stream, result) if self.is_of(stream) => match result {
                Ok(()) => {
                    self.is_open = true;
                    out.push(Effect::Say(FromReplica::Began { stream }));
                }
                Err(why) => self.fail(stream, why, out),
            },
            // An earlier change has failed, so there is a gap before this one.
            Input::Applied(stream, seq, result) if self.is_of(stream) && seq == self.applied.next() => match result {
                Ok(()) => {
                    self.applied = seq;
                    out.push(Effect::Say(FromReplica::Applied { stream, upto: self.applied }));
                    self.flush_when_due(stream, out);
                }
                Err(why) => self.fail(stream, why, out),
            },
            Input::Synced(stream, result) if self.is_of(stream) => match result {
                Ok(()) => out.push(Effect::Say(FromReplica::Synced { stream, upto: self.applied })),
                Err(why) => self.fail(stream, why, out),
            },
            Input::Completed(stream, result) if self.is_of(stream) => match result {
                Ok(whole) => out.push(Effect::Say(FromReplica::Completed { stream, whole })),
                Err(why) => self.fail(stream, why, out),
            },
            // The result belongs to a stream that is no longer followed.
            Input::Opened(..) | Input::Applied(..) | Input::Synced(..) | Input::Completed(..) => {}
        }
    }

    fn is_of(&self, stream: Stream) -> bool {
        self.stream == Some(stream)
    }

    fn told(&mut self, told: ToReplica, out: &mut Vec<Effect>) {
        let stream = told.stream();
        if stream.epoch < self.floor && self.planted != Some(PlantedBug::EpochNotChecked) {
            out.push(Effect::Say(FromReplica::Fenced { stream, epoch: self.floor }));
            return;
        }
        if let ToReplica::Begin { boot_generation, from, may_make, .. } = told {
            self.begin(stream, boot_generation, from, may_make, out);
            return;
        }
        if !self.is_of(stream) || !self.is_open {
            // A message of an older stream is useless. A newer stream has begun with messages that are missing here.
            if self.stream.is_none_or(|current| current < stream) {
                out.push(Effect::Say(FromReplica::Missing { stream }));
            }
            return;
        }
        match told {
            ToReplica::Change { seq, .. } if seq == self.next => {
                self.next = seq.next();
                out.push(Effect::Apply(stream, seq));
            }
            ToReplica::Change { seq, .. } if seq < self.next => {
                out.push(Effect::Say(FromReplica::Applied { stream, upto: self.applied }));
            }
            ToReplica::Sync { upto, .. } => self.flush(stream, (Flush::Sync, upto), out),
            ToReplica::Complete { upto, .. } => self.flush(stream, (Flush::Complete, upto), out),
            ToReplica::Interrupt { upto, .. } => self.flush(stream, (Flush::Interrupt, upto), out),
            ToReplica::Change { .. } | ToReplica::Begin { .. } => {
                out.push(Effect::Say(FromReplica::Missing { stream }))
            }
        }
    }

    fn begin(
        &mut self,
        stream: Stream,
        boot_generation: BootGeneration,
        from: Seq,
        may_make: bool,
        out: &mut Vec<Effect>,
    ) {
        if self.stream.is_some_and(|current| current > stream) && self.planted != Some(PlantedBug::EpochNotChecked) {
            return;
        }
        if self.is_of(stream) {
            if self.is_open {
                out.push(Effect::Say(FromReplica::Began { stream }));
            }
            return;
        }
        self.floor = self.floor.max(stream.epoch);
        self.stream = Some(stream);
        (self.is_open, self.flush) = (false, None);
        (self.next, self.applied) = (from, Seq(from.0.saturating_sub(1)));
        if boot_generation == self.boot_generation {
            out.push(Effect::Open { stream, may_make });
        } else {
            // Changes that were not synced when the kernel stopped are lost.
            self.fail(stream, ErrorCode::Stale, out);
        }
    }

    fn flush(&mut self, stream: Stream, (what, upto): (Flush, Seq), out: &mut Vec<Effect>) {
        if upto >= self.next {
            return out.push(Effect::Say(FromReplica::Missing { stream }));
        }
        self.flush = Some((what, upto));
        self.flush_when_due(stream, out);
    }

    fn flush_when_due(&mut self, stream: Stream, out: &mut Vec<Effect>) {
        if let Some((what, upto)) = self.flush
            && self.applied >= upto
        {
            self.flush = None;
            out.push(match what {
                Flush::Sync => Effect::Sync(stream),
                Flush::Complete => Effect::Complete(stream),
                Flush::Interrupt => Effect::Interrupt(stream),
            });
        }
    }

    fn fail(&mut self, stream: Stream, why: ErrorCode, out: &mut Vec<Effect>) {
        self.is_open = false;
        out.push(Effect::Say(FromReplica::Failed { stream, why }));
    }
}
