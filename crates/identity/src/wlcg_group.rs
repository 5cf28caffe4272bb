//! Groups in tokens: `/wlcg/xfers`.

use std::fmt;

use types::PRINCIPAL_NAME_MAX;

/// A group of the claim `wlcg.groups` (section 2.1.1): names of ASCII letters, digits, `_`, `.` and `-`, each after a
/// slash, each beginning with a letter or a digit. Groups are compared as they are: a member of `/cms/uscms` is not
/// therefore a member of `/cms` (section 2.2.2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WlcgGroup(Box<str>);

impl WlcgGroup {
    /// Checks `text`; `None` if it is not a group's name, or longer than [`PRINCIPAL_NAME_MAX`] bytes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let names = text.strip_prefix('/')?;
        let proper = text.len() <= PRINCIPAL_NAME_MAX
            && names.split('/').all(|name| {
                name.starts_with(|c: char| c.is_ascii_alphanumeric())
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
            });
        proper.then(|| Self(text.into()))
    }

    /// The text, as in the token.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WlcgGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_follow_the_grammar_of_the_profile() {
        for right in ["/wlcg", "/cms/uscms", "/dteam/VO-Admin", "/a/0_.-"] {
            assert_eq!(WlcgGroup::parse(right).unwrap().as_str(), right);
        }
        for wrong in ["", "/", "wlcg", "/wlcg/", "//wlcg", "/cms//a", "/-a", "/.a", "/a b", "/é", "/a\n"] {
            assert_eq!(WlcgGroup::parse(wrong), None, "{wrong}");
        }
        assert_eq!(WlcgGroup::parse(&format!("/{}", "a".repeat(PRINCIPAL_NAME_MAX))), None);
    }
}
