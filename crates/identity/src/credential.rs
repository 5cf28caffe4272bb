//! What a client has proved about itself. The code that verified it makes these; here they are mapped to principals.

use std::fmt;
use std::net::IpAddr;

use types::Timestamp;

use crate::shown::shown;
use crate::{DistinguishedName, Fqan, TokenCredential};

/// Longest name of a local user, a secret or a Kerberos principal, in bytes.
const LOGIN_MAX: usize = 255;
/// Longest host name, in bytes.
const HOST_MAX: usize = 253;

/// Why a text is no name of the kind that is needed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CredentialError {
    /// Not a name of a local user or a secret.
    #[error("`{0}` is not a login name: that has 1 to {LOGIN_MAX} printable ASCII characters and no blanks")]
    Login(String),
    /// Not a host name.
    #[error("`{0}` is not a host name or an address")]
    Host(String),
    /// Not a Kerberos principal.
    #[error("`{0}` is not a Kerberos principal of the form ana@EXAMPLE.ORG or host/a.example.org@EXAMPLE.ORG")]
    Kerberos(String),
}

/// What a client has proved about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credential {
    /// A verified bearer token.
    Token(Box<TokenCredential>),
    /// A verified certificate, perhaps with VOMS attributes.
    ///
    /// Rules compare the subject alone, and not who has issued the certificate. So whoever verifies it must enforce which
    /// authority may issue which subjects (the signing policies of the IGTF, or a similar rule), or one authority could issue a
    /// certificate with a subject of another.
    Certificate {
        /// The subject. Proxy certificates have lost their own `CN`.
        subject: DistinguishedName,
        /// The verified VOMS attributes, the primary one first.
        attributes: Vec<Fqan>,
    },
    /// A Kerberos principal.
    Kerberos(KerberosPrincipal),
    /// The holder of a shared secret.
    Secret(SecretCredential),
    /// A user of the same machine, as the kernel says, or of a machine whose word counts.
    LocalUser {
        /// The user.
        name: LoginName,
        /// The groups that the client says it has. They count only where a rule has `{groups}`.
        groups: Vec<LoginName>,
    },
    /// A client that connects from this host.
    Host(HostName),
    /// Nothing.
    Anonymous,
}

/// The holder of a shared secret, which has proved that it has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SecretCredential {
    /// The name of the secret.
    pub name: LoginName,
    /// The user: the one that the secret is for, or, if the secret is for any user, the one that its holder names.
    pub user: Option<LoginName>,
    /// The groups, in the same way.
    pub groups: Vec<LoginName>,
    /// From when on the secret does not count any more.
    pub expires: Option<Timestamp>,
}

/// As in messages and the output of `weir identity test`.
impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(token) => {
                write!(f, "a token of {} ", shown(token.issuer.as_str()))?;
                match &token.subject {
                    Some(subject) => write!(f, "for `{}`", shown(subject))?,
                    None => f.write_str("without subject")?,
                }
                token.groups.iter().take(8).try_for_each(|group| write!(f, " {group}"))
            }
            Self::Certificate { subject, attributes } => {
                write!(f, "the certificate {}", shown(subject.as_str()))?;
                attributes.iter().take(8).try_for_each(|attribute| write!(f, " {attribute}"))
            }
            Self::Kerberos(principal) => write!(f, "the Kerberos principal {principal}"),
            Self::Secret(SecretCredential { name, user, groups, .. }) => {
                write!(f, "the shared secret `{name}`")?;
                if let Some(user) = user {
                    write!(f, " for `{user}`")?;
                }
                groups.iter().take(8).try_for_each(|group| write!(f, " {group}"))
            }
            Self::LocalUser { name, groups } => {
                write!(f, "the local user `{name}`")?;
                groups.iter().take(8).try_for_each(|group| write!(f, " {group}"))
            }
            Self::Host(name) => write!(f, "the host {name}"),
            Self::Anonymous => f.write_str("a client without credentials"),
        }
    }
}

/// The name of a local user or of a shared secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LoginName(Box<str>);

impl LoginName {
    /// Checks `text`.
    ///
    /// # Errors
    ///
    /// [`CredentialError::Login`].
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        let proper = (1..=LOGIN_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        if proper { Ok(Self(text.into())) } else { Err(CredentialError::Login(shown(text))) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LoginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a host, in lower case and without a dot at its end, or its address in one form: IPv4 addresses that are mapped
/// to IPv6 are IPv4 addresses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostName(Box<str>);

impl HostName {
    /// Checks `text`.
    ///
    /// # Errors
    ///
    /// [`CredentialError::Host`].
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.to_canonical().to_string().into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        // What ends in a number, such as `127.1` or `010.0.0.1`, is an address to some programs and none to others.
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        let proper = (1..=HOST_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            && name.split('.').all(|label| !label.is_empty())
            && !name.rsplit('.').next().is_some_and(is_number);
        if proper { Ok(Self(name.into())) } else { Err(CredentialError::Host(shown(text))) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl HostName {
    /// Whether this is an address.
    pub(crate) fn is_address(&self) -> bool {
        self.0.parse::<IpAddr>().is_ok()
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Kerberos principal: a user `ana@EXAMPLE.ORG`, or with an instance `host/a.example.org@EXAMPLE.ORG`. It depends on case.
/// Principals with an escaped character are refused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KerberosPrincipal {
    text: Box<str>,
    at: usize,
}

impl KerberosPrincipal {
    /// Checks `text`.
    ///
    /// # Errors
    ///
    /// [`CredentialError::Kerberos`].
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        let wrong = || CredentialError::Kerberos(shown(text));
        let (name, realm) = text.split_once('@').ok_or_else(wrong)?;
        let proper = text.len() <= LOGIN_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && !realm.is_empty()
            && !realm.contains(['@', '/'])
            && name.split('/').all(|part| !part.is_empty());
        if proper { Ok(Self { text: text.into(), at: name.len() }) } else { Err(wrong()) }
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The user; `None` for a principal with an instance, such as a service.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        Some(&self.text[..self.at]).filter(|name| !name.contains('/'))
    }

    /// The realm.
    #[must_use]
    pub fn realm(&self) -> &str {
        &self.text[self.at + 1..]
    }
}

impl fmt::Display for KerberosPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kerberos_principals_have_a_realm_and_perhaps_an_instance() {
        let principal = |text: &str| KerberosPrincipal::parse(text).unwrap();
        assert_eq!((principal("ana@A.ORG").user(), principal("ana@A.ORG").realm()), (Some("ana"), "A.ORG"));
        assert_eq!(principal("host/a.org@A.ORG").user(), None);
        assert_eq!(principal("ana/admin@A.ORG").user(), None);
        for wrong in ["", "ana", "ana@", "@A", "a@b@C", "a\\@b@C", "/x@A", "a/@A", "a@A/b", "a b@A", "é@A"] {
            assert!(KerberosPrincipal::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn host_names_are_compared_in_lower_case() {
        assert_eq!(HostName::parse("A.Example.ORG.").unwrap().as_str(), "a.example.org");
        assert_eq!(HostName::parse("2001:db8::1").unwrap().as_str(), "2001:db8::1");
        for (text, canonical) in [
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("::FFFF:192.0.2.1", "192.0.2.1"),
            ("::ffff:c000:201", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("::1", "::1"),
            ("0:0:0:0:0:0:0:1", "::1"),
        ] {
            assert_eq!(HostName::parse(text).unwrap().as_str(), canonical);
            assert!(HostName::parse(text).unwrap().is_address());
        }
        assert!(!HostName::parse("1.example.org").unwrap().is_address());
        for wrong in
            ["127.1", "010.0.0.1", "1.2.3.4.", "1.2.3", "256.0.0.1", "1", "a.1", "[::1]", "fe80::1%eth0", "a:b", "1:2"]
        {
            assert!(HostName::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", ".", "a..b", ".a", "::..", "a:..", "a b", "*.a", "a/b", "é"] {
            assert!(HostName::parse(wrong).is_err(), "{wrong}");
        }
        assert!(LoginName::parse("ana").is_ok());
        for wrong in ["", "a b", "a\n", "é", &"a".repeat(256)] {
            assert!(LoginName::parse(wrong).is_err(), "{wrong}");
        }
    }
}
