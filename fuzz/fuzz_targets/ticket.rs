//! Kerberos: any bytes as the credential of a client, as what the holders of keys have encrypted, and as a keytab.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use krb5::{Keytab, Principal, decode_opened, verify};
use libfuzzer_sys::fuzz_target;
use types::Timestamp;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);
/// One key of 32 bytes for `xrootd/a@A`.
const KEYTAB: &[u8] = b"\x05\x02\0\0\0\x3d\0\x02\0\x01A\0\x06xrootd\0\x01a\0\0\0\x01\0\0\0\0\x01\0\x12\0\x2000112233445566778899aabbccddeeff";
static KEYS: LazyLock<(Keytab, Principal)> =
    LazyLock::new(|| (Keytab::parse(KEYTAB).unwrap(), Principal::parse("xrootd/a@A").unwrap()));

fuzz_target!(|bytes: &[u8]| {
    let (keytab, service) = &*KEYS;
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for credential in [bytes.to_vec(), [b"krb5\0", bytes].concat()] {
        // Nobody guesses a key.
        let why = verify(keytab, service, &credential, peer, NOW).unwrap_err();
        assert!(why.to_string().len() < 8000);
    }
    decode_opened(bytes);
    match Keytab::parse(bytes) {
        Ok(keytab) => assert!(keytab.principals().iter().all(|principal| keytab.has(principal))),
        Err(why) => assert!(why.to_string().len() < 2000),
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some(principal) = Principal::parse(text)
    {
        assert_eq!(principal.to_string(), text);
    }
});
