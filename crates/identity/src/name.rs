//! Names of principals and groups. Other parts of weir give them numbers.

use std::fmt;

use crate::shown::shown;

/// Longest name of a principal or a group, in bytes.
pub const NAME_MAX: usize = 255;

/// Why a text is not the name of a principal or a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// Empty or too long.
    #[error("a name has 1 to {NAME_MAX} bytes, and this one has {0}")]
    Length(usize),
    /// A character that names cannot have.
    #[error(
        "`{0}` is not a name: names consist of ASCII letters, digits and `{1}`, and begin with a letter, a digit or `_`"
    )]
    Character(String, &'static str),
    /// It looks like a number.
    #[error("`{0}` is not a name, because it could be taken for a number")]
    Number(String),
}

/// The name of a principal: ASCII letters, digits, and `._-@+`. It is no number, so that nobody confuses it with a
/// principal's number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PrincipalName(Box<str>);

/// The name of a group: as of a principal, but with `/` between names, as groups of tokens have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupName(Box<str>);

fn check(text: &str, more: &'static str) -> Result<(), NameError> {
    if text.is_empty() || text.len() > NAME_MAX {
        return Err(NameError::Length(text.len()));
    }
    let begins = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let proper = |byte: u8| byte.is_ascii_alphanumeric() || more.as_bytes().contains(&byte);
    if !text.split('/').all(begins) || !text.bytes().all(proper) {
        return Err(NameError::Character(shown(text), more));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NameError::Number(shown(text)));
    }
    Ok(())
}

impl PrincipalName {
    /// Checks `text`. It is never altered: two texts never become one name.
    ///
    /// # Errors
    ///
    /// [`NameError`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check(text, "._-@+")?;
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl GroupName {
    /// Checks `text`. It is never altered.
    ///
    /// # Errors
    ///
    /// [`NameError`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check(text, "._-@+/")?;
        Ok(Self(text.into()))
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

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_no_numbers() {
        for right in ["ana", "e1eb758b-b73c-4761-bfff-adc793da409c", "ana@example.org", "_svc", "7of9", "a.b+c"] {
            assert_eq!(PrincipalName::parse(right).unwrap().as_str(), right);
        }
        for wrong in ["", "0", "1000", "-a", ".a", "..", "a b", "a/b", "a:b", "é", "a\n", "@a", "a\0"] {
            assert!(PrincipalName::parse(wrong).is_err(), "{wrong:?}");
        }
        for right in ["wlcg", "cms/uscms"] {
            assert_eq!(GroupName::parse(right).unwrap().as_str(), right);
        }
        for wrong in ["/cms", "cms/", "cms//a", "cms/../x", "0", "a:b"] {
            assert!(GroupName::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(PrincipalName::parse(&"a".repeat(NAME_MAX)).is_ok());
        assert!(PrincipalName::parse(&"a".repeat(NAME_MAX + 1)).is_err());
    }
}
