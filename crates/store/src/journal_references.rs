//! Which records must stay in the journal, and how far it may be trimmed.

use std::collections::BTreeMap;

use journal::Seq;
use types::ReplicaId;

use crate::store::ReplicaMap;

/// Everything that needs records of `STORE_DATA` in the journal.
#[derive(Default)]
pub(crate) struct JournalReferences {
    /// Open writes: the oldest record that recovery would need.
    write_states: ReplicaMap<Seq>,
    /// Small replicas whose bytes lie in the journal: (oldest record needed, replica) to length.
    unsettled: BTreeMap<(Seq, ReplicaId), u64>,
    unsettled_bytes: u64,
    /// Records needed from the first number on, until the second is durable.
    released: Vec<(Seq, Seq)>,
    /// Unfinished removals: the record of the removal must stay until the files are gone.
    removals: BTreeMap<ReplicaId, Removal>,
}

/// A removed replica whose files may still exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Removal {
    /// The first record of the removal.
    pub(crate) gone: Seq,
    /// When this record is durable, the files can be removed.
    pub(crate) after: Seq,
}

impl JournalReferences {
    /// An open write begins: keep everything appended after `appended`.
    pub(crate) fn begin(&mut self, replica: ReplicaId, appended: Seq) {
        self.write_states.insert(replica, appended.next());
    }

    /// The state was written again, in the records from `snapshot` to `last`. Older records are not needed once these
    /// are durable.
    pub(crate) fn advance(&mut self, replica: ReplicaId, snapshot: Seq, last: Seq) {
        if let Some(first) = self.write_states.insert(replica, snapshot) {
            self.released.push((first, last));
        }
    }

    pub(crate) fn of(&self, replica: ReplicaId) -> Option<Seq> {
        self.write_states.get(&replica).copied()
    }

    /// The open write has ended with `record`. Its bytes are not in the journal, or no longer needed there.
    pub(crate) fn end(&mut self, replica: ReplicaId, record: Seq) {
        if let Some(first) = self.write_states.remove(&replica) {
            self.released.push((first, record));
        }
    }

    /// The open write has ended, and its bytes stay in the journal until they are settled.
    pub(crate) fn end_unsettled(&mut self, replica: ReplicaId, len: u64) {
        if let Some(first) = self.write_states.remove(&replica) {
            self.add_unsettled(first, replica, len);
        }
    }

    pub(crate) fn add_unsettled(&mut self, first: Seq, replica: ReplicaId, len: u64) {
        self.unsettled.insert((first, replica), len);
        self.unsettled_bytes += len;
    }

    /// The oldest unsettled replicas, up to about `bytes` (and at least one).
    pub(crate) fn oldest_unsettled(&self, bytes: u64) -> Vec<(Seq, ReplicaId)> {
        let mut sum = 0;
        let mut oldest = Vec::new();
        for (key, len) in &self.unsettled {
            if sum >= bytes || oldest.len() >= 4096 {
                break;
            }
            sum += len;
            oldest.push(*key);
        }
        oldest
    }

    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// Notes that `record` settled the replica.
    pub(crate) fn settled(&mut self, key: (Seq, ReplicaId), record: Seq) {
        if let Some(len) = self.unsettled.remove(&key) {
            self.unsettled_bytes -= len;
            self.released.push((key.0, record));
        }
    }

    pub(crate) fn remove(&mut self, replica: ReplicaId, removal: Removal) {
        self.removals.insert(replica, removal);
    }

    /// Removals whose records are durable.
    pub(crate) fn due_removals(&self, durable: Seq) -> Vec<ReplicaId> {
        self.removals.iter().filter(|(_, removal)| removal.after <= durable).map(|(replica, _)| *replica).collect()
    }

    pub(crate) fn is_being_removed(&self, replica: ReplicaId) -> bool {
        self.removals.contains_key(&replica)
    }

    pub(crate) fn removed(&mut self, replica: ReplicaId) {
        self.removals.remove(&replica);
    }

    /// The first record that must stay when everything up to `durable` is durable.
    pub(crate) fn trim(&mut self, durable: Seq) -> Seq {
        self.released.retain(|(_, until)| *until > durable);
        let write_states = self.write_states.values().copied();
        let unsettled = self.unsettled.keys().next().map(|key| key.0);
        let released = self.released.iter().map(|(first, _)| *first);
        let removals = self.removals.values().map(|removal| removal.gone);
        write_states.chain(unsettled).chain(released).chain(removals).fold(durable.next(), Seq::min)
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use types::ObjectId;

    use super::*;

    #[test]
    fn the_oldest_needed_record_limits_the_trim() {
        let (a, b) = (ReplicaId::first(ObjectId(1)), ReplicaId::first(ObjectId(2)));
        let mut holds = JournalReferences::default();
        assert_eq!(holds.trim(Seq(10)), Seq(11));
        holds.begin(a, Seq(4));
        holds.begin(b, Seq(6));
        assert_eq!(holds.trim(Seq(10)), Seq(5));
        holds.end_unsettled(a, 100);
        assert_eq!(holds.trim(Seq(10)), Seq(5));
        holds.settled((Seq(5), a), Seq(20));
        assert_eq!(holds.trim(Seq(19)), Seq(5));
        assert_eq!(holds.trim(Seq(20)), Seq(7));
        holds.advance(b, Seq(22), Seq(22));
        assert_eq!(holds.trim(Seq(21)), Seq(7));
        assert_eq!(holds.trim(Seq(22)), Seq(22));
        holds.end(b, Seq(30));
        holds.remove(a, Removal { gone: Seq(24), after: Seq(25) });
        assert_eq!(holds.trim(Seq(30)), Seq(24));
        assert_eq!(holds.due_removals(Seq(24)), []);
        assert_eq!(holds.due_removals(Seq(25)), [a]);
        holds.removed(a);
        assert_eq!(holds.trim(Seq(30)), Seq(31));
    }
}
