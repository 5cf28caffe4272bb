//! What a transaction must fetch from the database.

use std::collections::BTreeSet;

use kv::{Chain, Prefetch, ScanOrder};

use crate::chains::unknown_of_chain;
use crate::fetched::Fetched;

/// Entries of a range that must be fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    pub(crate) order: ScanOrder,
    pub(crate) most: u32,
}

/// What must be fetched.
#[derive(Default, Debug)]
pub(crate) struct Needs {
    pub(crate) keys: BTreeSet<Vec<u8>>,
    pub(crate) ranges: Vec<Range>,
    pub(crate) chains: Vec<Chain>,
}

impl Needs {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty() && self.chains.is_empty()
    }

    /// One entry.
    pub(crate) fn of_key(key: &[u8]) -> Self {
        Self { keys: BTreeSet::from([key.to_vec()]), ..Self::default() }
    }

    pub(crate) fn add_range(&mut self, range: Range) {
        if !self.ranges.contains(&range) {
            self.ranges.push(range);
        }
    }

    /// Adds a chain. Chains with the same names are fetched as one.
    fn add_chain(&mut self, chain: Chain) {
        let same = self.chains.iter_mut().find(|other| {
            other.names == chain.names
                && other.first == chain.first
                && other.prefix == chain.prefix
                && other.id_at == chain.id_at
        });
        match same {
            Some(other) => {
                for follow in chain.follow {
                    if !other.follow.contains(&follow) {
                        other.follow.push(follow);
                    }
                }
            }
            None => self.chains.push(chain),
        }
    }

    /// Adds what of `wanted` is not known.
    pub(crate) fn add(&mut self, wanted: Vec<Prefetch>, known: &Fetched) {
        for one in wanted {
            match one {
                Prefetch::Key(key) => self.add_key(key, known),
                Prefetch::Range { start, end, most } => {
                    let range = Range { start, end, order: ScanOrder::Ascending, most: most.max(1) };
                    self.add_unknown_of_range(&range, known);
                }
                Prefetch::Chain(chain) => self.add_unknown_of_chain(chain, known),
            }
        }
    }

    /// Adds what of `other` is not known.
    pub(crate) fn add_needs(&mut self, other: Self, known: &Fetched) {
        other.keys.into_iter().for_each(|key| self.add_key(key, known));
        other.ranges.iter().for_each(|range| self.add_unknown_of_range(range, known));
        other.chains.into_iter().for_each(|chain| self.add_unknown_of_chain(chain, known));
    }

    /// What of it is not known.
    pub(crate) fn unknown(self, known: &Fetched) -> Self {
        let mut unknown = Self::default();
        unknown.add_needs(self, known);
        unknown
    }

    fn add_key(&mut self, key: Vec<u8>, known: &Fetched) {
        if known.get(&key).is_none() {
            self.keys.insert(key);
        }
    }

    fn add_unknown_of_range(&mut self, range: &Range, known: &Fetched) {
        if let Some(unknown) = known.unknown_part(range) {
            self.add_range(unknown);
        }
    }

    /// Adds what is not known of a chain: single entries as far as their keys are known, and the rest of the chain.
    fn add_unknown_of_chain(&mut self, chain: Chain, known: &Fetched) {
        let unknown = unknown_of_chain(chain, known);
        self.keys.extend(unknown.keys);
        unknown.ranges.into_iter().for_each(|range| self.add_range(range));
        if let Some(rest) = unknown.rest {
            self.add_chain(rest);
        }
    }
}
