//! Names of users and groups. Files and credentials of other parts have numbers ([`crate::PrincipalId`]); a table in the
//! namespace leads from names to numbers and back.

use std::fmt;

/// Longest name of a user or a group, in bytes.
pub const PRINCIPAL_NAME_MAX: usize = 255;

/// The characters that all names may have beside ASCII letters and digits.
const MARKS: &[u8] = b"._-@+";

/// Whether a principal is a user or a group. A user and a group may have the same name, but never the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PrincipalKind {
    /// A user.
    User,
    /// A group of users.
    Group,
}

impl PrincipalKind {
    /// Both kinds.
    pub const ALL: [PrincipalKind; 2] = [Self::User, Self::Group];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
        }
    }
}

impl fmt::Display for PrincipalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text is not the name of a user or a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrincipalNameError {
    /// Empty or too long.
    #[error("the name of a user or a group has 1 to {PRINCIPAL_NAME_MAX} bytes, and this one has {0}")]
    Length(usize),
    /// A character that the names of users cannot have.
    #[error(
        "`{0}` is not the name of a user: such names consist of ASCII letters, digits and `._-@+`, and begin with a letter, a digit or `_`"
    )]
    OfUser(String),
    /// A character that the names of groups cannot have.
    #[error(
        "`{0}` is not the name of a group: such names consist of ASCII letters, digits and `._-@+`, with `/` between parts, and each part begins with a letter, a digit or `_`"
    )]
    OfGroup(String),
    /// It looks like a number.
    #[error("`{0}` is not the name of a user or a group, because it could be taken for a number")]
    Number(String),
}

/// The name of a user or a group. Both consist of ASCII letters, digits, and `._-@+`. The name of a group may have `/`
/// between its parts, as the groups of tokens have. A name is never a number, so nobody confuses it with one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PrincipalName(Box<str>);

impl PrincipalName {
    /// Checks `text`. It is never altered: two texts never become one name.
    ///
    /// # Errors
    /// [`PrincipalNameError`].
    pub fn parse(kind: PrincipalKind, text: &str) -> Result<Self, PrincipalNameError> {
        // The length comes first, so that no message shows a long text.
        if text.is_empty() || text.len() > PRINCIPAL_NAME_MAX {
            return Err(PrincipalNameError::Length(text.len()));
        }
        let shown = || text.escape_debug().to_string();
        let begins = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let is_allowed = |byte: u8| {
            byte.is_ascii_alphanumeric() || MARKS.contains(&byte) || (byte == b'/' && kind == PrincipalKind::Group)
        };
        if !text.split('/').all(begins) || !text.bytes().all(is_allowed) {
            return Err(match kind {
                PrincipalKind::User => PrincipalNameError::OfUser(shown()),
                PrincipalKind::Group => PrincipalNameError::OfGroup(shown()),
            });
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PrincipalNameError::Number(shown()));
        }
        Ok(Self(text.into()))
    }

    /// Whether a principal of this kind may have the name. Every name can be that of a group; one with a `/` cannot be
    /// that of a user.
    #[must_use]
    pub fn is_for(&self, kind: PrincipalKind) -> bool {
        kind == PrincipalKind::Group || !self.0.contains('/')
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PrincipalKind::{Group, User};

    #[test]
    fn names_are_plain_and_no_numbers() {
        for right in ["ana", "e1eb758b-b73c-4761-bfff-adc793da409c", "ana@example.org", "_svc", "7of9", "a.b+c"] {
            for kind in PrincipalKind::ALL {
                assert_eq!(PrincipalName::parse(kind, right).unwrap().as_str(), right);
            }
        }
        for wrong in ["", "0", "1000", "-a", ".a", "..", "a b", "a/b", "a:b", "é", "a\n", "@a", "a\0"] {
            assert!(PrincipalName::parse(User, wrong).is_err(), "{wrong:?}");
        }
        for right in ["wlcg", "cms/uscms"] {
            assert_eq!(PrincipalName::parse(Group, right).unwrap().as_str(), right);
        }
        for wrong in ["/cms", "cms/", "cms//a", "cms/../x", "0", "a:b"] {
            assert!(PrincipalName::parse(Group, wrong).is_err(), "{wrong:?}");
        }
        assert!(PrincipalName::parse(User, &"a".repeat(PRINCIPAL_NAME_MAX)).is_ok());
        let long = PrincipalName::parse(User, &"a".repeat(PRINCIPAL_NAME_MAX + 1));
        assert_eq!(long, Err(PrincipalNameError::Length(PRINCIPAL_NAME_MAX + 1)));
    }

    #[test]
    fn only_groups_have_slashes() {
        let name = PrincipalName::parse(Group, "cms/uscms").unwrap();
        assert!(name.is_for(Group) && !name.is_for(User));
        assert!(PrincipalKind::ALL.iter().all(|kind| PrincipalName::parse(User, "ana").unwrap().is_for(*kind)));
    }

    #[test]
    fn errors_say_what_is_allowed_and_escape_the_text() {
        let error = PrincipalName::parse(User, "a\u{1b}[1m").unwrap_err().to_string();
        assert!(error.starts_with("`a\\u{1b}[1m` is not the name of a user: such names consist of"), "{error}");
        let error = PrincipalName::parse(Group, "a//b").unwrap_err().to_string();
        assert!(error.contains("is not the name of a group") && error.contains("with `/` between parts"), "{error}");
        let error = PrincipalName::parse(Group, "17").unwrap_err().to_string();
        assert!(error.contains("could be taken for a number"), "{error}");
    }
}
