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
    /// A backslash before something else.
    #[error(
        "a backslash in the certificate subject `{0}` must be followed by a quote, a backslash, or `x` and two hexadecimal \
         digits"
    )]
    Escape(String),
    /// The bytes that are escaped are no text.
    #[error("the bytes that are written with `\\x` in the certificate subject `{0}` are not UTF-8")]
    Utf8(String),
}

/// The subject of a certificate in one line. Proxy certificates have lost their own `CN` before. OpenSSL writes a character
/// outside ASCII as the bytes of its UTF-8, `\xC3\xA9`; here it is the character itself.
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

    /// Checks a text that somebody has written, perhaps with the help of OpenSSL: `\"`, `\\` and `\x41` stand for the characters
    /// and bytes that they name.
    ///
    /// # Errors
    ///
    /// [`DistinguishedNameError`].
    pub fn parse_escaped(text: &str) -> Result<Self, DistinguishedNameError> {
        // Four characters for each byte.
        if text.len() > 4 * DISTINGUISHED_NAME_MAX {
            return Err(DistinguishedNameError::TooLong(text.len()));
        }
        let name = unescape(text.as_bytes()).ok_or_else(|| DistinguishedNameError::Escape(shown(text)))?;
        let name = String::from_utf8(name).map_err(|_| DistinguishedNameError::Utf8(shown(text)))?;
        Self::parse(&name)
    }

    /// `text` without the escapes that [`DistinguishedName::parse_escaped`] knows, for patterns of names; `None` if it has others.
    #[must_use]
    pub fn unescaped(text: &str) -> Option<String> {
        unescape(text.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok())
    }

    /// The text, with the names of attributes written in one way.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `text` without escapes; `None` if a backslash is followed by something else than [`DistinguishedName::parse_escaped`] says.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'\\', [byte @ (b'"' | b'\\'), after @ ..]) => (*byte, after),
            (b'\\', [b'x', high, low, after @ ..]) => (digit(*high)? << 4 | digit(*low)?, after),
            (b'\\', _) => return None,
            _ => (byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Some(bytes)
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
    fn written_subjects_can_have_escapes() {
        let written = |text: &str| DistinguishedName::parse_escaped(text);
        let same = |text: &str, plain: &str| assert_eq!(written(text), DistinguishedName::parse(plain), "{text}");
        same(r"/O=caf\xC3\xA9", "/O=café");
        same(r"/O=caf\xc3\xa9/E=a@b", "/O=café/emailAddress=a@b");
        same("/O=café", "/O=café");
        same(r#"/CN=say \"hi\" \\ \x41"#, r#"/CN=say "hi" \ A"#);
        same(r"/CN=\\x41", r"/CN=\x41");
        same(r"/CN=a\x0a", "/CN=a\n");
        for wrong in [r"/CN=a\", r"/CN=a\n", r"/CN=a\x", r"/CN=a\x4", r"/CN=a\xg1", r"/CN=a\x+1", r"/CN=a\X41"] {
            assert!(matches!(written(wrong), Err(DistinguishedNameError::Escape(_))), "{wrong}");
        }
        assert!(matches!(written(r"/CN=a\xE9"), Err(DistinguishedNameError::Utf8(_))), "Latin 1");
        assert!(matches!(
            written(&r"\x41".repeat(DISTINGUISHED_NAME_MAX + 1)),
            Err(DistinguishedNameError::TooLong(_))
        ));
    }

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
