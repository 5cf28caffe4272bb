//! Certificates of grid users: any bytes as a chain, as VOMS attributes and as the description of a proxy that an honest key
//! has signed, as the files of a directory of authorities, and as a proxy file.
#![no_main]

use std::sync::LazyLock;

use grid::{
    CHAIN_MAX, GridError, Trust, TrustFile, TrustMaterial, UserCredential, VomsServer, certificates_from_pem,
    verify_host, verify_user,
};
use libfuzzer_sys::fuzz_target;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use types::Timestamp;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);
/// ecdsa-with-SHA256.
const ALGORITHM: &[u8] = &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const VOMS: &[u8] = &[6, 10, 0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 5];
const PROXY_INFO: &[u8] = &[6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 14];
const INHERIT_ALL: &[u8] = &[0x30, 12, 0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 21, 1];

static KEY: LazyLock<EcdsaKeyPair> = LazyLock::new(|| {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap()
});
static ROOT: LazyLock<Vec<u8>> = LazyLock::new(|| certificate(&["root"], &["root"], &[]));
static USER: LazyLock<Vec<u8>> = LazyLock::new(|| certificate(&["root"], &["ana"], &[]));
static TRUST: LazyLock<Trust> = LazyLock::new(|| Trust::new(&material()));

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).unwrap().to_be_bytes();
    let head = match content.len() {
        0..=0x7f => vec![tag, len[3]],
        0x80..=0xff => vec![tag, 0x81, len[3]],
        0x100..=0xffff => vec![tag, 0x82, len[2], len[3]],
        _ => vec![tag, 0x83, len[1], len[2], len[3]],
    };
    [head, content.to_vec()].concat()
}

fn name(parts: &[&str]) -> Vec<u8> {
    let parts = parts.iter().map(|part| {
        let attribute = [&[6, 3, 0x55, 4, 3][..], &element(12, part.as_bytes())].concat();
        element(0x31, &element(0x30, &attribute))
    });
    element(0x30, &parts.collect::<Vec<_>>().concat())
}

/// A certificate that the one key has signed. All extensions are critical but that of VOMS.
fn certificate(issuer: &[&str], subject: &[&str], extensions: &[(&[u8], &[u8])]) -> Vec<u8> {
    let point = element(3, &[&[0], KEY.public_key().as_ref()].concat());
    let kind = [0x30, 19, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let mut parts = vec![
        vec![0xa0, 3, 2, 1, 2, 2, 1, 42],
        ALGORITHM.to_vec(),
        name(issuer),
        element(0x30, &[element(23, b"260101000000Z"), element(23, b"280101000000Z")].concat()),
        name(subject),
        element(0x30, &[&kind[..], &point].concat()),
    ];
    let list: Vec<_> = extensions
        .iter()
        .map(|(oid, value)| {
            let critical: &[u8] = if *oid == VOMS { &[] } else { &[1, 1, 0xff] };
            element(0x30, &[oid, critical, &element(4, value)].concat())
        })
        .collect();
    if !list.is_empty() {
        parts.push(element(0xa3, &element(0x30, &list.concat())));
    }
    let signed = element(0x30, &parts.concat());
    let signature = KEY.sign(&SystemRandom::new(), &signed).unwrap();
    element(0x30, &[&signed, ALGORITHM, &element(3, &[&[0], signature.as_ref()].concat())].concat())
}

fn material() -> TrustMaterial {
    let file = TrustFile { stems: vec!["root".into()], name: "root.0".into(), bytes: ROOT.clone() };
    let server = VomsServer { vo: "wlcg".into(), host: "a.example.org".into(), text: "/CN=ana\n/CN=root\n".into() };
    TrustMaterial { authorities: vec![file], voms_servers: vec![server], ..TrustMaterial::default() }
}

fuzz_target!(|bytes: &[u8]| {
    // A chain whose certificates follow each other, as those of a TLS record do: three bytes of length each.
    let mut chain = Vec::new();
    let mut rest = bytes;
    while let Some((&[a, b, c], after)) = rest.split_first_chunk() {
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let (der, after) = after.split_at(len.min(after.len()));
        chain.push(der.to_vec());
        rest = after;
    }
    // Nobody has the key: it is made when the fuzzer starts.
    assert!(verify_user(&chain, &TRUST, NOW).is_err());
    assert!(verify_host(&chain, &TRUST, "a.example.org", NOW).is_err());
    let whole = [bytes.to_vec()];
    let why = verify_user(&whole, &TRUST, NOW).unwrap_err();
    assert!(why.to_string().len() < 10_000);

    let ana = ["ana", "1"];
    let with_voms = certificate(&["ana"], &ana, &[(PROXY_INFO, INHERIT_ALL), (VOMS, bytes)]);
    match verify_user(&[with_voms, USER.clone()], &TRUST, NOW) {
        Ok(user) => {
            assert_eq!(user.subject.as_str(), "/CN=ana");
            assert!(user.fqans.is_empty(), "nobody signs attributes without the key");
            assert!(!user.refused_attributes.is_empty() || bytes == [0x30, 2, 0x30, 0]);
        }
        Err(GridError::TooLong { .. } | GridError::Unreadable { .. }) => {}
        Err(why) => panic!("an honest proxy was refused: {why}"),
    }
    let described = certificate(&["ana"], &ana, &[(PROXY_INFO, bytes)]);
    if let Ok(user) = verify_user(&[described, USER.clone()], &TRUST, NOW) {
        assert_eq!(user.subject.as_str(), "/CN=ana");
    }

    let mut material = material();
    let file = TrustFile { stems: vec!["other".into()], name: "other.0".into(), bytes: bytes.to_vec() };
    material.authorities.push(file.clone());
    material.revocation_lists.push(file.clone());
    material.signing_policies.push(file);
    material.voms_servers[0].text = String::from_utf8_lossy(bytes).into_owned();
    let _ = verify_user(std::slice::from_ref(&*USER), &Trust::new(&material), NOW);

    if let Ok(chain) = certificates_from_pem(bytes) {
        assert!((1..=CHAIN_MAX).contains(&chain.len()));
    }
    if let Ok(credential) = UserCredential::from_pem(bytes) {
        assert!(certificates_from_pem(credential.chain_pem().as_bytes()).as_deref() == Ok(credential.chain()));
    }
});
