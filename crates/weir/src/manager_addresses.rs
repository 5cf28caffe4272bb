//! The addresses of a cluster's managers, for tokens, invitations and commands: whoever has them finds the active manager, whichever that is.

use link::token::ADDRESSES_MAX;
use namespace::MemberEntry;

/// The address of the manager that says this, and those of the other managers.
pub(crate) fn all<'a>(own: &str, others: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut all = vec![own.to_owned()];
    for other in others {
        if all.len() < ADDRESSES_MAX && !all.iter().any(|known| known == other) {
            all.push(other.to_owned());
        }
    }
    all
}

/// The same, from the records of the members.
pub(crate) fn of_members(own: &str, members: &[MemberEntry]) -> Vec<String> {
    let addresses =
        members.iter().filter(|member| manager::is_manager(member)).filter_map(|member| member.for_nodes.first());
    all(own, addresses.map(String::as_str))
}

#[cfg(test)]
mod tests {
    use types::{NodeId, Timestamp};

    use super::*;

    #[test]
    fn the_own_address_is_first_and_each_stands_once() {
        let member = |node: u64, roles, at: Option<&str>| MemberEntry {
            node: NodeId(node),
            roles,
            name: String::new(),
            key: [0; 32],
            joined: Timestamp(0),
            for_nodes: at.map(str::to_owned).into_iter().collect(),
            for_clients: Vec::new(),
        };
        let members =
            [member(1, 1, Some("m1:1")), member(2, 2, Some("d1:1")), member(3, 1, Some("m2:1")), member(4, 1, None)];
        assert_eq!(of_members("m2:1", &members), ["m2:1", "m1:1"]);
        assert_eq!(of_members("m9:1", &[]), ["m9:1"]);
        let many: Vec<String> = (0..40).map(|number| format!("m{number}:1")).collect();
        assert_eq!(all("m:1", many.iter().map(String::as_str)).len(), ADDRESSES_MAX);
    }
}
