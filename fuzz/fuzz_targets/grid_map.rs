//! Texts about certificates and others' names: the grid-mapfile, subjects, VOMS attributes, Kerberos principals.
#![no_main]

use identity::{DISTINGUISHED_NAME_MAX, DistinguishedName, Fqan, FqanPattern, GridMap, HostName, KerberosPrincipal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(why) = GridMap::parse(bytes) {
        assert!(why.to_string().len() < 2000);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(name) = DistinguishedName::parse(text) {
        assert_eq!(DistinguishedName::parse(name.as_str()).as_ref(), Ok(&name));
    }
    match DistinguishedName::parse_escaped(text) {
        // Without a backslash, nothing is escaped.
        read if !text.contains('\\') && text.len() <= DISTINGUISHED_NAME_MAX => {
            assert_eq!(read, DistinguishedName::parse(text));
        }
        Ok(name) => assert_eq!(DistinguishedName::parse(name.as_str()).as_ref(), Ok(&name)),
        Err(why) => assert!(why.to_string().len() < 2000),
    }
    if let Ok(fqan) = Fqan::parse(text) {
        assert_eq!(Fqan::parse(&fqan.to_string()).as_ref(), Ok(&fqan));
        assert!(FqanPattern::parse(&fqan.to_string()).unwrap().matches(&fqan));
    }
    let _ = FqanPattern::parse(text);
    if let Ok(principal) = KerberosPrincipal::parse(text) {
        let user = principal.user().map(|user| format!("{user}@{}", principal.realm()));
        assert!(user.is_none_or(|user| user == text));
    }
    if let Ok(host) = HostName::parse(text) {
        assert_eq!(HostName::parse(host.as_str()).as_ref(), Ok(&host));
    }
});
