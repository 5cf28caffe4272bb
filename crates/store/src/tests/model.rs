//! The allowed states of one replica after a stop.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::Writer;

/// The kinds of state of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Nothing,
    Making,
    Complete,
    Interrupted,
    Dirty,
}

/// A change of the bytes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// How the machine stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Kill,
    Power,
}

/// The bytes of a replica; `None`: not written.
pub(crate) type Content = Vec<Option<u8>>;

/// One replica as the test knows it.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) kind: Kind,
    /// Kinds that a power failure may show.
    pub(crate) possible: BTreeSet<Kind>,
    /// Bytes that survive a power failure.
    pub(crate) durable: Content,
    /// Changes acknowledged since, in order.
    pub(crate) later: Vec<Change>,
    /// Changes begun, but not acknowledged (failed or running).
    pub(crate) doubtful: Vec<Change>,
    pub(crate) doubtful_kinds: BTreeSet<Kind>,
    pub(crate) writer: Option<Arc<Writer>>,
    /// Its number must not be used again, even after a power failure.
    pub(crate) number_durable: bool,
    /// Created, and perhaps not in the kernel.
    pub(crate) unwritten: bool,
}

fn apply(content: &mut Content, change: &Change) {
    match change {
        Change::Write(at, bytes) => {
            if content.len() < at + bytes.len() {
                content.resize(at + bytes.len(), None);
            }
            for (into, byte) in content[*at..].iter_mut().zip(bytes) {
                *into = Some(*byte);
            }
        }
        Change::Truncate(len) => content.resize(*len, None),
    }
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            kind: Kind::Nothing,
            possible: BTreeSet::from([Kind::Nothing]),
            durable: Vec::new(),
            later: Vec::new(),
            doubtful: Vec::new(),
            doubtful_kinds: BTreeSet::new(),
            writer: None,
            number_durable: false,
            unwritten: false,
        }
    }

    /// The acknowledged bytes.
    pub(crate) fn content(&self) -> Content {
        let mut content = self.durable.clone();
        self.later.iter().for_each(|change| apply(&mut content, change));
        content
    }

    /// A change of kind was acknowledged.
    pub(crate) fn becomes(&mut self, kind: Kind) {
        self.kind = kind;
        self.possible.insert(kind);
    }

    /// A power failure can no longer undo any of it.
    pub(crate) fn is_durable(&mut self) {
        self.durable = self.content();
        self.later.clear();
        self.possible = BTreeSet::from([self.kind]);
        self.number_durable |= self.kind != Kind::Nothing;
    }

    /// Checks that the state shown by the store is an allowed one.
    pub(crate) fn check(&self, stop: Stop, kind: Kind, found: &Content) -> Result<(), String> {
        let kinds: BTreeSet<Kind> = match stop {
            Stop::Kill => {
                let forgotten = self.unwritten.then_some(Kind::Nothing);
                self.doubtful_kinds.iter().copied().chain([self.kind]).chain(forgotten).collect()
            }
            Stop::Power => self.doubtful_kinds.union(&self.possible).copied().collect(),
        };
        if !kinds.contains(&kind) {
            return Err(format!("is {kind:?}, may be {kinds:?}"));
        }
        if kind == Kind::Nothing {
            return Ok(());
        }
        // Every possible state of the bytes, one change after the other.
        let (mut contents, changes): (Vec<Content>, Vec<&Change>) = match stop {
            Stop::Kill => (vec![self.content()], self.doubtful.iter().collect()),
            Stop::Power => (vec![self.durable.clone()], self.later.iter().chain(&self.doubtful).collect()),
        };
        for change in changes {
            let mut next = contents.last().cloned().unwrap_or_default();
            apply(&mut next, change);
            contents.push(next);
        }
        if kind != Kind::Making {
            let lens: BTreeSet<usize> = contents.iter().map(Vec::len).collect();
            // An interruption keeps the part without gaps.
            let kept = |content: &Content| content.iter().position(Option::is_none).unwrap_or(content.len());
            let fits = match kind {
                Kind::Interrupted => contents.iter().any(|content| found.len() >= kept(content)) || contents.is_empty(),
                // An unacknowledged write may be there in part.
                _ if kind == Kind::Dirty || !self.doubtful.is_empty() => {
                    lens.first() <= Some(&found.len()) && Some(&found.len()) <= lens.last()
                }
                _ => lens.contains(&found.len()),
            };
            if !fits {
                return Err(format!("{kind:?} with {} bytes, may be {lens:?}", found.len()));
            }
        }
        let longest = contents.iter().map(Vec::len).max().unwrap_or(0).max(found.len());
        for at in 0..longest {
            let same = |content: &Content| content.get(at).copied().flatten() == found.get(at).copied().flatten();
            if contents.last().is_some_and(same) {
                continue;
            }
            let allowed: BTreeSet<Option<u8>> =
                contents.iter().map(|content| content.get(at).copied().flatten()).collect();
            let value = found.get(at).copied().flatten();
            // Gaps of finished replicas read as zeros.
            let gap = kind != Kind::Making && value == Some(0) && allowed.contains(&None);
            // Interrupted replicas end at their first gap; any gap that was never promised.
            let cut = kind == Kind::Interrupted
                && at >= found.len()
                && contents.iter().any(|c| c.iter().position(Option::is_none).unwrap_or(c.len()) <= at);
            if !allowed.contains(&value) && !gap && !cut {
                return Err(format!("{kind:?}: byte {at} is {value:?}, may be {allowed:?}"));
            }
        }
        Ok(())
    }
}
