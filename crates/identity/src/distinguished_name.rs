//! Subjects of certificates in the form of `openssl x509 -subject -nameopt compat`: `/DC=ch/DC=cern/CN=ana`.

use std::fmt;

use crate::shown::shown;

/// Longest subject, in bytes.
pub const DISTINGUISHED_NAME_MAX: usize = 2048;

/// Why a text is not a subject.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DistinguishedNameError {
    /// Too long.
    #[error("the certificate subject is {0} bytes long; {DISTINGUISHED_NAME_MAX} is the limit")]
    TooLong(usize),
    /// Another form.
    #[error("`{0}` is not a certificate subject of the form /DC=ch/DC=cern/CN=ana")]
    Form(String),
    /// A control character.
    #[error("the certificate subject `{0}` contains a control character")]
    Control(String),
}

/// The subject of a certificate in one line. Proxy certificates have lost their own `CN` before.
///
/// Two subjects are the same if they are equal byte by byte, except for the names of attributes: these do not depend on
/// case, and `emailAddress`, `Email` and `E` are one, as are `USERID` and `UID`. Values do depend on case.
///
/// In this form a slash in a value looks like the end of an attribute. Certification authorities for the grid do not issue
/// subjects for which this matters, because all software there compares this form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DistinguishedName(Box<str>);

impl DistinguishedName {
    /// Checks `text`, and writes the names of attributes in one way.
    ///
    /// # Errors
    ///
    /// [`DistinguishedNameError`].
    pub fn parse(text: &str) -> Result<Self, DistinguishedNameError> {
        if text.len() > DISTINGUISHED_NAME_MAX {
            return Err(DistinguishedNameError::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(DistinguishedNameError::Control(shown(text)));
        }
        let wrong = || DistinguishedNameError::Form(shown(text));
        let parts = text.strip_prefix('/').ok_or_else(wrong)?;
        let mut name = String::with_capacity(text.len());
        for (position, part) in parts.split('/').enumerate() {
            name.push('/');
            match part.split_once('=').filter(|(attribute, _)| is_attribute(attribute)) {
                Some((attribute, value)) => {
                    name.push_str(&canonical(attribute));
                    name.push('=');
                    name.push_str(value);
                }
                // A slash in the value before it, as in `/CN=host/a.example.org`.
                None if position > 0 => name.push_str(part),
                None => return Err(wrong()),
            }
        }
        // Some names of attributes have become longer.
        if name.len() > DISTINGUISHED_NAME_MAX {
            return Err(DistinguishedNameError::TooLong(name.len()));
        }
        Ok(Self(name.into()))
    }

    /// The text, with the names of attributes written in one way.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether `text` can be the name of an attribute, or its object identifier.
fn is_attribute(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
}

fn canonical(attribute: &str) -> String {
    let upper = attribute.to_ascii_uppercase();
    match upper.as_str() {
        "EMAILADDRESS" | "EMAIL" | "E" => "emailAddress".into(),
        "USERID" | "UID" => "UID".into(),
        _ => upper,
    }
}

impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_compared_by_the_stated_rule() {
        let name = |text: &str| DistinguishedName::parse(text).unwrap();
        let same = |a: &str, b: &str| name(a) == name(b);
        assert!(same("/DC=ch/CN=ana", "/dc=ch/cn=ana"));
        assert!(same("/O=x/emailAddress=a@b", "/O=x/Email=a@b"));
        assert!(same("/O=x/E=a@b", "/O=x/EMAILADDRESS=a@b"));
        assert!(same("/USERID=a", "/UID=a"));
        assert!(!same("/CN=ana", "/CN=Ana"), "values depend on case");
        assert!(!same("/CN=ana", "/CN=ana "));
        assert!(!same("/CN=ana", "/O=ana"));
        assert!(!same("/DC=ch/DC=cern", "/DC=cern/DC=ch"), "and on the order");
        assert_eq!(name("/CN=host/a.example.org").as_str(), "/CN=host/a.example.org");
        assert_eq!(name("/OU=a=b/CN=Ángel").as_str(), "/OU=a=b/CN=Ángel");
        assert_eq!(name("/1.2.3=x").as_str(), "/1.2.3=x");
        for wrong in ["", "/", "ana", "CN=ana", "CN=ana,DC=ch", "/ana", "/=x", "/CN=a\n", "/CN=a\0", "//CN=a"] {
            assert!(DistinguishedName::parse(wrong).is_err(), "{wrong:?}");
        }
        let long = |len: usize| DistinguishedName::parse(&format!("/CN={}", "a".repeat(len - 4)));
        assert!(long(DISTINGUISHED_NAME_MAX).is_ok());
        assert!(matches!(long(DISTINGUISHED_NAME_MAX + 1), Err(DistinguishedNameError::TooLong(_))));
        let grown = DistinguishedName::parse(&"/E=a".repeat(DISTINGUISHED_NAME_MAX / 4));
        assert!(matches!(grown, Err(DistinguishedNameError::TooLong(_))), "each `E` becomes `emailAddress`");
    }
}
