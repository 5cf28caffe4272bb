//! Names of users and services.

use std::fmt;

/// The longest realm, and the longest part of a name, in bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// Most parts of a name.
pub const NAME_PARTS_MAX: usize = 8;

/// A principal: parts of a name, and a realm.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Principal {
    parts: Vec<String>,
    realm: String,
}

impl Principal {
    /// A principal of these parts. `None`: there are none, or too many, or too long ones.
    #[must_use]
    pub fn new(parts: Vec<String>, realm: String) -> Option<Self> {
        let is_proper = |text: &String| (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.contains('\0');
        let proper = (1..=NAME_PARTS_MAX).contains(&parts.len()) && parts.iter().all(is_proper) && is_proper(&realm);
        proper.then_some(Self { parts, realm })
    }

    /// Parses `xrootd/se.example.org@EXAMPLE.ORG`. Nothing can be escaped. `None`: it is no principal.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, realm) = text.split_once('@')?;
        if realm.contains(['@', '/']) || text.contains('\\') {
            return None;
        }
        Self::new(name.split('/').map(str::to_owned).collect(), realm.to_owned())
    }

    /// The realm.
    #[must_use]
    pub fn realm(&self) -> &str {
        &self.realm
    }
}

/// As MIT Kerberos writes it: `/`, `@` and `\` within a part have a `\` before them. So different principals have different texts.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |text: &str, f: &mut fmt::Formatter<'_>| {
            text.chars().try_for_each(|one| match one {
                '/' | '@' | '\\' => write!(f, "\\{one}"),
                one if one.is_control() => write!(f, "\\{{{:x}}}", u32::from(one)),
                one => write!(f, "{one}"),
            })
        };
        for (number, part) in self.parts.iter().enumerate() {
            if number > 0 {
                f.write_str("/")?;
            }
            escaped(part, f)?;
        }
        f.write_str("@")?;
        escaped(&self.realm, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_principals_have_different_texts() {
        let principal = |parts: &[&str], realm: &str| {
            Principal::new(parts.iter().map(|part| (*part).to_owned()).collect(), realm.to_owned())
        };
        let text = |parts: &[&str], realm: &str| principal(parts, realm).unwrap().to_string();
        assert_eq!(text(&["ana"], "A.ORG"), "ana@A.ORG");
        assert_eq!(text(&["host", "a.org"], "A.ORG"), "host/a.org@A.ORG");
        assert_eq!(text(&["host/a.org"], "A.ORG"), "host\\/a.org@A.ORG");
        assert_eq!(text(&["ana@A.ORG"], "B"), "ana\\@A.ORG@B");
        assert_eq!(text(&["a\\", "b\n"], "B"), "a\\\\/b\\{a}@B");
        for good in ["ana@A.ORG", "host/a.org@A.ORG"] {
            assert_eq!(Principal::parse(good).unwrap().to_string(), good);
        }
        for wrong in ["", "ana", "ana@", "@A", "/x@A", "a/@A", "a@b@C", "a@b/c", "a\\@b@C", "1/2/3/4/5/6/7/8/9@A"] {
            assert!(Principal::parse(wrong).is_none(), "{wrong}");
        }
        assert!(principal(&["a\0"], "A").is_none() && principal(&[&"x".repeat(257)], "A").is_none());
    }
}
