//! What the other managers of the cluster have stored of the files that all managers have.

use std::collections::HashMap;

use namespace::MemberEntry;
use types::NodeId;

use crate::coordinator::is_manager;
use crate::tracked::Tracked;

/// The digest of the files that each manager has stored durably, by its last word to this one.
#[derive(Debug, Default)]
pub struct StoredFiles(Tracked<HashMap<NodeId, [u8; 32]>>);

/// The managers of `members` beside `own`, by number and name.
pub fn other_managers(members: &[MemberEntry], own: NodeId) -> impl Iterator<Item = (NodeId, &str)> {
    let others = members.iter().filter(move |member| is_manager(member) && member.node != own);
    others.map(|member| (member.node, &*member.name))
}

impl StoredFiles {
    /// Notes what `node` has stored.
    pub fn note(&self, node: NodeId, digest: [u8; 32]) {
        self.0.lock().insert(node, digest);
    }

    /// Those of `managers` that have not stored the files with this digest, by names and numbers. One that is not up counts as one of them: its word
    /// may be old, for it may come back from a backup.
    #[must_use]
    pub fn lacking<'a>(
        &self,
        digest: Option<[u8; 32]>,
        managers: impl Iterator<Item = (NodeId, &'a str)>,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Vec<String> {
        let stored = self.0.lock();
        let has_stored = |node: &NodeId| digest.is_some() && stored.get(node).copied() == digest;
        let late = managers.filter(|(node, _)| !has_stored(node) || !is_up(*node));
        late.map(|(node, name)| format!("{name} (node {node})")).collect()
    }
}

#[cfg(test)]
mod tests {
    use link::Roles;
    use types::Timestamp;

    use super::*;

    fn member(node: u64, roles: Roles) -> MemberEntry {
        let (for_nodes, for_clients, name) = (Vec::new(), Vec::new(), format!("node{node}"));
        MemberEntry {
            node: NodeId(node),
            roles: roles.bits(),
            name,
            key: [0; 32],
            joined: Timestamp(0),
            for_nodes,
            for_clients,
        }
    }

    #[test]
    fn managers_that_lack_a_change_are_named() {
        let members = [member(1, Roles::MANAGER), member(2, Roles::MANAGER), member(3, Roles::DISK)];
        let (stored, own) = (StoredFiles::default(), NodeId(1));
        let late = vec!["node2 (node 2)".to_owned()];
        assert_eq!(stored.lacking(Some([1; 32]), other_managers(&members, own), |_| true), late);
        stored.note(NodeId(2), [1; 32]);
        assert_eq!(
            stored.lacking(Some([1; 32]), other_managers(&members, own), |_| false),
            late,
            "it may have been replaced since"
        );
        assert_eq!(stored.lacking(Some([1; 32]), other_managers(&members, own), |_| true), Vec::<String>::new());
        assert_eq!(stored.lacking(Some([2; 32]), other_managers(&members, own), |_| true), late);
        assert_eq!(stored.lacking(None, other_managers(&members, own), |_| true), late);
        assert_eq!(stored.lacking(Some([1; 32]), other_managers(&members, NodeId(2)), |_| true), ["node1 (node 1)"]);
    }
}
