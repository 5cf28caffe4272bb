//! VOMS attributes: groups and roles in a virtual organization, `/atlas/usatlas/Role=production`.

use std::fmt;

use crate::WlcgGroup;
use crate::shown::shown;

/// Longest attribute, in bytes.
pub const FQAN_MAX: usize = 512;

/// Why a text is not a VOMS attribute.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FqanError {
    /// Too long.
    #[error("the VOMS attribute is {0} bytes long; {FQAN_MAX} is the limit")]
    TooLong(usize),
    /// Another form.
    #[error("`{0}` is not a VOMS attribute of the form /atlas/usatlas or /atlas/Role=production")]
    Form(String),
}

/// A fully qualified attribute name (GFD-I.182, section 3.4.1.4): a group, and perhaps a role in it. `Role=NULL` says that
/// there is no role. `Capability=` after it was given up long ago, and is ignored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fqan {
    group: WlcgGroup,
    role: Option<Box<str>>,
}

impl Fqan {
    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// [`FqanError`].
    pub fn parse(text: &str) -> Result<Self, FqanError> {
        if text.len() > FQAN_MAX {
            return Err(FqanError::TooLong(text.len()));
        }
        let wrong = || FqanError::Form(shown(text));
        let (rest, capability) = text.split_once("/Capability=").map_or((text, None), |(rest, c)| (rest, Some(c)));
        let (group, role) = rest.split_once("/Role=").map_or((rest, None), |(group, role)| (group, Some(role)));
        if ![role, capability].into_iter().flatten().all(is_name) {
            return Err(wrong());
        }
        let group = WlcgGroup::parse(group).ok_or_else(wrong)?;
        Ok(Self { group, role: role.filter(|role| *role != "NULL").map(Into::into) })
    }

    /// The group, which has the form of a group in tokens.
    #[must_use]
    pub fn group(&self) -> &WlcgGroup {
        &self.group
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }
}

/// Whether `text` can name a role.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

impl fmt::Display for Fqan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.group)?;
        self.role.as_ref().map_or(Ok(()), |role| write!(f, "/Role={role}"))
    }
}

/// Which VOMS attributes a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FqanPattern {
    group: WlcgGroup,
    below: bool,
    role: RolePattern,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum RolePattern {
    None,
    Any,
    One(Box<str>),
}

impl FqanPattern {
    /// Parses `text`:
    ///
    /// - `/atlas/usatlas`: this group, without a role;
    /// - `/atlas/Role=production`: this group, with this role;
    /// - `/atlas/Role=*`: this group, with any role or none;
    /// - `/atlas/*`: this group and those below it, with any role or none.
    ///
    /// # Errors
    ///
    /// [`FqanError`].
    pub fn parse(text: &str) -> Result<Self, FqanError> {
        for (end, below) in [("/*", true), ("/Role=*", false)] {
            if let Some(group) = text.strip_suffix(end) {
                let group = WlcgGroup::parse(group).ok_or_else(|| FqanError::Form(shown(text)))?;
                return Ok(Self { group, below, role: RolePattern::Any });
            }
        }
        let Fqan { group, role } = Fqan::parse(text)?;
        Ok(Self { group, below: false, role: role.map_or(RolePattern::None, RolePattern::One) })
    }

    /// Whether the rule is about `fqan`.
    #[must_use]
    pub fn matches(&self, fqan: &Fqan) -> bool {
        let in_group = match fqan.group.as_str().strip_prefix(self.group.as_str()) {
            Some(rest) => rest.is_empty() || (self.below && rest.starts_with('/')),
            None => false,
        };
        in_group
            && match &self.role {
                RolePattern::Any => true,
                RolePattern::None => fqan.role.is_none(),
                RolePattern::One(role) => fqan.role.as_ref() == Some(role),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_parsed_and_shown_without_what_means_nothing() {
        for (text, shown) in [
            ("/atlas", "/atlas"),
            ("/atlas/Role=NULL/Capability=NULL", "/atlas"),
            ("/atlas/Role=NULL", "/atlas"),
            ("/atlas/us-atlas/Role=pilot", "/atlas/us-atlas/Role=pilot"),
            ("/atlas/Role=production/Capability=x", "/atlas/Role=production"),
            ("/atlas/Capability=NULL", "/atlas"),
        ] {
            assert_eq!(Fqan::parse(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "/",
            "atlas",
            "/atlas/",
            "/Role=x",
            "/atlas/Role=",
            "/atlas/Role=a/b",
            "/atlas/Role=a/Role=b",
            "/atlas//x",
            "/atlas/Capability=a/Role=b",
            "/atlas/Role=*",
            "/a b",
        ] {
            assert!(Fqan::parse(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(Fqan::parse(&format!("/{}", "a".repeat(FQAN_MAX))), Err(FqanError::TooLong(_))));
    }

    #[test]
    fn patterns_match_whole_groups_and_whole_roles() {
        let matching = |pattern: &str| {
            let pattern = FqanPattern::parse(pattern).unwrap();
            let all =
                ["/atlas", "/atlas/Role=prod", "/atlas/Role=production", "/atlas/us", "/atlas/us/Role=prod", "/atlasx"];
            all.into_iter().filter(|text| pattern.matches(&Fqan::parse(text).unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(matching("/atlas"), ["/atlas"]);
        assert_eq!(matching("/atlas/Role=NULL"), ["/atlas"]);
        assert_eq!(matching("/atlas/Role=prod"), ["/atlas/Role=prod"]);
        assert_eq!(matching("/atlas/Role=*"), ["/atlas", "/atlas/Role=prod", "/atlas/Role=production"]);
        assert_eq!(
            matching("/atlas/*"),
            ["/atlas", "/atlas/Role=prod", "/atlas/Role=production", "/atlas/us", "/atlas/us/Role=prod"]
        );
        assert_eq!(matching("/cms/*"), Vec::<&str>::new());
        for wrong in ["*", "/*", "/atlas/*/Role=x", "/at*", "/atlas/Role=p*"] {
            assert!(FqanPattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
