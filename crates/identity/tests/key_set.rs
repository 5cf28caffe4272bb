//! JWKS documents: which keys are used, and why others are not.

use identity::{Algorithm, JWKS_BYTES_MAX, KEY_ID_MAX, KEYS_MAX, KeySet, KeySetError};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{Signer, base64, issuer_url, key_set};

fn changed(key: &Value, name: &str, value: Value) -> Value {
    let mut key = key.clone();
    key[name] = value;
    key
}

#[test]
fn unusable_keys_are_skipped_and_the_others_are_used() {
    let signer = Signer::new();
    let [rsa, p256, p384, ed25519] = &signer.keys()[..] else { panic!("four keys") };
    let why = |key: Value| {
        let set = key_set(vec![key, p384.clone()]);
        assert_eq!(set.keys().len(), 1, "the other key is used: {:?}", set.keys());
        set.skipped()[0].why
    };
    assert_eq!(why(changed(rsa, "kid", json!(null))), "it has no `kid`, so no token can name it");
    assert!(why(changed(rsa, "kid", json!(""))).contains("kid"));
    assert!(why(changed(rsa, "kid", json!("k".repeat(KEY_ID_MAX + 1)))).contains("kid"));
    for odd in ["a b", "a\nb", "é", "a\u{1b}[1m"] {
        assert!(why(changed(rsa, "kid", json!(odd))).contains("printable"), "{odd:?}");
    }
    assert_eq!(why(changed(rsa, "kid", json!(1))), "a parameter has the wrong type");
    assert_eq!(why(changed(rsa, "use", json!("enc"))), "its `use` is not `sig`");
    assert!(why(changed(rsa, "key_ops", json!(["encrypt"]))).contains("key_ops"));
    assert_eq!(why(changed(rsa, "alg", json!("RSA-OAEP"))), "its `alg` is not supported");
    assert_eq!(why(changed(rsa, "alg", json!("HS256"))), "its `alg` is not supported");
    assert_eq!(why(changed(rsa, "alg", json!("ES256"))), "its `alg` needs another kind of key");
    assert_eq!(why(changed(p256, "alg", json!("ES384"))), "its `alg` needs another kind of key");
    assert!(why(changed(rsa, "d", json!("AQAB"))).contains("private"));
    assert_eq!(why(changed(rsa, "kty", json!("DH"))), "its `kty` is not supported");
    assert_eq!(why(json!({"kty": "oct", "kid": "a", "k": "AAAA"})), "it is symmetric");
    assert_eq!(why(changed(p256, "crv", json!("secp256k1"))), "its `crv` is not supported");
    assert_eq!(why(changed(ed25519, "crv", json!("X25519"))), "its `crv` is not supported");
    assert!(why(changed(p256, "crv", json!("P-384"))).contains("length"));
    assert!(why(changed(p256, "x", json!(null))).contains("missing"));
    assert!(why(changed(p256, "x", json!("AA=="))).contains("length"));
    assert!(why(changed(p256, "x", json!("AA+/"))).contains("base64url"));
    assert!(why(changed(p256, "x", json!("=AAA"))).contains("base64url"));
    assert!(why(changed(rsa, "n", json!(base64([0xff; 128])))).contains("2048"), "1024 bits");
    assert!(why(changed(rsa, "e", json!("AQ"))).contains("exponent"), "the exponent 1 verifies anything");
    assert_eq!(why(json!("key")), "a parameter has the wrong type");
    assert_eq!(why(json!(null)), "a parameter has the wrong type");
}

#[test]
fn padded_parameters_are_read_as_scitokens_admin_create_key_writes_them() {
    let signer = Signer::new();
    let pad = |text: &Value| {
        let text = text.as_str().unwrap();
        json!(format!("{text}{}", "=".repeat((4 - text.len() % 4) % 4)))
    };
    let padded = signer.keys().into_iter().map(|mut key| {
        for name in ["n", "e", "x", "y"] {
            if let Some(value) = key.get(name).map(pad) {
                key[name] = value;
            }
        }
        key
    });
    let padded: Vec<Value> = padded.collect();
    assert!(padded[0]["n"].as_str().unwrap().ends_with("=="), "that of an RSA key with 2048 bits");
    assert!(padded[1]["x"].as_str().unwrap().ends_with('='));
    assert_eq!(key_set(padded).keys(), signer.key_set().keys());
}

#[test]
fn why_a_key_is_skipped_can_be_asked_by_its_id() {
    let signer = Signer::new();
    let [rsa, p256, ..] = &signer.keys()[..] else { panic!("four keys") };
    let set = key_set(vec![
        changed(rsa, "use", json!("enc")),
        changed(p256, "kid", json!("both")),
        json!({"kty": "oct", "kid": "both", "k": "AAAA"}),
        json!({"kty": "oct"}),
    ]);
    assert_eq!(set.skipped_because("rsa"), Some("its `use` is not `sig`"));
    assert_eq!(set.skipped_because("both"), None, "a key with this ID can be used");
    assert_eq!(set.skipped_because("other"), None);
    let shown: Vec<String> = set.skipped().iter().map(ToString::to_string).collect();
    assert_eq!(shown[0], "the key `rsa` cannot be used: its `use` is not `sig`");
    assert_eq!(shown[2], "the key number 4 cannot be used: it has no `kid`, so no token can name it");
}

#[test]
fn a_malformed_document_is_told_about_without_its_content() {
    let document = br#"{"keys": "secret content"}"#;
    let message = KeySet::parse(document, &issuer_url()).unwrap_err().to_string();
    assert!(message.contains("line 1, column") && !message.contains("secret"), "{message}");
}

#[test]
fn other_parameters_and_other_members_are_ignored() {
    let signer = Signer::new();
    let mut key = changed(&signer.keys()[1], "x5c", json!([1, 2]));
    key["key_ops"] = json!(["verify"]);
    key["alg"] = json!("ES256");
    let document = json!({"keys": [key], "more": {"a": 1}}).to_string();
    let set = KeySet::parse(document.as_bytes(), &issuer_url()).unwrap();
    assert_eq!(set.keys()[0].algorithm, Some(Algorithm::Es256));
    assert!(set.contains("p256") && !set.contains("P256"));
    assert!(set.skipped().is_empty());
}

#[test]
fn a_key_id_may_belong_to_keys_of_several_kinds() {
    let signer = Signer::new();
    let keys = signer.keys().iter().map(|key| changed(key, "kid", json!("one"))).collect();
    let set = key_set(keys);
    assert_eq!(set.with_id("one").count(), 4);
    let header = json!({"alg": "EdDSA", "kid": "one"});
    let token = signer.token_with(Algorithm::EdDsa, &header, &crate::common::wlcg_claims());
    assert!(crate::common::verify(&token, &crate::common::issuer(), &set).is_ok());
}

#[test]
fn documents_are_bounded() {
    let key = Signer::new().keys()[3].clone();
    let numbered = |count: usize| {
        let keys: Vec<Value> = (0..count).map(|number| changed(&key, "kid", json!(number.to_string()))).collect();
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes(), &issuer_url())
    };
    assert_eq!(numbered(KEYS_MAX).unwrap().keys().len(), KEYS_MAX);
    assert_eq!(numbered(KEYS_MAX + 1), Err(KeySetError::TooManyKeys(KEYS_MAX + 1)));
    assert_eq!(numbered(0), Ok(key_set(Vec::new())), "an issuer may revoke all");
    let long = vec![b' '; JWKS_BYTES_MAX + 1];
    assert_eq!(KeySet::parse(&long, &issuer_url()), Err(KeySetError::TooLong(JWKS_BYTES_MAX + 1)));
    for wrong in ["", "{}", "[]", r#"{"keys": {}}"#, r#"{"keys": 1}"#, "<html>", &"[".repeat(JWKS_BYTES_MAX)] {
        assert!(matches!(KeySet::parse(wrong.as_bytes(), &issuer_url()), Err(KeySetError::Json(_))));
    }
}

proptest! {
    #[test]
    fn any_key_is_used_or_skipped(
        kty in prop::sample::select(vec!["RSA", "EC", "OKP", "oct", ""]),
        crv in prop::sample::select(vec!["P-256", "P-384", "Ed25519", ""]),
        part in "[A-Za-z0-9_-]{0,140}",
        other in "[A-Za-z0-9_-]{43}",
    ) {
        let key = json!({"kty": kty, "crv": crv, "kid": "a", "n": part, "e": other, "x": other, "y": part});
        let set = key_set(vec![key]);
        prop_assert_eq!(set.keys().len() + set.skipped().len(), 1);
    }
}
