//! Names of the simulated disk: directories and their unsynced changes.

use std::collections::BTreeMap;

/// The number of a file or directory of the simulated disk.
pub(super) type NodeId = u64;

#[derive(Clone, Default)]
pub(super) struct DirNode {
    pub(super) durable: BTreeMap<String, NodeId>,
    pub(super) current: BTreeMap<String, NodeId>,
}

/// A name that is set or removed.
#[derive(Clone)]
pub(super) struct Effect {
    pub(super) dir: NodeId,
    pub(super) name: String,
    pub(super) node: Option<NodeId>,
}

/// One call that changed names. A crash keeps or undoes it as a whole, like a journaling file system.
#[derive(Clone)]
pub(super) struct NameChange {
    pub(super) effects: Vec<Effect>,
    /// The directories that have not been synced since.
    pub(super) unsynced: Vec<NodeId>,
}

impl NameChange {
    pub(super) fn new(effects: Vec<Effect>) -> Self {
        let mut unsynced: Vec<NodeId> = effects.iter().map(|e| e.dir).collect();
        unsynced.dedup();
        Self { effects, unsynced }
    }

    fn touches_same_name(&self, other: &NameChange) -> bool {
        self.effects.iter().any(|a| other.effects.iter().any(|b| a.dir == b.dir && a.name == b.name))
    }
}

/// Marks all earlier changes of the same names as surviving, for every surviving change.
pub(super) fn keep_earlier_changes(changes: &[NameChange], there: &mut [bool]) {
    for i in (0..changes.len()).rev() {
        if there[i] {
            for j in 0..i {
                if changes[i].touches_same_name(&changes[j]) {
                    there[j] = true;
                }
            }
        }
    }
}
