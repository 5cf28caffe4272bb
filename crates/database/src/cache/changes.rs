//! What the process that commits tells another one, so that this one can go on with what it knows: which entries have changed.

use std::collections::BTreeSet;

use super::{Cache, Seen, State};

/// Bytes of keys and values in [`RecentChanges`] at most. Beyond [`VALUES_BYTES`], values are left out.
const CHANGES_BYTES: usize = 768 << 10;
const VALUES_BYTES: usize = 512 << 10;

/// What an entry takes in a message besides its bytes, at most.
const ENTRY_BYTES: usize = 16;

/// What has changed since a batch that somebody else knows of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecentChanges {
    /// The fence of the process that commits.
    pub fence: i64,
    /// Its last acknowledged batch.
    pub batch: i64,
    /// Each entry that the batches up to that one have changed, once. `None`: too many, or the process that commits has another fence since then. Nothing
    /// of what was known before is sure any more.
    pub entries: Option<Vec<ChangedEntry>>,
}

/// An entry that has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedEntry {
    /// Its key.
    pub key: Vec<u8>,
    /// What it is now, `Some(None)` if there is none. `None`: the value was left out.
    pub now: Option<Option<Vec<u8>>>,
}

impl Cache {
    /// What has changed since `since`. `None` if somebody has seen a later state in the database than is acknowledged yet.
    pub(crate) fn changes_since(&self, since: Seen) -> Option<RecentChanges> {
        let state = self.state.read();
        let Seen { batch, fence } = state.at();
        (!state.is_behind()).then(|| RecentChanges { fence, batch, entries: state.changes_since(since) })
    }

    /// The process that commits says what has changed since a batch of which this one knew. Returns whether this one knows so much now.
    pub(crate) fn follow(&self, since: Seen, changes: RecentChanges) -> bool {
        let RecentChanges { fence, batch, entries } = changes;
        let mut state = self.state.write();
        if fence < state.fence || batch < state.batch {
            // An answer of a process whose time is over. The number of the last acknowledged batch never goes back.
            return false;
        }
        let is_next = fence == state.fence && since == state.at();
        let (Some(entries), true) = (entries, is_next) else {
            drop(state);
            self.reset(Seen { batch, fence });
            return true;
        };
        if batch == state.batch {
            return true;
        }
        for ChangedEntry { key, now } in &entries {
            match now {
                Some(value) => state.change(key, value.as_deref(), self.generation_bytes > 0),
                None => {
                    state.young.forget(key);
                    state.old.forget(key);
                }
            }
        }
        state.note_changed(batch, entries.into_iter().map(|entry| entry.key.into()).collect());
        self.rotate(&mut state);
        true
    }

    /// The batch as of which this is.
    pub(crate) fn at(&self) -> Seen {
        self.state.read().at()
    }
}

impl State {
    fn changes_since(&self, since: Seen) -> Option<Vec<ChangedEntry>> {
        if since.fence != self.fence || !(self.recent_from..=self.batch).contains(&since.batch) {
            return None;
        }
        let (mut entries, mut bytes, mut seen) = (Vec::new(), 0, BTreeSet::new());
        // The latest first: their values are wanted most.
        for changed in self.recent.iter().rev().take_while(|one| one.batch > since.batch) {
            for key in changed.keys.iter().filter(|key| seen.insert(*key)) {
                let value = self.get(key);
                let value_bytes = value.flatten().map_or(0, <[u8]>::len);
                bytes += ENTRY_BYTES + key.len();
                let now = value.filter(|_| bytes + value_bytes <= VALUES_BYTES);
                if now.is_some() {
                    bytes += value_bytes;
                }
                if bytes > CHANGES_BYTES {
                    return None;
                }
                entries.push(ChangedEntry { key: key.to_vec(), now: now.map(|value| value.map(<[u8]>::to_vec)) });
            }
        }
        Some(entries)
    }
}
