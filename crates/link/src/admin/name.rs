//! The subject of an administrator's certificate, and what an administrator may do.
//!
//! The only alternative name of the certificate is a URI of the form `weir-admin:<cluster>:<id>`, both in hexadecimal.
//! Only this exact form is accepted. The role is not in it: the manager looks it up, so that it has one source.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::ClusterId;

/// Longest text of a name in bytes.
const TEXT_MAX: usize = 80;

/// The id of an administrator: random, never used again. It is not secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AdminId(pub [u8; 16]);

impl fmt::Display for AdminId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for AdminId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An administrator of a cluster, as its certificate says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AdminName {
    /// The cluster.
    pub cluster: ClusterId,
    /// The administrator.
    pub id: AdminId,
}

impl AdminName {
    /// Parses `text`; `None` if it is not exactly the form of `Display`.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let (cluster, id) = text.strip_prefix("weir-admin:")?.split_once(':')?;
        let cluster = ClusterId(u128::from_str_radix(cluster, 16).ok()?);
        let id = AdminId(u128::from_str_radix(id, 16).ok()?.to_be_bytes());
        let name = Self { cluster, id };
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for AdminName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weir-admin:{}:{}", self.cluster, self.id)
    }
}

/// What an administrator may do. Each role may do what those before it may. The order is part of files and messages:
/// add new roles only at the end, and only with a new version of both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdminRole {
    /// Read the state of the cluster.
    Viewer,
    /// Run it: drain stores, make them read-only, control repair and scrub.
    Operator,
    /// Everything: policies, removal of stores and nodes, tokens, administrators, backups.
    Admin,
}

impl AdminRole {
    /// All roles, the least first.
    pub const ALL: [AdminRole; 3] = [AdminRole::Viewer, AdminRole::Operator, AdminRole::Admin];
}

impl fmt::Display for AdminRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

impl std::str::FromStr for AdminRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no role; write viewer, operator or admin"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeName;

    #[test]
    fn only_the_canonical_form_of_a_name_is_read() {
        let name = AdminName { cluster: ClusterId(0xabc), id: AdminId([1; 16]) };
        let text = "weir-admin:00000000000000000000000000000abc:01010101010101010101010101010101";
        assert_eq!(name.to_string(), text);
        assert_eq!(AdminName::from_text(text), Some(name));
        assert_eq!(NodeName::from_text(text), None, "an administrator is no node");
        for (from, to) in [
            ("weir-admin:", "weir:"),
            ("weir-admin:", "weir-admin"),
            ("0abc", "abc"),
            ("0abc", "0ABC"),
            ("0abc", "+abc"),
            (":0101", ":101"),
            (":0101", ":+101"),
            (":0101", ":0101:"),
            (":0101", ":"),
            ("0101010101010101", "0101010101010101x"),
        ] {
            assert_eq!(AdminName::from_text(&text.replacen(from, to, 1)), None, "{to}");
        }
        assert_eq!(AdminName::from_text(&"weir-admin:".repeat(1000)), None);
    }

    #[test]
    fn roles_are_ordered_and_have_names() {
        assert!(AdminRole::Viewer < AdminRole::Operator && AdminRole::Operator < AdminRole::Admin);
        for role in AdminRole::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("Admin".parse::<AdminRole>().unwrap_err().contains("viewer, operator or admin"));
    }
}
