//! What the active manager knows of the others, for the judgement of the cluster and before the authority changes.

use std::sync::Arc;

use link::{Authority, ManagerFiles};
use manager::StoredFiles;
use manager::administrators::Administrators;
use namespace::MemberEntry;
use types::NodeId;

/// See the module.
#[derive(Clone)]
pub(crate) struct OtherManagersHealth {
    /// This manager.
    pub(crate) own: NodeId,
    pub(crate) stored: Arc<StoredFiles>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) administrators: Arc<Administrators>,
}

impl OtherManagersHealth {
    /// The other managers of `members` that have not stored the present authority and administrators, or are not up, by names.
    pub(crate) fn lacking(&self, members: &[MemberEntry], is_up: impl Fn(NodeId) -> bool) -> Vec<String> {
        let files =
            ManagerFiles { authority: self.authority.to_secret_bytes(), administrators: self.administrators.records() };
        self.stored.lacking(files.digest(), self.own, members, is_up)
    }
}
