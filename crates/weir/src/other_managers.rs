//! What the active manager knows of the others, for the judgement of the cluster and before the authority changes.

use std::sync::Arc;

use link::Authority;
use manager::StoredFiles;
use manager::administrators::Administrators;
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
    /// Those of `managers` that have not stored the present authority and administrators, or are not up, by names.
    pub(crate) fn lacking<'a>(
        &self,
        managers: impl Iterator<Item = (NodeId, &'a str)>,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Vec<String> {
        self.stored.lacking(self.administrators.files(&self.authority).digest(), managers, is_up)
    }
}
