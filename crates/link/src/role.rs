//! The roles of a node.

use std::fmt;

/// One role of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Role {
    /// It holds the namespace and decides.
    Manager = 1,
    /// It has stores.
    Disk = 2,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Manager => "manager",
            Self::Disk => "disk",
        })
    }
}

/// All roles of a node: at least one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Roles(u8);

impl Roles {
    /// Only a manager.
    pub const MANAGER: Roles = Roles(Role::Manager as u8);
    /// Only a disk server.
    pub const DISK: Roles = Roles(Role::Disk as u8);
    /// Both, like a single node that became the first of a cluster.
    pub const BOTH: Roles = Roles(Role::Manager as u8 | Role::Disk as u8);

    const ALL: [(Roles, &'static str); 3] =
        [(Roles::MANAGER, "manager"), (Roles::DISK, "disk"), (Roles::BOTH, "manager+disk")];

    /// Decodes the form on the wire; `None` if it is no known set of roles.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().map(|(roles, _)| roles).find(|roles| roles.0 == bits)
    }

    /// Parses the text form (`manager`, `disk`, `manager+disk`).
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == text).map(|(roles, _)| roles)
    }

    /// The form on the wire.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether `role` is included.
    #[must_use]
    pub fn contain(self, role: Role) -> bool {
        self.0 & role as u8 != 0
    }

    /// Whether all roles of `other` are included.
    #[must_use]
    pub fn include(self, other: Roles) -> bool {
        self.0 & other.0 == other.0
    }
}

impl From<Role> for Roles {
    fn from(role: Role) -> Self {
        Self(role as u8)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.into_iter().find(|(roles, _)| roles == self).map_or("no role", |(_, name)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_roles_are_accepted() {
        let known: Vec<_> = (0..=u8::MAX).filter_map(Roles::from_bits).collect();
        assert_eq!(known, [Roles::MANAGER, Roles::DISK, Roles::BOTH]);
        for roles in known {
            assert_eq!(Roles::from_text(&roles.to_string()), Some(roles));
        }
        assert_eq!(Roles::from_text("disk+manager"), None);
        assert!(Roles::BOTH.contain(Role::Disk) && !Roles::DISK.contain(Role::Manager));
        assert!(Roles::BOTH.include(Roles::DISK) && !Roles::DISK.include(Roles::BOTH));
    }
}
