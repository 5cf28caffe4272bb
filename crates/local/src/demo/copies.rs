//! The manager's view of a file, reduced to the demo's questions.

use cluster::placement::StoreState;
use manager::{FileView, ObjectState, ReplicaState, ReplicaView};

use super::DemoError;

/// An object and the nodes that have a complete, readable replica of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaHolders {
    state: ObjectState,
    len: u64,
    /// Names of the nodes.
    pub there: Vec<String>,
}

impl ReplicaHolders {
    /// Reads the view; `None`: the file has no object.
    #[must_use]
    pub fn of(file: &FileView) -> Option<Self> {
        let content = file.object.as_ref()?;
        let can_be_read =
            |copy: &&ReplicaView| copy.replica == ReplicaState::Complete && copy.state == Some(StoreState::Online);
        let there = content.replicas.iter().filter(can_be_read).filter_map(node).collect();
        Some(Self { state: content.state, len: content.len, there })
    }

    /// Fails unless the manager has the file as complete, with `len` bytes.
    pub fn must_be_whole(&self, path: &str, len: u64) -> Result<(), DemoError> {
        if self.state == ObjectState::Complete && self.len == len {
            return Ok(());
        }
        let (state, has) = (self.state, self.len);
        Err(DemoError::Wrong(format!("{path} is not whole: the manager has it as {state:?}, {has} bytes of {len}")))
    }
}

/// The node of the primary; `None`: nobody is writing the file.
#[must_use]
pub fn primary(file: &FileView) -> Option<String> {
    file.object.as_ref()?.replicas.iter().find(|copy| copy.replica == ReplicaState::Primary).and_then(node)
}

/// Whether the node `name` gets the writes to a file.
#[must_use]
pub fn writes_to(file: &FileView, name: &str) -> bool {
    let copies = file.object.as_ref().map_or(&[][..], |content| &content.replicas);
    let takes = |copy: &&ReplicaView| matches!(copy.replica, ReplicaState::Primary | ReplicaState::InSync);
    copies.iter().filter(takes).any(|copy| node(copy).as_deref() == Some(name))
}

/// `weir local` gives hosts in locations the names of its nodes.
fn node(copy: &ReplicaView) -> Option<String> {
    copy.location.as_ref()?.rsplit('/').next().map(ToOwned::to_owned)
}
