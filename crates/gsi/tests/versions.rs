//! Peers of all versions, and somebody between two peers who changes what they say of theirs.

use gsi::{
    BucketType, ClientHandshake, Delegation, Frame, HandshakeError, ProxyKey, ServerHandshake, ServerStep,
    VERSION_SIGNED, VERSION_TAG_DIGEST,
};

use crate::peers::*;

const PROXY_KEY: &[u8] = include_bytes!("data/proxy.key");
/// During the validity of the certificates.
const NOW: i64 = 1_800_000_000;

fn parameters(version: u32) -> Vec<u8> {
    format!("v:{version},c:ssl").into_bytes()
}

fn with_version(frame: &[u8], version: u32) -> Vec<u8> {
    let frame = Frame::decode(frame).unwrap();
    let version = version.to_be_bytes();
    let buckets = frame.buckets();
    let changed = buckets.map(|(kind, old)| (kind, if kind == BucketType::VERSION { &version[..] } else { old }));
    Frame::new(frame.step, changed.collect()).encode()
}

/// A handshake with delegation, in which each side is told that the other one has this version.
fn handshake(of_server: u32, of_client: u32) -> Result<(), HandshakeError> {
    let (server, client, random) = (server(), user(), &mut Numbers(9));
    let (mut at_client, first) =
        ClientHandshake::begin(&client, &parameters(of_server), Delegation::Sign, random).unwrap();
    let mut at_server = ServerHandshake::new();
    let ServerStep::Reply(reply) = at_server.step(&server, &with_version(&first, of_client), random)? else {
        panic!("no reply")
    };
    let second = at_client.show(&client, &reply, &good, random)?;
    let ServerStep::Presented(_) = at_server.step(&server, &second, random)? else { panic!("no login") };
    let request = at_server.request_proxy(&server, ProxyKey::from_pem(PROXY_KEY).unwrap(), random)?;
    let third = at_client.sign(&client, &request, NOW, random)?;
    let ServerStep::Answered(_) = at_server.step(&server, &third, random)? else { panic!("no answer") };
    Ok(())
}

#[test]
fn somebody_who_lowers_versions_is_noticed() {
    assert_eq!(handshake(VERSION_TAG_DIGEST, VERSION_TAG_DIGEST), Ok(()));
    assert_eq!(handshake(VERSION_TAG_DIGEST + 100, VERSION_TAG_DIGEST + 100), Ok(()));
    for old in [VERSION_SIGNED, 10_600, VERSION_TAG_DIGEST - 1] {
        // Both peers know better, and the server's tag tells the client.
        assert_eq!(handshake(old, old), Err(HandshakeError::Lowered));
        // The two sign different texts.
        assert_eq!(handshake(old, VERSION_TAG_DIGEST), Err(HandshakeError::OtherTag));
        assert_eq!(handshake(VERSION_TAG_DIGEST, old), Err(HandshakeError::OtherTag));
    }
}

/// What was signed, as anybody with the public key can see it.
fn recovered(public: &[u8], signed: &[u8]) -> Vec<u8> {
    use rsa::pkcs8::DecodePublicKey as _;
    let certificate = x509_parser::pem::parse_x509_pem(public).unwrap().1;
    let key = certificate.parse_x509().unwrap().public_key().raw.to_vec();
    let key = rsa::PublicKey::from_public_key_der(&key).unwrap();
    let number = rsa::BoxedUint::from_be_slice_vartime(signed);
    let padded = rsa::hazmat::rsa_encrypt(&key, &number).unwrap().to_be_bytes();
    let filling = padded.iter().rposition(|byte| *byte == 0xff).unwrap();
    padded[filling + 2..].to_vec()
}

#[test]
fn old_clients_get_bare_tags_and_new_ones_digests() {
    let (server, random) = (server(), &mut Numbers(3));
    for version in [VERSION_SIGNED, 10_600, VERSION_TAG_DIGEST, VERSION_TAG_DIGEST + 1] {
        let tag = b"Ab./0189";
        let (_, first) = ClientHandshake::begin(&user(), &parameters(version), Delegation::Never, random).unwrap();
        let inner = Frame::new(Frame::decode(&first).unwrap().step, vec![(BucketType::TAG, tag)]).encode();
        let first = with_version(&first, version);
        let frame = Frame::decode(&first).unwrap();
        let buckets =
            frame.buckets().map(|(kind, old)| (kind, if kind == BucketType::MAIN { &inner[..] } else { old }));
        let first = Frame::new(frame.step, buckets.collect()).encode();
        let ServerStep::Reply(reply) = ServerHandshake::new().step(&server, &first, random).unwrap() else {
            panic!("no reply")
        };
        let main = Frame::decode(&reply).unwrap().get(BucketType::MAIN).unwrap().to_vec();
        let signed = Frame::decode(&main).unwrap().get(BucketType::SIGNED_TAG).unwrap().to_vec();
        let text = recovered(SERVER, &signed);
        if version < VERSION_TAG_DIGEST {
            assert_eq!(text, tag);
        } else {
            // printf 'XRD-GSI-RTAG-v1Ab./0189' | sha256sum
            let digest: String = text.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, "6e45f9b645babe41d46558404e2559358e2bdd0b918ca949d36e7de9e4d34981");
        }
    }
}
