//! Whether a certificate is that of a host.

use std::net::IpAddr;

use identity::shown;
use types::Timestamp;
use x509_parser::extensions::GeneralName;

use crate::certificate::Certificate;
use crate::error::{GridError, Problem};
use crate::path::{self, SignatureBudget};
use crate::trust::Trust;

/// A server, as a chain of certificates proves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridHost {
    /// When the first certificate of the chain ends.
    pub not_after: Timestamp,
    /// The key of the server's certificate (SubjectPublicKeyInfo, in DER). The server must still prove to have its private key.
    pub public_key: Vec<u8>,
}

/// Verifies the chain of the server that was reached as `host`: its certificate first, perhaps authorities.
///
/// The names are those of subjectAltName. Only a certificate that has none of a host there may have it in its subject:
/// `CN=a.example.org`, or `CN=host/a.example.org` as grid sites have it.
///
/// # Errors
///
/// [`GridError`]: which rule refuses which certificate.
pub fn verify_host(chain: &[Vec<u8>], trust: &Trust, host: &str, now: Timestamp) -> Result<GridHost, GridError> {
    let chain = path::read_chain(chain)?;
    let certificate = &chain[0];
    let refused = |why| Err(certificate.refused(why));
    if certificate.is_proxy() {
        return refused(Problem::ProxyMisplaced("a host has a certificate of its own"));
    }
    let mut used = vec![false; chain.len()];
    used[0] = true;
    let not_after = path::check(&chain, 0, &mut used, &mut SignatureBudget::new(), trust, now)?.ends;
    let usage = &certificate.extensions.extended_key_usage;
    if usage.as_ref().is_some_and(|usage| !usage.any && !usage.server_auth) {
        return refused(Problem::Purpose("servers"));
    }
    let names = names(certificate);
    if !names.iter().any(|name| name.is(host)) {
        let names: Vec<_> = names.iter().take(8).map(HostName::to_string).collect();
        let names = if names.is_empty() { "no host".into() } else { names.join(", ") };
        return refused(Problem::Host { host: shown(host), names });
    }
    Ok(GridHost { not_after, public_key: certificate.key().raw.to_vec() })
}

/// The first host that subjectAltName names.
pub(crate) fn alternative_host(certificate: &Certificate<'_>) -> Option<String> {
    let mut hosts = certificate.extensions.alternative_names.iter().filter_map(host_of);
    hosts.next().map(|host| host.to_string())
}

fn host_of<'a>(name: &GeneralName<'a>) -> Option<HostName<'a>> {
    match name {
        GeneralName::DNSName(name) => Some(HostName::Name(name)),
        GeneralName::IPAddress(address) => Some(HostName::Address(address)),
        _ => None,
    }
}

enum HostName<'a> {
    Name(&'a str),
    Address(&'a [u8]),
}

fn names<'a>(certificate: &'a Certificate<'a>) -> Vec<HostName<'a>> {
    let names: Vec<_> = certificate.extensions.alternative_names.iter().filter_map(host_of).collect();
    if !names.is_empty() {
        return names;
    }
    let common = certificate.subject_name().iter_common_name().last().and_then(|name| name.as_str().ok());
    common.map(|name| HostName::Name(name.rsplit_once('/').map_or(name, |(_, host)| host))).into_iter().collect()
}

impl HostName<'_> {
    fn is(&self, host: &str) -> bool {
        let address = host.parse::<IpAddr>();
        match (self, address) {
            (Self::Name(name), Err(_)) => is_same_host(name, host),
            (Self::Address(bytes), Ok(IpAddr::V4(address))) => *bytes == address.octets(),
            (Self::Address(bytes), Ok(IpAddr::V6(address))) => *bytes == address.octets(),
            // An address in a name is no address (RFC 6125).
            _ => false,
        }
    }
}

impl std::fmt::Display for HostName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&shown(name)),
            Self::Address(_) => f.write_str("an address"),
        }
    }
}

/// Whether `name` of a certificate is about `host`. A wildcard stands for the first part alone (RFC 6125, section 6.4.3).
fn is_same_host(name: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let name = name.strip_suffix('.').unwrap_or(name);
    if host.is_empty() {
        return false;
    }
    match name.strip_prefix("*.") {
        Some(domain) => {
            domain.contains('.') && host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain))
        }
        None => name.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_a_whole() {
        for (name, host, is) in [
            ("a.example.org", "A.example.org", true),
            ("a.example.org.", "a.example.org", true),
            ("a.example.org", "a.example.org.", true),
            ("a.example.org", "b.a.example.org", false),
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "b.a.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.org", "example.org", false),
            ("*", "a", false),
            ("a*.example.org", "ab.example.org", false),
            ("", "", false),
        ] {
            assert_eq!(is_same_host(name, host), is, "{name} {host}");
        }
        assert!(HostName::Address(&[10, 0, 0, 1]).is("10.0.0.1"));
        assert!(!HostName::Name("10.0.0.1").is("10.0.0.1"));
        assert!(!HostName::Name("*.0.0.1").is("10.0.0.1"));
        assert!(!HostName::Address(&[10, 0, 0, 1]).is("10.0.0.2"));
    }
}
