//! Delegation: the server asks for a proxy, and the client signs it.

use gsi::{
    BucketType, ClientHandshake, ClientSecret, Delegation, Frame, HandshakeError, ProxyAnswer, ProxyKey,
    ServerHandshake, ServerSecret, ServerStep, Step,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::peers::*;

const PROXY_KEY: &[u8] = include_bytes!("data/proxy.key");
const LIMITED: &[u8] = include_bytes!("data/limited.pem");
const LAST_PROXY: &[u8] = include_bytes!("data/lastproxy.pem");
const ONE_PROXY: &[u8] = include_bytes!("data/oneproxy.pem");

/// 2027-01-15.
const NOW: i64 = 1_800_000_000;

/// A proxy whose key is that of the tests.
fn proxy(certificate: &[u8]) -> ClientSecret {
    ClientSecret::new(&[certificate, USER].concat(), PROXY_KEY).unwrap()
}

/// The key that the server makes. In a test it is another one than that of the proxies.
fn proxy_key() -> ProxyKey {
    ProxyKey::from_pem(OTHER_KEY).unwrap()
}

/// Both sides, after the client has shown who it is.
struct Both {
    secret: ServerSecret,
    at_server: ServerHandshake,
    at_client: ClientHandshake,
    may_delegate: bool,
}

fn shown(client: &ClientSecret, delegation: Delegation) -> Both {
    let (secret, random) = (server(), &mut Numbers(7));
    let parameters = secret.parameters();
    let (mut at_client, first) = ClientHandshake::begin(client, parameters.as_bytes(), delegation, random).unwrap();
    let mut at_server = ServerHandshake::new();
    let ServerStep::Reply(reply) = at_server.step(&secret, &first, random).unwrap() else { panic!("no reply") };
    let second = at_client.show(client, &reply, &good, random).unwrap();
    let ServerStep::Presented(presented) = at_server.step(&secret, &second, random).unwrap() else {
        panic!("not presented")
    };
    Both { secret, at_server, at_client, may_delegate: presented.may_delegate }
}

impl Both {
    fn request(&mut self) -> Vec<u8> {
        self.at_server.request_proxy(&self.secret, proxy_key(), &mut Numbers(8)).unwrap()
    }

    fn answer(&mut self, frame: &[u8]) -> Result<ServerStep, HandshakeError> {
        self.at_server.step(&self.secret, frame, &mut Numbers(9))
    }
}

/// What the server gets from this client.
fn delegated(client: &ClientSecret) -> Result<Vec<u8>, HandshakeError> {
    let mut both = shown(client, Delegation::Sign);
    assert!(both.may_delegate);
    let request = both.request();
    let answer = both.at_client.sign(client, &request, NOW, &mut Numbers(9))?;
    match both.answer(&answer)? {
        ServerStep::Answered(ProxyAnswer::Signed { proxy, key }) => {
            assert_eq!(*key, proxy_key());
            Ok(proxy)
        }
        other => panic!("{other:?}"),
    }
}

fn parsed(der: &[u8]) -> X509Certificate<'_> {
    X509Certificate::from_der(der).unwrap().1
}

fn pem(text: &[u8]) -> Vec<u8> {
    x509_parser::pem::parse_x509_pem(text).unwrap().1.contents
}

/// The value of `proxyCertInfo`.
fn proxy_info(certificate: &X509Certificate<'_>) -> Vec<u8> {
    let is_it = |oid: String| oid == "1.3.6.1.5.5.7.1.14";
    let found = certificate.extensions().iter().find(|extension| is_it(extension.oid.to_id_string())).unwrap();
    assert!(found.critical);
    found.value.to_vec()
}

const INHERIT_ALL: &[u8] = &[0x30, 0x0a, 6, 8, 0x2b, 6, 1, 5, 5, 7, 21, 1];
const LIMITED_LANGUAGE: &[u8] = &[0x30, 0x0d, 6, 11, 0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

#[test]
fn the_server_gets_a_proxy_for_its_key_and_the_client_says_what_is_in_it() {
    let signed = delegated(&user()).unwrap();
    let (certificate, ana) = (parsed(&signed), pem(USER));
    let ana = parsed(&ana);
    assert_eq!(certificate.public_key().raw, proxy_key().public());
    assert_eq!(certificate.issuer().as_raw(), ana.subject().as_raw());
    assert!(certificate.subject().to_string().starts_with(&format!("{}, CN=", ana.subject())));
    assert_eq!(certificate.validity().not_after.timestamp(), NOW + 24 * 3600, "not as long as the certificate");
    assert_eq!(certificate.validity().not_before.timestamp(), NOW - 300);
    assert_eq!(proxy_info(&certificate)[2..], *INHERIT_ALL);
    let usage = certificate.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.digital_signature() && !usage.value.key_cert_sign());
    // It ends with the certificate at the latest.
    let ends = ana.validity().not_after.timestamp();
    let mut both = shown(&user(), Delegation::Sign);
    let request = both.request();
    let answer = both.at_client.sign(&user(), &request, ends - 100, &mut Numbers(9)).unwrap();
    let Ok(ServerStep::Answered(ProxyAnswer::Signed { proxy, .. })) = both.answer(&answer) else { panic!("none") };
    assert_eq!(parsed(&proxy).validity().not_after.timestamp(), ends);
}

#[test]
fn the_text_of_a_proxy_is_what_a_client_shows() {
    let proxy = delegated(&user()).unwrap();
    let text = proxy_key().proxy_text(&proxy, &[pem(USER)]).unwrap();
    let secret = ClientSecret::new(text.as_bytes(), text.as_bytes()).unwrap();
    let mut both = shown(&secret, Delegation::Sign);
    // Even a proxy of it could be made.
    let request = both.request();
    assert!(both.at_client.sign(&secret, &request, NOW, &mut Numbers(9)).is_ok());
}

#[test]
fn a_proxy_gives_no_more_than_it_has() {
    let limited = delegated(&proxy(LIMITED)).unwrap();
    assert_eq!(proxy_info(&parsed(&limited))[2..], *LIMITED_LANGUAGE);
    let last = delegated(&proxy(ONE_PROXY)).unwrap();
    assert_eq!(proxy_info(&parsed(&last))[2..5], [2, 1, 0], "one level less");
    let why = delegated(&proxy(LAST_PROXY)).unwrap_err();
    assert!(why.to_string().contains("pCPathLenConstraint"), "{why}");
    // The limits of all in the chain count.
    let deeper = |issuer: &[u8]| ClientSecret::new(&[LIMITED, issuer, USER].concat(), PROXY_KEY).unwrap();
    for (issuer, declined) in [(LAST_PROXY, true), (ONE_PROXY, true), (LIMITED, false)] {
        match delegated(&deeper(issuer)) {
            Ok(proxy) => assert!(!declined && proxy_info(&parsed(&proxy))[2..] == *LIMITED_LANGUAGE),
            Err(why) => assert!(declined && why.to_string().contains("pCPathLenConstraint"), "{why}"),
        }
    }
    // One that has ended.
    let mut both = shown(&user(), Delegation::Sign);
    let request = both.request();
    let ends = parsed(&pem(USER)).validity().not_after.timestamp();
    let why = both.at_client.sign(&user(), &request, ends, &mut Numbers(9)).unwrap_err();
    assert!(why.to_string().contains("has ended"), "{why}");
}

#[test]
fn a_client_that_does_not_allow_it_is_not_asked_and_signs_nothing() {
    let mut both = shown(&user(), Delegation::Never);
    assert!(!both.may_delegate);
    let asked = both.at_server.request_proxy(&both.secret, proxy_key(), &mut Numbers(8));
    assert_eq!(asked, Err(HandshakeError::NoDelegation));
    // It is asked all the same.
    let request = shown(&user(), Delegation::Sign).request();
    let why = both.at_client.sign(&user(), &request, NOW, &mut Numbers(9));
    assert_eq!(why, Err(HandshakeError::NoDelegation));
    // A request from another handshake.
    let mut other = shown(&ClientSecret::new(OTHER, OTHER_KEY).unwrap(), Delegation::Sign);
    let why = other.at_client.sign(&user(), &request[..20], NOW, &mut Numbers(9)).unwrap_err();
    assert!(matches!(why, HandshakeError::Frame(_)), "{why}");
}

#[test]
fn frames_out_of_turn_are_refused() {
    let (secret, client, random) = (server(), user(), &mut Numbers(7));
    let mut both = shown(&client, Delegation::Sign);
    let request = both.request();
    let answer = both.at_client.sign(&client, &request, NOW, &mut Numbers(9)).unwrap();
    // Twice at the client.
    let again = both.at_client.sign(&client, &request, NOW, &mut Numbers(9));
    assert_eq!(again, Err(HandshakeError::OutOfTurn(Step::SERVER_REQUESTS)));
    // Without a request: before anything, and after the certificates.
    let out = Err(HandshakeError::OutOfTurn(Step::CLIENT_SIGNS));
    assert_eq!(ServerHandshake::new().step(&secret, &answer, random), out);
    assert_eq!(shown(&client, Delegation::Sign).answer(&answer), out);
    assert_eq!(shown(&client, Delegation::Never).answer(&answer), Err(HandshakeError::Over));
    // Twice at the server.
    assert!(matches!(both.answer(&answer), Ok(ServerStep::Answered(_))));
    assert_eq!(both.answer(&answer), Err(HandshakeError::Over));
    // Certificates where a proxy is due.
    let mut both = shown(&client, Delegation::Sign);
    both.request();
    let (_, first) = ClientHandshake::begin(&client, b"v:10700,c:ssl", Delegation::Sign, random).unwrap();
    assert_eq!(both.answer(&first), Err(HandshakeError::OutOfTurn(Step::CLIENT_ASKS)));
    // The client gets a request before it has shown anything.
    let (mut early, _) = ClientHandshake::begin(&client, b"v:10700,c:ssl", Delegation::Sign, random).unwrap();
    let why = early.sign(&client, &request, NOW, random);
    assert_eq!(why, Err(HandshakeError::OutOfTurn(Step::SERVER_REQUESTS)));
}

#[test]
fn what_was_encrypted_for_another_handshake_is_worth_nothing() {
    let client = user();
    let mut one = shown(&client, Delegation::Sign);
    let request = one.request();
    let answer = one.at_client.sign(&client, &request, NOW, &mut Numbers(9)).unwrap();
    let mut other = {
        // With other numbers.
        let (secret, random) = (server(), &mut Numbers(99));
        let (mut at_client, first) =
            ClientHandshake::begin(&client, secret.parameters().as_bytes(), Delegation::Sign, random).unwrap();
        let mut at_server = ServerHandshake::new();
        let ServerStep::Reply(reply) = at_server.step(&secret, &first, random).unwrap() else { panic!("no reply") };
        let second = at_client.show(&client, &reply, &good, random).unwrap();
        at_server.step(&secret, &second, random).unwrap();
        Both { secret, at_server, at_client, may_delegate: true }
    };
    let why = other.at_client.sign(&client, &request, NOW, &mut Numbers(9)).unwrap_err();
    assert!(matches!(why, HandshakeError::Decrypt | HandshakeError::Missing(_)), "{why}");
    other.request();
    let why = other.answer(&answer).unwrap_err();
    assert!(matches!(why, HandshakeError::Decrypt | HandshakeError::Missing(_)), "{why}");
    // Each changed byte shows, or changes nothing that counts.
    let mut both = shown(&client, Delegation::Sign);
    let request = both.request();
    let main = Frame::decode(&request).unwrap().get(BucketType::MAIN).unwrap().to_vec();
    let cut = &main[..main.len() - 16];
    let cut = Frame::new(Step::SERVER_REQUESTS, vec![(BucketType::MAIN, cut)]).encode();
    let why = both.at_client.sign(&client, &cut, NOW, &mut Numbers(9)).unwrap_err();
    assert!(matches!(why, HandshakeError::Decrypt | HandshakeError::Missing(_)), "{why}");
}

#[test]
fn what_is_no_request_for_this_client_is_not_signed() {
    let sign = |client: &ClientSecret, request: &[u8]| client.sign_proxy(request, NOW, &mut Numbers(9)).map(drop);
    let malformed = Err(HandshakeError::Malformed(BucketType::REQUEST));
    // Made by `openssl req -new` for /DC=org/DC=example/CN=ana/CN=7, without extensions.
    let request = include_bytes!("data/request.pem");
    assert_eq!(sign(&user(), request), Ok(()));
    // Stock servers have a number with a sign.
    assert_eq!(sign(&user(), include_bytes!("data/negative-request.pem")), Ok(()));
    let why = sign(&user(), include_bytes!("data/short-request.pem")).unwrap_err().to_string();
    assert!(why.contains("2048 bits"), "{why}");
    for subject in [&include_bytes!("data/word-request.pem")[..], include_bytes!("data/unit-request.pem")] {
        let why = sign(&user(), subject).unwrap_err().to_string();
        assert!(why.contains("another subject"), "{why}");
    }
    for wrong in [&b""[..], USER, &request[..300], &request.repeat(2), &request.repeat(40)] {
        assert_eq!(sign(&user(), wrong), malformed);
    }
    // Another user, and the proxy of this one: the subject is not one below theirs.
    for client in [ClientSecret::new(OTHER, OTHER_KEY).unwrap(), proxy(ONE_PROXY)] {
        let why = sign(&client, request).unwrap_err().to_string();
        assert!(why.contains("another subject"), "{why}");
    }
    let why = sign(&user(), include_bytes!("data/elliptic-request.pem")).unwrap_err().to_string();
    assert!(why.contains("not one of RSA"), "{why}");
}

#[test]
fn options_of_another_length_are_refused() {
    let (secret, random) = (server(), &mut Numbers(7));
    let (_, first) = ClientHandshake::begin(&user(), b"v:10700,c:ssl", Delegation::Sign, random).unwrap();
    let frame = Frame::decode(&first).unwrap();
    for wrong in [&b""[..], b"\0\0\x05", b"\0\0\0\0\x05"] {
        let buckets = frame.buckets().map(|(kind, content)| match kind {
            BucketType::OPTIONS => (kind, wrong),
            _ => (kind, content),
        });
        let forged = Frame::new(frame.step, buckets.collect()).encode();
        let why = ServerHandshake::new().step(&secret, &forged, random);
        assert_eq!(why, Err(HandshakeError::Malformed(BucketType::OPTIONS)));
    }
}

#[test]
fn keys_are_made_and_not_shown() {
    let began = std::time::Instant::now();
    let key = ProxyKey::generate(&mut Numbers(5)).unwrap();
    println!("a key in {:?}", began.elapsed());
    assert_ne!(key, proxy_key());
    let text = key.proxy_text(&pem(USER), &[]).unwrap();
    assert_eq!(ProxyKey::from_pem(text.as_bytes()).unwrap(), key);
    assert!(!format!("{key:?}").contains("PRIVATE"));
}
