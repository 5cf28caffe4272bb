//! The manager's view of a file, reduced to the demo's questions.

use cluster::placement::StoreState;
use manager::{ContentState, CopyState, CopyView, FileView};

use super::Trouble;

/// An object and the nodes that have a complete, readable replica of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    state: ContentState,
    len: u64,
    /// Names of the nodes.
    pub there: Vec<String>,
}

impl Standing {
    /// Reads the view; `None`: the file has no object.
    #[must_use]
    pub fn of(file: &FileView) -> Option<Self> {
        let content = file.content.as_ref()?;
        let can_be_read = |copy: &&CopyView| copy.has == CopyState::Whole && copy.state == Some(StoreState::Online);
        let there = content.copies.iter().filter(can_be_read).filter_map(node).collect();
        Some(Self { state: content.state, len: content.len, there })
    }

    /// Fails unless the manager has the file as complete, with `len` bytes.
    pub fn must_be_whole(&self, path: &str, len: u64) -> Result<(), Trouble> {
        if self.state == ContentState::Complete && self.len == len {
            return Ok(());
        }
        let (state, has) = (self.state, self.len);
        Err(Trouble::Wrong(format!("{path} is not whole: the manager has it as {state:?}, {has} bytes of {len}")))
    }
}

/// The node of the primary; `None`: nobody is writing the file.
#[must_use]
pub fn primary(file: &FileView) -> Option<String> {
    file.content.as_ref()?.copies.iter().find(|copy| copy.has == CopyState::Primary).and_then(node)
}

/// Whether the node `name` gets the writes to a file.
#[must_use]
pub fn writes_to(file: &FileView, name: &str) -> bool {
    let copies = file.content.as_ref().map_or(&[][..], |content| &content.copies);
    let takes = |copy: &&CopyView| matches!(copy.has, CopyState::Primary | CopyState::InSync);
    copies.iter().filter(takes).any(|copy| node(copy).as_deref() == Some(name))
}

/// `weir local` gives hosts in locations the names of its nodes.
fn node(copy: &CopyView) -> Option<String> {
    copy.location.as_ref()?.rsplit('/').next().map(ToOwned::to_owned)
}
