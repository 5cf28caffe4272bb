//! An issuer that signs tokens, and the settings that trust it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use identity::{Algorithm, Issuer, IssuerSettings, IssuerUrl, KeySet, TokenCredential, TokenError, UnverifiedToken};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
    RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use types::{PRINCIPAL_NAME_MAX, Timestamp};

pub const ISSUER: &str = "https://wlcg.example/";
pub const AUDIENCE: &str = "https://se.example.org";
/// The time at which all tests of tokens happen, in seconds since 1970.
pub const NOW: i64 = 1_800_000_000;

pub fn now() -> Timestamp {
    Timestamp::from_secs(NOW)
}

pub fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// One key of each kind.
pub struct Signer {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    random: SystemRandom,
}

impl Signer {
    pub fn new() -> Self {
        // This key protects nothing: it is here because making an RSA key takes long, and ring does not do it.
        let pem = include_str!("keys/only_for_tests_rsa_2048.pem");
        let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let rsa = RsaKeyPair::from_pkcs8(&STANDARD.decode(body).unwrap()).unwrap();
        let random = SystemRandom::new();
        let ecdsa = |algorithm| {
            let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap()
        };
        let (p256, p384) = (ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING), ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING));
        let ed25519 = Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).unwrap().as_ref()).unwrap();
        Self { rsa, p256, p384, ed25519, random }
    }

    /// The ID of the key that `algorithm` uses.
    pub fn key_id(algorithm: Algorithm) -> &'static str {
        match algorithm {
            Algorithm::Es256 => "p256",
            Algorithm::Es384 => "p384",
            Algorithm::EdDsa => "ed25519",
            _ => "rsa",
        }
    }

    /// The JSON Web Keys.
    pub fn keys(&self) -> Vec<Value> {
        let point = |key: &EcdsaKeyPair, curve: &str, id: &str| {
            let (x, y) = key.public_key().as_ref()[1..].split_at((key.public_key().as_ref().len() - 1) / 2);
            json!({"kty": "EC", "crv": curve, "kid": id, "x": base64(x), "y": base64(y), "use": "sig"})
        };
        let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        vec![
            json!({"kty": "RSA", "kid": "rsa", "n": base64(n), "e": base64(e)}),
            point(&self.p256, "P-256", "p256"),
            point(&self.p384, "P-384", "p384"),
            json!({"kty": "OKP", "crv": "Ed25519", "kid": "ed25519", "x": base64(self.ed25519.public_key())}),
        ]
    }

    pub fn key_set(&self) -> KeySet {
        key_set(self.keys())
    }

    pub fn sign(&self, algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
        let rsa = |encoding: &'static dyn RsaEncoding| {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(encoding, &self.random, message, &mut signature).unwrap();
            signature
        };
        match algorithm {
            Algorithm::Rs256 => rsa(&RSA_PKCS1_SHA256),
            Algorithm::Rs384 => rsa(&RSA_PKCS1_SHA384),
            Algorithm::Rs512 => rsa(&RSA_PKCS1_SHA512),
            Algorithm::Ps256 => rsa(&RSA_PSS_SHA256),
            Algorithm::Ps384 => rsa(&RSA_PSS_SHA384),
            Algorithm::Ps512 => rsa(&RSA_PSS_SHA512),
            Algorithm::Es256 => self.p256.sign(&self.random, message).unwrap().as_ref().to_vec(),
            Algorithm::Es384 => self.p384.sign(&self.random, message).unwrap().as_ref().to_vec(),
            Algorithm::EdDsa => self.ed25519.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with any header and any claims, signed by `algorithm` whatever the header says.
    pub fn token_with(&self, algorithm: Algorithm, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let signature = self.sign(algorithm, signed.as_bytes());
        format!("{signed}.{}", base64(signature))
    }

    /// An honest token.
    pub fn token(&self, algorithm: Algorithm, claims: &Value) -> String {
        let header = json!({"alg": algorithm.name(), "kid": Self::key_id(algorithm), "typ": "JWT"});
        self.token_with(algorithm, &header, claims)
    }

    /// Signs `claims` and verifies the token.
    pub fn verify(&self, issuer: &Issuer, claims: &Value) -> Result<TokenCredential, TokenError> {
        let keys = key_set_of(issuer.url(), self.keys());
        verify(&self.token(Algorithm::Es256, claims), issuer, &keys)
    }
}

pub fn issuer_url() -> IssuerUrl {
    IssuerUrl::parse(ISSUER).unwrap()
}

/// The keys of [`ISSUER`].
pub fn key_set(keys: Vec<Value>) -> KeySet {
    key_set_of(&issuer_url(), keys)
}

pub fn key_set_of(issuer: &IssuerUrl, keys: Vec<Value>) -> KeySet {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes(), issuer).unwrap()
}

pub fn verify(token: &str, issuer: &Issuer, keys: &KeySet) -> Result<TokenCredential, TokenError> {
    UnverifiedToken::parse(token.as_bytes())?.verify(issuer, keys, now())
}

/// Settings of [`ISSUER`], whose part of the namespace is `/wlcg`.
pub fn settings() -> IssuerSettings {
    let text = format!("url = '{ISSUER}'\nbase_paths = ['/wlcg']\naudiences = ['{AUDIENCE}']");
    toml::from_str(&text).unwrap()
}

pub fn issuer() -> Issuer {
    Issuer::new(settings()).unwrap()
}

/// The claims of a token that is accepted and reads everything.
pub fn wlcg_claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "e1eb758b", "aud": AUDIENCE, "exp": NOW + 3600, "nbf": NOW - 10, "iat": NOW - 10, "jti": "1",
        "wlcg.ver": "1.0", "scope": "openid storage.read:/"
    })
}

/// [`wlcg_claims`] with some claims changed; null removes one.
pub fn with(changes: Value) -> Value {
    let mut claims = wlcg_claims();
    let all = claims.as_object_mut().unwrap();
    for (claim, value) in changes.as_object().unwrap() {
        if value.is_null() {
            all.remove(claim);
        } else {
            all.insert(claim.clone(), value.clone());
        }
    }
    claims
}

/// Longest name, with one byte more.
pub fn too_long_name() -> String {
    "a".repeat(PRINCIPAL_NAME_MAX + 1)
}
