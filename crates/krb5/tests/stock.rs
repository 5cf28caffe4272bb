//! Credentials that the plugin `krb5` of xrootd 5.5.3 has made, with a KDC and a keytab of MIT Kerberos 1.20.1. The keys were made for this
//! and are nowhere else.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use krb5::{Before, Keytab, Now, Principal, Refusal, Replays, verify};
use types::Timestamp;

const KEYTAB: &[u8] = include_bytes!("data/stock.keytab");
const CREDENTIALS: [(&str, &[u8]); 4] = [
    ("aes128-cts-hmac-sha1-96", include_bytes!("data/aes128-cts-hmac-sha1-96.credential")),
    ("aes256-cts-hmac-sha1-96", include_bytes!("data/aes256-cts-hmac-sha1-96.credential")),
    ("aes128-cts-hmac-sha256-128", include_bytes!("data/aes128-cts-hmac-sha256-128.credential")),
    ("aes256-cts-hmac-sha384-192", include_bytes!("data/aes256-cts-hmac-sha384-192.credential")),
];
/// When they were recorded.
const THEN: i64 = 1_795_997_829;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn service(name: &str) -> Principal {
    Principal::parse(&format!("xrootd/{name}@EXAMPLE.ORG")).unwrap()
}

#[test]
fn credentials_of_the_stock_client_count_once_at_their_time() {
    let keytab = Keytab::parse(KEYTAB).unwrap();
    assert_eq!(keytab.principals().len(), CREDENTIALS.len());
    let now = |wall| Now { wall: Timestamp::from_secs(wall), steady: Duration::from_secs(1) };
    let mut replays = Replays::new(Duration::from_secs(0), Before::None);
    for (name, credential) in CREDENTIALS {
        let at = |wall| verify(&keytab, &service(name), credential, HERE, Timestamp::from_secs(wall));
        let client = at(THEN).unwrap().admit(&mut replays, now(THEN)).unwrap();
        assert_eq!(client.principal.to_string(), "ana@EXAMPLE.ORG");
        // The ticket was made for an hour.
        assert!((THEN + 3500..=THEN + 3600).contains(&client.expires.secs()), "{:?}", client.expires);
        assert_eq!(at(THEN).unwrap().admit(&mut replays, now(THEN)), Err(Refusal::Replayed));
        assert!(matches!(at(THEN + 310), Err(Refusal::Skew(_))));
        assert!(matches!(at(THEN - 310), Err(Refusal::Skew(_))));
    }
}

#[test]
fn they_count_for_their_service_and_with_its_key_only() {
    let keytab = Keytab::parse(KEYTAB).unwrap();
    let at = Timestamp::from_secs(THEN);
    let [(one, credential), (other, _), ..] = CREDENTIALS;
    assert!(matches!(verify(&keytab, &service(other), credential, HERE, at), Err(Refusal::Service { .. })));
    // The keytab with a changed key: the last bytes of an entry are those of the key, and four of its version.
    let mut changed = KEYTAB.to_vec();
    let len = u32::from_be_bytes(*KEYTAB[2..].first_chunk().unwrap()) as usize;
    changed[2 + 4 + len - 5] ^= 1;
    let changed = Keytab::parse(&changed).unwrap();
    assert_eq!(verify(&changed, &service(one), credential, HERE, at), Err(Refusal::Ticket));
    // Without the entry.
    let without = Keytab::parse(&[&KEYTAB[..2], &KEYTAB[2 + 4 + len..]].concat()).unwrap();
    assert!(matches!(verify(&without, &service(one), credential, HERE, at), Err(Refusal::NoKey { .. })));
}
