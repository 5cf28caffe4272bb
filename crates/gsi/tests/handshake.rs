//! Both sides of the handshake, against each other and against peers that do not keep to it.

use gsi::{
    AgreementError, BucketType, ClientHandshake, ClientSecret, Delegation, Frame, FrameError, HandshakeError, NoRandom,
    Random, SecretError, ServerHandshake, ServerSecret, ServerStep, Step, TAG_LEN, issuer_hash,
};

use crate::peers::*;

const CA: &[u8] = include_bytes!("data/ca.pem");
const ELLIPTIC: &[u8] = include_bytes!("data/elliptic.pem");
const ELLIPTIC_KEY: &[u8] = include_bytes!("data/elliptic.key");
const GROUP: &str = include_str!("data/ffdhe3072.pem");
const MULTI: &[u8] = include_bytes!("data/multi.pem");

struct Nothing;

impl Random for Nothing {
    fn fill(&mut self, _: &mut [u8]) -> Result<(), NoRandom> {
        Err(NoRandom)
    }
}

fn der(pem: &[u8]) -> Vec<u8> {
    x509_parser::pem::parse_x509_pem(pem).unwrap().1.contents
}

/// A handshake up to the client's certificates: the server, and the two frames of the client.
struct Half {
    server: ServerHandshake,
    first: Vec<u8>,
    reply: Vec<u8>,
    second: Vec<u8>,
}

fn half(server: &ServerSecret, client: &ClientSecret, seed: u64) -> Half {
    let random = &mut Numbers(seed);
    let (mut at_client, first) =
        ClientHandshake::begin(client, server.parameters().as_bytes(), Delegation::Never, random).unwrap();
    let mut at_server = ServerHandshake::new();
    let ServerStep::Reply(reply) = at_server.step(server, &first, random).unwrap() else { panic!("no reply") };
    let second = at_client.show(client, &reply, &good, random).unwrap();
    Half { server: at_server, first, reply, second }
}

/// A frame with another content in one bucket, or without it.
fn with(frame: &[u8], kind: BucketType, content: Option<&[u8]>) -> Vec<u8> {
    let frame = Frame::decode(frame).unwrap();
    let buckets = frame.buckets().filter_map(|(known, old)| {
        if known == kind { content.map(|content| (known, content)) } else { Some((known, old)) }
    });
    Frame::new(frame.step, buckets.collect()).encode()
}

#[test]
fn a_client_shows_that_it_holds_the_key_of_its_certificate() {
    let (server, chain) = (server(), [USER, CA].concat());
    for client in [user(), ClientSecret::new(&chain, USER_KEY).unwrap(), ClientSecret::new(OTHER, OTHER_KEY).unwrap()] {
        let mut half = half(&server, &client, 7);
        let ServerStep::Presented(presented) = half.server.step(&server, &half.second, &mut Nothing).unwrap() else {
            panic!("the server wants more");
        };
        let expected = if presented.certificates.len() == 2 { vec![der(USER), der(CA)] } else { vec![der(USER)] };
        assert!(presented.certificates == expected || presented.certificates == [der(OTHER)]);
        assert_eq!(presented.user, None);
    }
}

#[test]
fn the_server_says_what_stock_clients_must_know() {
    assert_eq!(server().parameters(), format!("v:10700,c:ssl,ca:{}.0", issuer_hash(&der(SERVER)).unwrap()));
    // As `openssl x509 -issuer_hash` prints them.
    assert_eq!(issuer_hash(&der(SERVER)).unwrap(), "e93ab527");
    assert_eq!(issuer_hash(&der(MULTI)).unwrap(), "d7a0e5f0");
    assert_eq!(issuer_hash(b"no certificate"), None);
}

#[test]
fn the_second_frame_of_another_handshake_is_refused() {
    let server = server();
    let (mut once, mut again) = (half(&server, &user(), 7), half(&server, &user(), 8));
    let why = again.server.step(&server, &once.second, &mut Nothing).unwrap_err();
    assert!(matches!(why, HandshakeError::Decrypt | HandshakeError::Missing(_)), "{why}");
    // Nor does it count twice in its own.
    once.server.step(&server, &once.second, &mut Nothing).unwrap();
    assert_eq!(once.server.step(&server, &once.second, &mut Nothing), Err(HandshakeError::Over));
}

#[test]
fn a_tag_of_another_handshake_is_refused() {
    // The same numbers everywhere but in the tag: both sides agree on the same key.
    struct Same(Numbers, u8);
    impl Random for Same {
        fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom> {
            self.0.0 = 5;
            self.0.fill(bytes)?;
            if bytes.len() == TAG_LEN {
                bytes.fill(self.1);
            }
            Ok(())
        }
    }
    let (server, client) = (server(), user());
    let begin = |tag: u8| {
        let random = &mut Same(Numbers(0), tag);
        let (mut at_client, first) =
            ClientHandshake::begin(&client, b"v:10700,c:ssl", Delegation::Never, random).unwrap();
        let mut at_server = ServerHandshake::new();
        let ServerStep::Reply(reply) = at_server.step(&server, &first, random).unwrap() else { panic!("no reply") };
        (at_server, at_client.show(&client, &reply, &good, random).unwrap())
    };
    let ((mut one, answer_to_one), (_, answer_to_other)) = (begin(1), begin(2));
    assert_eq!(one.step(&server, &answer_to_other, &mut Nothing), Err(HandshakeError::OtherTag));
    let (mut one, _) = begin(1);
    assert!(one.step(&server, &answer_to_one, &mut Nothing).is_ok());
}

#[test]
fn a_client_with_the_certificate_of_somebody_else_is_refused() {
    let server = server();
    let Half { server: mut at_server, second, .. } = half(&server, &ClientSecret::new(OTHER, OTHER_KEY).unwrap(), 7);
    // Another key in the clear: it has signed nothing of this.
    let key = x509_parser::pem::parse_x509_pem(USER).unwrap().1;
    let key = key.parse_x509().unwrap().public_key().raw.to_vec();
    let key = encoded("PUBLIC KEY", &key);
    let forged = with(&second, BucketType::PUBLIC_KEY, Some(key.as_bytes()));
    let why = at_server.step(&server, &forged, &mut Nothing).unwrap_err();
    assert_eq!(why, HandshakeError::Signature(BucketType::AGREEMENT));
}

fn encoded(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[test]
fn every_part_of_the_frames_is_needed_and_checked() {
    let (server, client) = (server(), user());
    let Half { first, second, .. } = half(&server, &client, 7);
    for kind in [BucketType::MODULE, BucketType::VERSION, BucketType::MAIN] {
        let why = ServerHandshake::new().step(&server, &with(&first, kind, None), &mut Numbers(7)).unwrap_err();
        assert_eq!(why, HandshakeError::Missing(kind));
    }
    let changed = |kind: BucketType, content: &[u8]| {
        ServerHandshake::new().step(&server, &with(&first, kind, Some(content)), &mut Numbers(7))
    };
    assert_eq!(changed(BucketType::VERSION, &10_300_u32.to_be_bytes()), Err(HandshakeError::TooOld(10_300)));
    assert_eq!(changed(BucketType::VERSION, b"x"), Err(HandshakeError::Malformed(BucketType::VERSION)));
    assert_eq!(changed(BucketType::MODULE, b"local"), Err(HandshakeError::NoModule));
    assert!(changed(BucketType::MODULE, b"local|sslnopad\0").is_ok());
    let main = |tag: &[u8]| Frame::new(Step::CLIENT_ASKS, vec![(BucketType::TAG, tag)]).encode();
    for bad in [&b""[..], b"sevenby", b"ninebytes", b"eight\xc3\xa9b"] {
        assert_eq!(changed(BucketType::MAIN, &main(bad)), Err(HandshakeError::NoTag(bad.len())));
    }
    assert!(changed(BucketType::MAIN, &main(b"eight/b.")).is_ok());
    assert!(changed(BucketType::MAIN, &main(&[0, 1, 2, 3, 0x7b, 0x7c, 0x7d, 0x7e])).is_ok());
    assert_eq!(changed(BucketType::MAIN, b"xyz"), Err(HandshakeError::Frame(FrameError::NotGsi)));

    for kind in
        [BucketType::CIPHERS, BucketType::DIGESTS, BucketType::AGREEMENT, BucketType::PUBLIC_KEY, BucketType::MAIN]
    {
        let mut half = half(&server, &client, 7);
        let why = half.server.step(&server, &with(&second, kind, None), &mut Nothing).unwrap_err();
        assert_eq!(why, HandshakeError::Missing(kind));
        let mut other = self::half(&server, &client, 7);
        let old = Frame::decode(&second).unwrap().get(kind).unwrap().to_vec();
        let mut bent = old.clone();
        let middle = bent.len() / 2;
        bent[middle] ^= 0x10;
        let result = other.server.step(&server, &with(&second, kind, Some(&bent)), &mut Nothing);
        assert!(result.is_err(), "{kind}: {result:?}");
    }
}

/// What `key` signs as stock peers do, in texts as long as the blocks of a key or in those given.
fn signed(key: &[u8], texts: &[&[u8]]) -> Vec<u8> {
    use rsa::pkcs8::DecodePrivateKey as _;
    let key = rsa::PrivateKey::from_pkcs8_der(&der(key)).unwrap();
    let blocks = texts.iter().map(|text| key.sign(rsa::Pkcs1v15Sign::new_unprefixed(), text).unwrap());
    blocks.collect::<Vec<_>>().concat()
}

/// The answer to a public part that the client has signed itself.
fn with_public_part(server: &ServerSecret, texts: &[&[u8]]) -> Result<ServerStep, HandshakeError> {
    let Half { server: mut at_server, second, .. } = half(server, &user(), 7);
    let forged = with(&second, BucketType::AGREEMENT, Some(&signed(USER_KEY, texts)));
    at_server.step(server, &forged, &mut Nothing)
}

#[test]
fn a_public_part_that_gives_the_key_away_is_refused() {
    let (server, block) = (server(), 256 - 11);
    let small_group = "-----BEGIN DH PARAMETERS-----\nMAYCAX8CAQI=\n-----END DH PARAMETERS-----\n";
    for (text, why) in [
        (format!("{GROUP}---BPUB---01---EPUB---"), AgreementError::Public),
        (format!("{GROUP}---BPUB---00---EPUB---"), AgreementError::Public),
        (format!("{GROUP}---BPUB---04---EPUB---"), AgreementError::Public),
        (format!("{GROUP}---BPUB---"), AgreementError::Malformed),
        (format!("{GROUP}---BPUB---{}---EPUB---x", "7".repeat(768)), AgreementError::Malformed),
        (format!("---BPUB---{}---EPUB---", "7".repeat(768)), AgreementError::Malformed),
        (format!("{small_group}---BPUB---{}---EPUB---", "7".repeat(768)), AgreementError::OtherGroup),
    ] {
        let texts: Vec<_> = text.as_bytes().chunks(block).collect();
        assert_eq!(with_public_part(&server, &texts), Err(HandshakeError::Agreement(why)), "{text}");
    }
    // With a number that is none of these, only the key does not fit.
    let text = format!("{GROUP}---BPUB---{}---EPUB---", "7".repeat(768));
    let texts: Vec<_> = text.as_bytes().chunks(block).collect();
    let why = with_public_part(&server, &texts).unwrap_err();
    assert!(matches!(why, HandshakeError::Decrypt | HandshakeError::Missing(_)), "{why}");
}

/// A server signs tags for anybody. Once, whoever had the right ones signed could log in with that server's certificate.
#[test]
fn what_a_server_signs_for_anybody_does_not_let_anybody_in_as_that_server() {
    let server = server();
    let ask = |tag: &[u8]| {
        let client = ClientHandshake::begin(&user(), b"v:10700,c:ssl", Delegation::Never, &mut Numbers(7)).unwrap().1;
        let inner = Frame::new(Step::CLIENT_ASKS, vec![(BucketType::TAG, tag)]).encode();
        ServerHandshake::new().step(&server, &with(&client, BucketType::MAIN, Some(&inner)), &mut Numbers(7))
    };
    // Anybody gets these signed: they are short.
    let pieces: [&[u8]; 3] = [b"---BPUB-", b"--4---EP", b"UB---xyz"];
    assert!(pieces.iter().all(|piece| ask(piece).is_ok()));
    // Put together, they are no text that somebody has signed,
    assert_eq!(with_public_part(&server, &pieces), Err(HandshakeError::Signature(BucketType::AGREEMENT)));
    let empty: [&[u8]; 2] = [b"---BPUB---4---EPUB---", b""];
    assert_eq!(with_public_part(&server, &empty), Err(HandshakeError::Signature(BucketType::AGREEMENT)));
    // nor is such a text, from a stock server that signs longer ones, a public part.
    let whole: [&[u8]; 1] = [b"---BPUB---4---EPUB---"];
    assert_eq!(with_public_part(&server, &whole), Err(HandshakeError::Agreement(AgreementError::Malformed)));
    // The tag of a server is not signed by another one, or by itself.
    let Half { server: mut at_server, reply, second, .. } = half(&server, &user(), 7);
    let inner = Frame::decode(&reply).unwrap().get(BucketType::MAIN).unwrap().to_vec();
    let tag = Frame::decode(&inner).unwrap().get(BucketType::TAG).unwrap().to_vec();
    assert_eq!(tag.len(), TAG_LEN);
    assert_eq!(ask(&tag), Err(HandshakeError::MarkedTag));
    // Nobody logs in at a server as that server.
    let key = x509_parser::pem::parse_x509_pem(SERVER).unwrap().1;
    let key = encoded("PUBLIC KEY", key.parse_x509().unwrap().public_key().raw);
    let forged = with(&second, BucketType::PUBLIC_KEY, Some(key.as_bytes()));
    assert_eq!(at_server.step(&server, &forged, &mut Nothing), Err(HandshakeError::OwnKey));
}

#[test]
fn frames_out_of_turn_end_the_handshake() {
    let (server, client) = (server(), user());
    let Half { server: mut at_server, first, second, .. } = half(&server, &client, 7);
    assert_eq!(at_server.step(&server, &first, &mut Nothing), Err(HandshakeError::OutOfTurn(Step::CLIENT_ASKS)));
    assert_eq!(at_server.step(&server, &second, &mut Nothing), Err(HandshakeError::Over));
    let mut new = ServerHandshake::new();
    assert_eq!(new.step(&server, &second, &mut Nothing), Err(HandshakeError::OutOfTurn(Step::CLIENT_SHOWS)));
    let mut new = ServerHandshake::new();
    let why = new.step(&server, b"gsi\0garbage", &mut Nothing).unwrap_err();
    assert_eq!(why, HandshakeError::Frame(FrameError::CutOff));
    assert_eq!(new.step(&server, &first, &mut Nothing), Err(HandshakeError::Over));
    let why = ServerHandshake::new().step(&server, &first, &mut Nothing).unwrap_err();
    assert!(matches!(why, HandshakeError::NoRandom(_) | HandshakeError::Sign(_)), "{why}");
}

#[test]
fn a_client_does_not_show_itself_to_a_wrong_server() {
    let (server, client) = (server(), user());
    let begin =
        || ClientHandshake::begin(&client, b"v:10700,c:ssl,ca:x", Delegation::Never, &mut Numbers(7)).unwrap().0;
    let Half { reply, .. } = half(&server, &client, 7);
    let refused = |_: &[u8]| Err("another host".to_owned());
    let why = begin().show(&client, &reply, &refused, &mut Numbers(9)).unwrap_err();
    assert_eq!(why, HandshakeError::Server("another host".into()));
    // Its check sees the certificate whose key signs.
    let seen = |certificate: &[u8]| if certificate == der(SERVER) { Ok(()) } else { Err(String::new()) };
    assert!(begin().show(&client, &reply, &seen, &mut Numbers(9)).is_ok());
    let forged = with(&reply, BucketType::CERTIFICATES, Some(OTHER));
    let why = begin().show(&client, &forged, &good, &mut Numbers(9)).unwrap_err();
    assert_eq!(why, HandshakeError::Signature(BucketType::AGREEMENT));
    // A reply to another tag.
    let later = ClientHandshake::begin(&client, b"v:10700,c:ssl", Delegation::Never, &mut Numbers(8)).unwrap().0;
    let mut later = later;
    assert_eq!(later.show(&client, &reply, &good, &mut Numbers(9)), Err(HandshakeError::OtherTag));
    assert_eq!(later.show(&client, &reply, &good, &mut Numbers(9)), Err(HandshakeError::Over));
    for kind in [BucketType::AGREEMENT, BucketType::CIPHERS, BucketType::DIGESTS, BucketType::MAIN] {
        let why = begin().show(&client, &with(&reply, kind, None), &good, &mut Numbers(9)).unwrap_err();
        assert_eq!(why, HandshakeError::Missing(kind));
    }
    let old = with(&reply, BucketType::CIPHERS, Some(b"bf-cbc:des-ede3-cbc"));
    assert_eq!(begin().show(&client, &old, &good, &mut Numbers(9)), Err(HandshakeError::Cipher));
    let none = with(&reply, BucketType::DIGESTS, Some(b":"));
    assert_eq!(begin().show(&client, &none, &good, &mut Numbers(9)), Err(HandshakeError::Digest));
    // Servers of XRootD 5.5 have no SHA-256. The client names what they have; nothing is digested.
    for (list, chosen) in [(&b"sha1:md5"[..], &b"sha1"[..]), (b"sha1:sha256", b"sha256")] {
        let old = with(&reply, BucketType::DIGESTS, Some(list));
        let second = begin().show(&client, &old, &good, &mut Numbers(9)).unwrap();
        assert_eq!(Frame::decode(&second).unwrap().get(BucketType::DIGESTS), Some(chosen));
    }
}

#[test]
fn a_client_begins_with_servers_that_it_can_trust_only() {
    let begin =
        |parameters: &[u8]| ClientHandshake::begin(&user(), parameters, Delegation::Never, &mut Numbers(7)).map(|_| ());
    assert_eq!(begin(b"v:10300,c:ssl,ca:x"), Err(HandshakeError::TooOld(10_300)));
    assert_eq!(begin(b"c:ssl"), Err(HandshakeError::Malformed(BucketType::VERSION)));
    assert_eq!(begin(b"v:x"), Err(HandshakeError::Malformed(BucketType::VERSION)));
    assert_eq!(begin(b"v:10400,c:local"), Err(HandshakeError::NoModule));
    assert!(begin(b"v:10400,c:sslnopad,ca:x\0").is_ok());
}

#[test]
fn keys_must_be_of_rsa_and_belong_to_the_certificate() {
    let server = |certificate: &[u8], key: &[u8]| ServerSecret::new(certificate, key, &mut Numbers(1)).map(|_| ());
    assert_eq!(server(SERVER, OTHER_KEY), Err(SecretError::Mismatch));
    assert_eq!(server(b"", SERVER_KEY), Err(SecretError::NoCertificate));
    assert_eq!(server(SERVER, SERVER), Err(SecretError::NoKey));
    assert!(matches!(server(ELLIPTIC, ELLIPTIC_KEY), Err(SecretError::NotRsa(_))));
    assert_eq!(server(ELLIPTIC, SERVER_KEY), Err(SecretError::Certificate));
    let client = |certificate: &[u8], key: &[u8]| ClientSecret::new(certificate, key).map(|_| ());
    assert_eq!(client(USER, OTHER_KEY), Err(SecretError::Mismatch));
    assert_eq!(client(&[OTHER, OTHER_KEY, USER].concat(), &[OTHER, OTHER_KEY, USER].concat()), Ok(()));
    let shown = format!("{:?} {:?}", self::server(), user());
    assert!(!shown.contains("PRIVATE"), "{shown}");
}
