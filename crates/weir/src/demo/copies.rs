//! What the manager says of a file, as far as the demo asks for it.

use cluster::placement::StoreState;
use manager::{ContentState, CopyState, CopyView, FileView};

use super::Trouble;

/// A content and the nodes that have all of it and can be read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    state: ContentState,
    len: u64,
    /// Names of the nodes.
    pub there: Vec<String>,
}

impl Standing {
    /// `None`: it has no content.
    #[must_use]
    pub fn of(file: &FileView) -> Option<Self> {
        let content = file.content.as_ref()?;
        let can_be_read = |copy: &&CopyView| copy.has == CopyState::Whole && copy.state == Some(StoreState::Online);
        let there = content.copies.iter().filter(can_be_read).filter_map(node).collect();
        Some(Self { state: content.state, len: content.len, there })
    }

    /// An error if the manager does not have it as complete, with so many bytes.
    pub fn must_be_whole(&self, path: &str, len: u64) -> Result<(), Trouble> {
        if self.state == ContentState::Complete && self.len == len {
            return Ok(());
        }
        let (state, has) = (self.state, self.len);
        Err(Trouble::Wrong(format!("{path} is not whole: the manager has it as {state:?}, {has} bytes of {len}")))
    }
}

/// The node that orders what is written to a file; `None`: nobody writes it.
#[must_use]
pub fn primary(file: &FileView) -> Option<String> {
    file.content.as_ref()?.copies.iter().find(|copy| copy.has == CopyState::Primary).and_then(node)
}

/// Whether `name` gets what is written to a file.
#[must_use]
pub fn writes_to(file: &FileView, name: &str) -> bool {
    let copies = file.content.as_ref().map_or(&[][..], |content| &content.copies);
    let takes = |copy: &&CopyView| matches!(copy.has, CopyState::Primary | CopyState::InSync);
    copies.iter().filter(takes).any(|copy| node(copy).as_deref() == Some(name))
}

/// `weir local` names the hosts of its places like its nodes.
fn node(copy: &CopyView) -> Option<String> {
    copy.location.as_ref()?.rsplit('/').next().map(ToOwned::to_owned)
}
