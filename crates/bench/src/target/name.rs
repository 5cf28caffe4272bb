//! Names below a run's own folder.

use std::fmt;

/// A name below the folder of a run. It consists of parts of letters, digits, `.`, `-` and `_`, none of which
/// begins with a dot. So no name can lead out of the folder, whatever a driver does with it. The empty name is the
/// folder itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct RelName(String);

impl RelName {
    /// The folder itself.
    pub const HOME: Self = Self(String::new());

    /// Makes a name; `None`: `text` is not valid.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let is_part = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        };
        (text.is_empty() || text.split('/').all(is_part)).then_some(Self(text))
    }

    /// Returns a name with a number: `f000017`.
    #[must_use]
    pub fn numbered(kind: char, number: u64) -> Self {
        let kind = if kind.is_ascii_alphanumeric() { kind } else { 'x' };
        Self(format!("{kind}{number:06}"))
    }

    /// Returns the number of `name`, if it is exactly what [`RelName::numbered`] makes.
    #[must_use]
    pub fn number_of(kind: char, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(kind)?;
        let is_padded = digits.len() == 6 || (digits.len() > 6 && !digits.starts_with('0'));
        let is_number = is_padded && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    }

    /// Returns a name in this directory.
    #[must_use]
    pub fn join(&self, name: &Self) -> Self {
        match (self.0.as_str(), name.0.as_str()) {
            ("", _) => name.clone(),
            (_, "") => self.clone(),
            (folder, name) => Self(format!("{folder}/{name}")),
        }
    }

    /// Returns the name with `suffix`, or the same name if that would not be valid.
    #[must_use]
    pub fn with(&self, suffix: &str) -> Self {
        Self::new(format!("{}{suffix}", self.0)).unwrap_or_else(|| self.clone())
    }

    /// Returns the text, without a slash at either end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out() {
        for wrong in ["..", "a/../b", "/a", "a//b", "a/", ".hidden", "a/.b", "a b", "a\0", "ä"] {
            assert_eq!(RelName::new(wrong), None, "{wrong}");
        }
        for right in ["", "a", "a/b-c/d_1.txt"] {
            assert!(RelName::new(right).is_some(), "{right}");
        }
    }

    #[test]
    fn names_are_joined() {
        let folder = RelName::numbered('d', 3);
        assert_eq!(folder.join(&RelName::numbered('f', 12)).as_str(), "d000003/f000012");
        assert_eq!(RelName::HOME.join(&folder), folder);
        assert_eq!(folder.join(&RelName::HOME), folder);
    }
}
