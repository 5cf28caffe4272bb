//! Bearer tokens: any bytes as a token, as the claims of a signed token, as a JWKS document and as a discovery document.
#![no_main]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use identity::{Discovery, Issuer, IssuerSettings, IssuerUrl, KEYS_MAX, KeySet, TokenError, UnverifiedToken};
use libfuzzer_sys::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair};
use types::Timestamp;

static SIGNER: LazyLock<Ed25519KeyPair> = LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap());
static URL: LazyLock<IssuerUrl> = LazyLock::new(|| IssuerUrl::parse("https://a.example").unwrap());
static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let public = URL_SAFE_NO_PAD.encode(SIGNER.public_key());
    let key = serde_json::json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": public});
    KeySet::parse(serde_json::json!({ "keys": [key] }).to_string().as_bytes(), &URL).unwrap()
});
static ISSUER: LazyLock<Issuer> = LazyLock::new(|| {
    let settings = IssuerSettings {
        url: "https://a.example".into(),
        base_paths: vec!["/base".into()],
        audiences: vec!["https://se.example".into()],
        any_audience: true,
        restricted_paths: Vec::new(),
        scopes: true,
        unversioned: false,
        groups: Default::default(),
        without_scopes: Default::default(),
    };
    Issuer::new(settings).unwrap()
});

fuzz_target!(|bytes: &[u8]| {
    let now = Timestamp::from_secs(1_800_000_000);
    if let Ok(token) = UnverifiedToken::parse(bytes) {
        // Nobody signs without the key. The fuzzer cannot have it: it is only in this program.
        assert!(token.verify(&ISSUER, &KEYS, now).is_err());
    }
    let signed =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"a"}"#), URL_SAFE_NO_PAD.encode(bytes));
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(SIGNER.sign(signed.as_bytes())));
    if let Ok(token) = UnverifiedToken::parse(token.as_bytes()) {
        match token.verify(&ISSUER, &KEYS, now) {
            Ok(credential) => {
                assert!(credential.expires > now);
                assert_eq!(credential.issuer.as_str(), "https://a.example");
            }
            Err(TokenError::Signature { .. }) => panic!("an honest signature was refused"),
            Err(why) => assert!(why.to_string().len() < 10_000),
        }
    }
    if let Ok(keys) = KeySet::parse(bytes, &URL) {
        assert!(keys.keys().len() + keys.skipped().len() <= KEYS_MAX);
    }
    if let Ok(discovery) = Discovery::parse(bytes, &URL) {
        assert!(discovery.keys_url().starts_with("https://"));
    }
});
