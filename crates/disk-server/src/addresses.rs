//! The addresses of all stores' servers, from the manager. They come in pages and take effect when all pages are there.

use std::collections::BTreeMap;

use types::{NodeId, StoreId};

use node::{StoreAddress, StoreAddressPage};

/// The last complete list.
#[derive(Default)]
pub(super) struct StoreAddresses {
    stores: BTreeMap<StoreId, NodeId>,
    /// The addresses of servers.
    nodes: BTreeMap<NodeId, String>,
    coming: Option<PartialAddressList>,
}

/// The pages received so far of a list.
struct PartialAddressList {
    number: u64,
    next: u32,
    addresses: Vec<StoreAddress>,
}

impl StoreAddresses {
    /// Takes a page. The last page replaces the previous list; returns the nodes that are no longer in it. If a page was lost, the list has no
    /// effect, and the manager sends it again.
    pub(super) fn take(&mut self, page: StoreAddressPage) -> Option<Vec<NodeId>> {
        let StoreAddressPage { number, page, is_last, addresses } = page;
        let before = self.coming.take();
        let mut coming = match before.filter(|coming| (coming.number, coming.next) == (number, page)) {
            Some(coming) => coming,
            None if page == 0 => PartialAddressList { number, next: 0, addresses: Vec::new() },
            None => return None,
        };
        coming.next = coming.next.saturating_add(1);
        coming.addresses.extend(addresses);
        if !is_last {
            self.coming = Some(coming);
            return None;
        }
        let stores = coming.addresses.iter().map(|way| (way.store, way.node)).collect();
        let nodes = coming.addresses.into_iter().map(|way| (way.node, way.nodes_at)).collect();
        let before = std::mem::replace(self, Self { stores, nodes, coming: None });
        Some(before.nodes.into_keys().filter(|node| !self.knows(*node)).collect())
    }

    /// Whether the node is a disk server of the cluster.
    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// The server of a store.
    pub(super) fn node_of(&self, store: StoreId) -> Option<NodeId> {
        self.stores.get(&store).copied()
    }

    /// All disk servers with their addresses for other nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&NodeId, &String)> {
        self.nodes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(store: u64, node: u64) -> StoreAddress {
        StoreAddress { store: StoreId(store), node: NodeId(node), nodes_at: format!("n{node}:1") }
    }

    fn page(number: u64, page: u32, is_last: bool, addresses: &[(u64, u64)]) -> StoreAddressPage {
        StoreAddressPage {
            number,
            page,
            is_last,
            addresses: addresses.iter().map(|(store, node)| way(*store, *node)).collect(),
        }
    }

    #[test]
    fn pages_take_effect_together_and_name_removed_nodes() {
        let mut addresses = StoreAddresses::default();
        assert_eq!(addresses.take(page(1, 0, false, &[(1, 2), (2, 2)])), None);
        assert!(!addresses.knows(NodeId(2)), "there is more to come");
        assert_eq!(addresses.take(page(1, 1, true, &[(3, 3)])), Some(vec![]));
        assert!(addresses.knows(NodeId(2)) && addresses.knows(NodeId(3)));
        assert_eq!((addresses.node_of(StoreId(3)), addresses.node_of(StoreId(4))), (Some(NodeId(3)), None));
        assert_eq!(addresses.take(page(2, 0, true, &[(3, 3), (4, 4)])), Some(vec![NodeId(2)]));
        assert_eq!((addresses.node_of(StoreId(1)), addresses.node_of(StoreId(4))), (None, Some(NodeId(4))));
    }

    #[test]
    fn an_incomplete_set_of_pages_changes_nothing() {
        let mut addresses = StoreAddresses::default();
        addresses.take(page(1, 0, true, &[(1, 2)]));
        for lost in [
            vec![page(2, 1, true, &[(3, 3)])],
            vec![page(2, 0, false, &[(3, 3)]), page(2, 2, true, &[])],
            vec![page(2, 0, false, &[(3, 3)]), page(3, 1, true, &[])],
            vec![page(2, 0, false, &[(3, 3)]), page(2, 1, false, &[]), page(2, 1, true, &[])],
        ] {
            lost.into_iter().for_each(|page| assert_eq!(addresses.take(page), None));
            assert!(addresses.knows(NodeId(2)) && !addresses.knows(NodeId(3)));
        }
        addresses.take(page(9, 0, false, &[(3, 3)]));
        assert_eq!(addresses.take(page(10, 0, true, &[(4, 4)])), Some(vec![NodeId(2)]), "another telling begins");
        assert!(!addresses.knows(NodeId(3)));
    }
}
