//! The subject of a certificate. Its only alternative name is a URI of the form `weir:<cluster in
//! hexadecimal>:<node>:<roles>`. Only this exact form is accepted.

use std::fmt;

use types::{ClusterId, NodeId};

use crate::Roles;

/// Longest text of a name in bytes.
const TEXT_MAX: usize = 80;

/// A node of a cluster, with its roles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeName {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its number in the cluster.
    pub node: NodeId,
    /// Its roles.
    pub roles: Roles,
}

impl NodeName {
    /// Parses `text`; `None` if it is not exactly the form of `Display`.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let mut parts = text.strip_prefix("weir:")?.splitn(3, ':');
        let cluster = ClusterId(u128::from_str_radix(parts.next()?, 16).ok()?);
        let node = NodeId(parts.next()?.parse().ok()?);
        let roles = Roles::from_text(parts.next()?)?;
        let name = Self { cluster, node, roles };
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weir:{}:{}:{}", self.cluster, self.node, self.roles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_of_a_name_is_read() {
        let name = NodeName { cluster: ClusterId(0xabc), node: NodeId(12), roles: Roles::BOTH };
        let text = "weir:00000000000000000000000000000abc:12:manager+disk";
        assert_eq!(name.to_string(), text);
        assert_eq!(NodeName::from_text(text), Some(name));
        for (from, to) in [
            ("weir:", "weir"),
            ("weir:", "https:"),
            ("0abc", "abc"),
            ("0abc", "0ABC"),
            ("0abc", "+abc"),
            (":12:", ":012:"),
            (":12:", ":+12:"),
            (":12:", ":12:12:"),
            (":12:", ":-1:"),
            (":12:", ":18446744073709551616:"),
            ("+disk", "+disk:"),
            ("+disk", "+disk\0"),
            ("manager+disk", "root"),
            ("manager+disk", ""),
        ] {
            assert_eq!(NodeName::from_text(&text.replacen(from, to, 1)), None, "{to}");
        }
        assert_eq!(NodeName::from_text(&"weir:".repeat(1000)), None);
    }
}
