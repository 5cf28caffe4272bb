//! Handshakes between two threads, and with other callers.

use std::os::unix::net::UnixStream;
use std::thread;

use proptest::prelude::*;

use super::*;

const NOW: i64 = 1000;
const HOUR: Duration = Duration::from_secs(3600);

fn token(byte: u8) -> Token {
    Token::new(Secret::new([byte; 32]), NOW, HOUR)
}

fn fresh(byte: u8, now: i64) -> Fresh {
    Fresh { nonce: [byte; 32], now, within: Duration::from_secs(5) }
}

type Outcome = Result<Role, HelloError>;

/// An agent calls a coordinator. Returns the result of both.
fn meet(agent: (Role, &Token, i64), coordinator: (&[Role], &Token, i64)) -> (Outcome, Outcome) {
    let (mut a, mut b) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let calls = scope.spawn(move || {
            let hello = Hello { role: agent.0, wanted: &[Role::Coordinator], token: agent.1 };
            connect(&mut a, "manager:7000", hello, &fresh(1, agent.2))
        });
        let hello = Hello { role: Role::Coordinator, wanted: coordinator.0, token: coordinator.1 };
        let accepted = accept(&mut b, "worker:3", hello, &fresh(2, coordinator.2));
        drop(b);
        (calls.join().unwrap(), accepted)
    })
}

fn both_say(met: &(Outcome, Outcome)) -> (String, String) {
    (met.0.as_ref().unwrap_err().to_string(), met.1.as_ref().unwrap_err().to_string())
}

#[test]
fn peers_with_the_same_token_connect() {
    for token in [token(5), Token::open()] {
        let (caller, listener) = meet((Role::Agent, &token, NOW), (&[Role::Agent, Role::Flow], &token, NOW));
        assert_eq!((caller.unwrap(), listener.unwrap()), (Role::Coordinator, Role::Agent));
    }
}

#[test]
fn each_refusal_is_reported_on_both_sides() {
    let (right, wrong) = (token(5), token(6));
    let met = meet((Role::Agent, &wrong, NOW), (&[Role::Agent], &right, NOW));
    assert!(matches!(
        met,
        (Err(HelloError::Refused { why: PeerRefused::WrongToken, .. }), Err(HelloError::WrongToken { .. }))
    ));
    let (caller, listener) = both_say(&met);
    assert!(caller.contains("manager:7000") && caller.contains("same token file"), "{caller}");
    assert!(listener.contains("worker:3") && listener.contains("another token"), "{listener}");

    let met = meet((Role::Agent, &right, NOW), (&[Role::Agent], &right, NOW + 3600));
    let (caller, listener) = both_say(&met);
    assert!(
        caller.contains("expired by its clock") && listener.contains("expired by this machine's clock"),
        "{caller}"
    );
    let met = meet((Role::Agent, &right, NOW + 3600), (&[Role::Agent], &right, NOW));
    assert!(matches!(met, (Err(HelloError::Expired { .. }), Err(HelloError::Gone { .. }))), "{met:?}");

    let met = meet((Role::Flow, &right, NOW), (&[Role::Agent], &right, NOW));
    let (caller, listener) = both_say(&met);
    assert!(listener.contains("is a flow, and here an agent is expected"), "{listener}");
    assert!(caller.contains("does not accept this role"), "{caller}");

    let met = meet((Role::Agent, &Token::open(), NOW), (&[Role::Agent], &right, NOW));
    let (caller, listener) = both_say(&met);
    assert!(caller.contains("has a token, and this side has none"), "{caller}");
    assert!(listener.contains("has no token, and this side has one"), "{listener}");
}

#[test]
fn another_version_is_reported_on_both_sides() {
    let (token, change) = (token(5), |bytes: &mut [u8]| bytes[8..10].copy_from_slice(&7_u16.to_le_bytes()));
    let hello = Hello { role: Role::Agent, wanted: &[Role::Coordinator, Role::Agent], token: &token };
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let mut newer = greeting(hello, &fresh(9, NOW));
    change(&mut newer);
    a.write_all(&newer).unwrap();
    let refused = accept(&mut b, "worker:3", hello, &fresh(2, NOW)).unwrap_err().to_string();
    assert!(refused.contains("worker:3 speaks version 7") && refused.contains("version 1"), "{refused}");
    // It got our greeting, so it can report the same.
    let mut answer = [0; GREETING_BYTES];
    a.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[..10], b"weirpeer\x01\0");

    let (mut a, mut b) = UnixStream::pair().unwrap();
    b.write_all(&newer).unwrap();
    let refused = connect(&mut a, "manager:7000", hello, &fresh(2, NOW)).unwrap_err();
    assert!(matches!(refused, HelloError::Version { theirs: 7, .. }), "{refused}");
}

/// A recorded proof is sent again. The listener's random bytes are new.
#[test]
fn a_recorded_proof_is_refused() {
    let token = token(5);
    let hello = Hello { role: Role::Coordinator, wanted: &[Role::Agent], token: &token };
    let called = Hello { role: Role::Agent, wanted: &[Role::Coordinator], token: &token };
    let caller = greeting(called, &fresh(1, NOW));
    let overheard = Proofs::of(token.secret(), &caller, &greeting(hello, &fresh(2, NOW)));
    for (nonce, right) in [(2, true), (3, false)] {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        a.write_all(&caller).unwrap();
        a.write_all(overheard.connects.as_bytes()).unwrap();
        a.write_all(&[WELCOME]).unwrap();
        let met = accept(&mut b, "worker:3", hello, &fresh(nonce, NOW));
        assert_eq!(met.is_ok(), right, "{met:?}");
        assert!(right || matches!(met, Err(HelloError::WrongToken { .. })), "{met:?}");
    }
}

/// A listener without the token sends the caller's own proof back.
#[test]
fn a_proof_that_is_sent_back_is_refused() {
    let token = token(5);
    let hello = Hello { role: Role::Agent, wanted: &[Role::Coordinator], token: &token };
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let mirror = thread::spawn(move || {
        let mut theirs = [0; GREETING_BYTES];
        b.read_exact(&mut theirs).unwrap();
        theirs[10] = Role::Coordinator as u8;
        b.write_all(&theirs).unwrap();
        let mut proof = [0; PROOF_BYTES];
        b.read_exact(&mut proof).unwrap();
        b.write_all(&[WELCOME]).unwrap();
        b.write_all(&proof).unwrap();
        let mut verdict = [0];
        b.read_exact(&mut verdict).unwrap();
        verdict[0]
    });
    let met = connect(&mut a, "manager:7000", hello, &fresh(1, NOW));
    assert!(matches!(met, Err(HelloError::WrongToken { .. })), "{met:?}");
    assert_eq!(mirror.join().unwrap(), PeerRefused::WrongToken as u8);
}

#[test]
fn a_stranger_gets_no_answer_and_only_limited_time() {
    let token = token(5);
    let hello = Hello { role: Role::Coordinator, wanted: &[Role::Agent], token: &token };
    let brief = Fresh { within: Duration::from_millis(200), ..fresh(2, NOW) };

    let (mut a, mut b) = UnixStream::pair().unwrap();
    a.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n").unwrap();
    assert!(matches!(accept(&mut b, "p", hello, &brief), Err(HelloError::Stranger { .. })));
    drop(b);
    let mut said = Vec::new();
    let _ = a.read_to_end(&mut said);
    assert_eq!(said, b"");

    // A silent caller, and a slow one: with a byte each 20 ms it would take a second.
    let (_quiet, mut b) = UnixStream::pair().unwrap();
    let begun = Instant::now();
    assert!(matches!(accept(&mut b, "p", hello, &brief), Err(HelloError::Slow { .. })));
    let (mut a, mut b) = UnixStream::pair().unwrap();
    let drips = thread::spawn(move || {
        for byte in MAGIC.iter().chain(&[0; 40]) {
            thread::sleep(Duration::from_millis(20));
            if a.write_all(&[*byte]).is_err() {
                break;
            }
        }
    });
    assert!(matches!(accept(&mut b, "p", hello, &brief), Err(HelloError::Slow { .. })));
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    drop(b);
    drips.join().unwrap();
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, is_ours: bool) {
        let token = token(5);
        let hello = Hello { role: Role::Coordinator, wanted: &[Role::Agent], token: &token };
        let bytes = if is_ours { [&MAGIC[..], &VERSION.to_le_bytes(), &[2, 1], &bytes].concat() } else { bytes };
        let (mut a, mut b) = UnixStream::pair().unwrap();
        a.write_all(&bytes).unwrap();
        a.shutdown(std::net::Shutdown::Write).unwrap();
        prop_assert!(accept(&mut b, "p", hello, &fresh(2, NOW)).is_err());
        let (mut a, mut b) = UnixStream::pair().unwrap();
        b.write_all(&bytes).unwrap();
        b.shutdown(std::net::Shutdown::Write).unwrap();
        prop_assert!(connect(&mut a, "p", hello, &fresh(2, NOW)).is_err());
    }
}
