//! Name constraints (RFC 5280, section 4.2.1.10): for which names an authority may issue.

use std::net::{Ipv4Addr, Ipv6Addr};

use x509_parser::extensions::{GeneralName, GeneralSubtree, NameConstraints};
use x509_parser::x509::X509Name;

use crate::certificate::Certificate;
use crate::name::{NameKey, for_message};

/// The first name of `certificate` that `constraints` does not allow, for a message.
pub(crate) fn violated(constraints: &NameConstraints<'_>, certificate: &Certificate<'_>) -> Option<String> {
    if !certificate.subject.is_empty() {
        let subject = Name::Directory(&certificate.subject);
        if !is_allowed(constraints, &subject) {
            return Some(certificate.subject_for_message());
        }
    }
    // Old certificates have their address in the subject.
    let mut emails = certificate.subject_name().iter_email().filter_map(|email| email.as_str().ok());
    if let Some(wrong) = emails.find(|email| !is_allowed(constraints, &Name::Email(email))) {
        return Some(identity::shown(wrong));
    }
    certificate.extensions.alternative_names.iter().find_map(|name| {
        let (allowed, shown) = match name {
            GeneralName::DirectoryName(directory) => {
                (is_allowed(constraints, &Name::Directory(&NameKey::new(directory))), for_message(directory))
            }
            GeneralName::DNSName(host) => (is_allowed(constraints, &Name::Host(host)), identity::shown(host)),
            GeneralName::RFC822Name(email) => (is_allowed(constraints, &Name::Email(email)), identity::shown(email)),
            GeneralName::IPAddress(address) => {
                (is_allowed(constraints, &Name::Address(address)), address_text(address))
            }
            other => (!is_constrained(constraints, other), "of another form".into()),
        };
        (!allowed).then_some(shown)
    })
}

enum Name<'a> {
    Directory(&'a NameKey),
    Host(&'a str),
    Email(&'a str),
    Address(&'a [u8]),
}

fn subtrees<'a>(list: &'a Option<Vec<GeneralSubtree<'a>>>) -> impl Iterator<Item = &'a GeneralName<'a>> {
    list.iter().flatten().map(|subtree| &subtree.base)
}

fn is_allowed(constraints: &NameConstraints<'_>, name: &Name<'_>) -> bool {
    if subtrees(&constraints.excluded_subtrees).any(|base| is_within(name, base) == Some(true)) {
        return false;
    }
    // Only constraints of the name's own form are about it.
    let mut about_it = subtrees(&constraints.permitted_subtrees).filter_map(|base| is_within(name, base)).peekable();
    about_it.peek().is_none() || about_it.any(|within| within)
}

/// Whether `name` is in the subtree `base`; `None` if the subtree is of another form.
fn is_within(name: &Name<'_>, base: &GeneralName<'_>) -> Option<bool> {
    match (name, base) {
        (Name::Directory(name), GeneralName::DirectoryName(base)) => Some(is_below(name, base)),
        (Name::Host(name), GeneralName::DNSName(base)) => Some(is_in_domain(name, base, true)),
        (Name::Email(name), GeneralName::RFC822Name(base)) => Some(is_email_within(name, base)),
        (Name::Address(name), GeneralName::IPAddress(base)) => Some(is_in_network(name, base)),
        _ => None,
    }
}

fn is_below(name: &NameKey, base: &X509Name<'_>) -> bool {
    name.begins_with(&NameKey::new(base))
}

/// Whether `host` is in the domain `base`. A domain with a dot before it has hosts, and is none.
fn is_in_domain(host: &str, base: &str, itself: bool) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let base = base.trim_end_matches('.').to_ascii_lowercase();
    let (base, itself) = base.strip_prefix('.').map_or((&base[..], itself), |base| (base, false));
    if base.is_empty() || (itself && host == base) {
        return true;
    }
    // A wildcard may stand for any host of its domain.
    let wildcard = host.strip_prefix("*.").is_some_and(|parent| is_in_domain(base, parent, false));
    wildcard || host.strip_suffix(base).is_some_and(|rest| rest.ends_with('.'))
}

fn is_email_within(email: &str, base: &str) -> bool {
    let Some((mailbox, host)) = email.rsplit_once('@') else { return false };
    match base.rsplit_once('@') {
        Some((only, of)) => mailbox == only && host.eq_ignore_ascii_case(of),
        None if base.starts_with('.') => is_in_domain(host, base, false),
        None => host.eq_ignore_ascii_case(base),
    }
}

/// `network` has an address and a mask.
fn is_in_network(address: &[u8], network: &[u8]) -> bool {
    if network.len() != 2 * address.len() {
        return false;
    }
    let (base, mask) = network.split_at(address.len());
    address.iter().zip(base).zip(mask).all(|((address, base), mask)| address & mask == base & mask)
}

/// Whether `constraints` is about names of the form of `name`, of which we know nothing.
fn is_constrained(constraints: &NameConstraints<'_>, name: &GeneralName<'_>) -> bool {
    let same_form = |base: &GeneralName<'_>| std::mem::discriminant(base) == std::mem::discriminant(name);
    subtrees(&constraints.excluded_subtrees).any(same_form) || subtrees(&constraints.permitted_subtrees).any(same_form)
}

fn address_text(address: &[u8]) -> String {
    if let Ok(address) = <[u8; 4]>::try_from(address) {
        Ipv4Addr::from(address).to_string()
    } else if let Ok(address) = <[u8; 16]>::try_from(address) {
        Ipv6Addr::from(address).to_string()
    } else {
        "that is no address".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_addresses_and_networks_are_compared_by_their_parts() {
        for (host, base, is) in [
            ("a.example.org", "example.org", true),
            ("example.org", "example.org", true),
            ("A.Example.ORG", "example.org.", true),
            ("badexample.org", "example.org", false),
            ("example.org", ".example.org", false),
            ("a.example.org", ".example.org", true),
            ("a.b", "", true),
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "b.a.example.org", true),
        ] {
            assert_eq!(is_in_domain(host, base, true), is, "{host} {base}");
        }
        for (email, base, is) in [
            ("ana@example.org", "example.org", true),
            ("ana@a.example.org", "example.org", false),
            ("ana@a.example.org", ".example.org", true),
            ("ana@example.org", "ana@Example.org", true),
            ("Ana@example.org", "ana@example.org", false),
            ("example.org", "example.org", false),
        ] {
            assert_eq!(is_email_within(email, base), is, "{email} {base}");
        }
        assert!(is_in_network(&[10, 1, 2, 3], &[10, 1, 0, 0, 255, 255, 0, 0]));
        assert!(!is_in_network(&[10, 2, 2, 3], &[10, 1, 0, 0, 255, 255, 0, 0]));
        assert!(!is_in_network(&[0; 16], &[10, 1, 0, 0, 255, 255, 0, 0]));
    }
}
