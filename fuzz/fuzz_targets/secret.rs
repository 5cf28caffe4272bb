//! Shared secrets: any bytes as a credential of `sss`, as what a holder of the key has encrypted, as a keytab and as an offer; and
//! any answer of a mapping service.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Duration;

use identity::MappingReply;
use libfuzzer_sys::fuzz_target;
use sss::{Before, Client, KeyId, Keytab, Now, RANDOM_LEN, Refusal, Replays, check_offer, credential, verify};
use types::Timestamp;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);
static KEYTAB: LazyLock<Keytab> = LazyLock::new(|| {
    Keytab::parse(b"0 N:1 n:a u:anybody g:anygroup k:00112233445566778899aabbccddeeff\n0 N:2 n:b+ k:00112233445566778899aabbccddeeff").unwrap()
});

fuzz_target!(|bytes: &[u8]| {
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    // Nobody guesses a key.
    match verify(&KEYTAB, bytes, peer, NOW) {
        Ok(_) => {}
        Err(why) => assert!(why.to_string().len() < 2000),
    }
    // A client's words, which the key makes a proper credential.
    let text = String::from_utf8_lossy(bytes);
    let (user, groups) = text.split_once('\n').unwrap_or((&text, ""));
    let client = Client { user, groups, address: (peer, 4000).into() };
    let made = credential(KEYTAB.get(KeyId(1)).unwrap(), &client, true, NOW, &[7; RANDOM_LEN]);
    let now = Now { wall: NOW, steady: Duration::from_secs(100) };
    let mut replays = Replays::new(now, Before::None);
    if let Ok(verified) = verify(&KEYTAB, &made, peer, NOW) {
        verified.admit(&mut replays, now).unwrap();
        let again = verify(&KEYTAB, &made, peer, NOW).unwrap().admit(&mut replays, now);
        assert_eq!(again, Err(Refusal::Replayed));
        // A changed byte is noticed, whichever it is, but in what means nothing.
        if let Some(at) = bytes.first().map(|byte| usize::from(*byte)).filter(|at| (8..made.len()).contains(at)) {
            let mut changed = made.clone();
            changed[at] ^= 0x40;
            assert!(verify(&KEYTAB, &changed, peer, NOW).is_err());
        }
    }
    match Keytab::parse(bytes) {
        Ok(keytab) => {
            let _ = keytab.of_client(NOW);
            assert!(keytab.iter().all(|key| keytab.get(key.id) == Some(key)));
        }
        Err(why) => assert!(why.to_string().len() < 2000),
    }
    let _ = check_offer(bytes);
    if let Err(why) = MappingReply::parse(bytes) {
        assert!(why.to_string().len() < 2000);
    }
});
