//! Frames of gsi: what they are made of, and what both sides of a handshake do with them.
#![no_main]

use std::sync::LazyLock;

use gsi::test_random::Numbers;
use gsi::{ClientHandshake, ClientSecret, Delegation, Frame, ProxyKey, ServerHandshake, ServerSecret, ServerStep};
use libfuzzer_sys::fuzz_target;

const SERVER: &[u8] = include_bytes!("../../crates/gsi/tests/data/server.pem");
const SERVER_KEY: &[u8] = include_bytes!("../../crates/gsi/tests/data/server.key");
const USER: &[u8] = include_bytes!("../../crates/gsi/tests/data/user.pem");
const USER_KEY: &[u8] = include_bytes!("../../crates/gsi/tests/data/user.key");

const PROXY_KEY: &[u8] = include_bytes!("../../crates/gsi/tests/data/proxy.key");

static SECRETS: LazyLock<(ServerSecret, ClientSecret)> = LazyLock::new(|| {
    let server = ServerSecret::new(SERVER, SERVER_KEY, &mut Numbers(1)).unwrap();
    (server, ClientSecret::new(USER, USER_KEY).unwrap())
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::decode(bytes) {
        let again = frame.encode();
        assert_eq!(Frame::decode(&again).as_ref(), Ok(&frame));
    }
    let (server, client) = &*SECRETS;
    let random = &mut Numbers(7);
    // As the first frame of a client, and as the second.
    let _ = ServerHandshake::new().step(server, bytes, random);
    let parameters = server.parameters();
    let (mut at_client, first) =
        ClientHandshake::begin(client, parameters.as_bytes(), Delegation::Sign, random).unwrap();
    let mut at_server = ServerHandshake::new();
    let Ok(ServerStep::Reply(reply)) = at_server.step(server, &first, random) else { panic!("no reply") };
    // Nobody guesses what was signed.
    assert!(at_server.step(server, bytes, random).is_err());
    assert!(at_client.show(client, bytes, &|_| Ok(()), random).is_err());
    let _ = ClientHandshake::begin(client, bytes, Delegation::Sign, random);
    // As the request for a proxy, and as its answer: as they come, and inside of what both encrypt.
    let (mut at_client, first) =
        ClientHandshake::begin(client, parameters.as_bytes(), Delegation::Sign, random).unwrap();
    let mut at_server = ServerHandshake::new();
    let Ok(ServerStep::Reply(again)) = at_server.step(server, &first, random) else { panic!("no reply") };
    assert_eq!(reply.len(), again.len());
    let second = at_client.show(client, &again, &|_| Ok(()), random).unwrap();
    assert!(matches!(at_server.step(server, &second, random), Ok(ServerStep::Presented(_))));
    at_server.request_proxy(server, ProxyKey::from_pem(PROXY_KEY).unwrap(), random).unwrap();
    assert!(at_server.step(server, bytes, random).is_err());
    assert!(at_client.sign(client, bytes, 1_800_000_000, random).is_err());
    let _ = client.sign_proxy(bytes, 1_800_000_000, random);
    let _ = gsi::issuer_hash(bytes);
});
