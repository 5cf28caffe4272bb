//! A site: an issuer with its keys, the node's clock, and its settings.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use authentication::{
    Authenticated, AuthenticationError, Authenticator, Clock, FetchTimes, IssuerStatus, Mechanism, Mechanisms, Settings,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use identity::{IssuerSettings, MappingSettings};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use types::Timestamp;

use crate::issuer_server::{Authority, IssuerServer};

pub const AUDIENCE: &str = "https://se.example.org";
/// Where clients are.
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The time of day at which a test begins, in seconds since 1970.
pub const NOW: i64 = 1_800_000_000;

pub fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A clock that stands still until a test moves it.
#[derive(Default)]
pub struct TestClock(Mutex<Duration>);

impl TestClock {
    pub fn pass(&self, time: Duration) {
        *self.0.lock() += time;
    }

    /// Before anything looks at it.
    pub fn back(&self, time: Duration) {
        *self.0.lock() -= time;
    }

    pub fn hours(&self, hours: u64) {
        self.pass(Duration::from_secs(hours * 3600));
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_secs(NOW).plus(*self.0.lock())
    }

    fn steady(&self) -> Duration {
        *self.0.lock()
    }
}

/// A key of an issuer.
pub enum Key {
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl Key {
    pub fn p256() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
    }

    pub fn rsa() -> Self {
        let pem = include_str!("../../identity/tests/keys/only_for_tests_rsa_2048.pem");
        let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        Self::Rsa(RsaKeyPair::from_pkcs8(&STANDARD.decode(body).unwrap()).unwrap())
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// The JSON Web Key.
    pub fn public(&self, id: &str) -> Value {
        match self {
            Self::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": id, "x": base64(x), "y": base64(y), "use": "sig"})
            }
            Self::Rsa(key) => {
                let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "kid": id, "n": base64(n), "e": base64(e)})
            }
        }
    }

    pub fn token(&self, id: &str, claims: &Value) -> String {
        let header = json!({"alg": self.algorithm(), "kid": id, "typ": "JWT"});
        let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match self {
            Self::P256(key) => key.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{signed}.{}", base64(signature))
    }
}

pub struct World {
    pub folder: TempDir,
    pub authority: Authority,
    pub server: IssuerServer,
    pub clock: Arc<TestClock>,
    pub key: Key,
}

impl World {
    /// With an issuer that publishes one key, `first`.
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new();
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        let server = IssuerServer::new(authority.server("localhost"));
        let key = Key::p256();
        server.publish(&[key.public("first")]);
        Self { folder, authority, server, clock: Arc::new(TestClock::default()), key }
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub fn issuer(&self, url: &str) -> IssuerSettings {
        let text = format!("url = '{url}'\nbase_paths = ['/wlcg']\naudiences = ['{AUDIENCE}']");
        toml::from_str(&text).unwrap()
    }

    pub fn settings(&self) -> Settings {
        let url = self.server.url();
        Settings {
            mechanisms: Mechanisms::parse(["ztn", "unix", "host"]).unwrap(),
            issuers: vec![self.issuer(&url)],
            mapping: mapping(&format!(
                "[[identity]]\nissuer = '{url}'\nprincipal = 'wlcg-{{subject}}'\ngroups = ['wlcg']"
            )),
            trust: tls::TrustSource::File(self.path("ca.pem")),
            fetch: FetchTimes {
                connect: Duration::from_secs(5),
                total: Duration::from_secs(10),
                wait: Duration::from_secs(15),
            },
            ..Settings::default()
        }
    }

    pub fn authenticator(&self) -> Authenticator {
        self.with(self.settings())
    }

    pub fn with(&self, settings: Settings) -> Authenticator {
        Authenticator::new(settings, Arc::clone(&self.clock) as _).unwrap()
    }

    /// The claims of a token that is accepted and valid for `hours`.
    pub fn claims(&self, hours: i64) -> Value {
        let now = self.clock.wall().secs();
        json!({
            "iss": self.server.url(), "sub": "ana", "aud": AUDIENCE, "exp": now + hours * 3600, "iat": now, "jti": "t1",
            "wlcg.ver": "1.0", "scope": "storage.read:/"
        })
    }

    pub fn token(&self) -> String {
        self.key.token("first", &self.claims(1))
    }
}

pub fn mapping(text: &str) -> MappingSettings {
    toml::from_str(text).unwrap()
}

/// The name of the principal that a token gets.
pub fn principal(authenticator: &Authenticator, token: &str) -> Result<String, AuthenticationError> {
    authenticator.token(token.as_bytes(), HERE).map(|Authenticated { name, .. }| name.to_string())
}

/// Why a token is refused. Neither the message nor the log may help anybody to use it.
pub fn refusal(authenticator: &Authenticator, token: &str) -> AuthenticationError {
    let error = authenticator.token(token.as_bytes(), HERE).unwrap_err();
    let texts = format!("{error} {error:?}");
    for part in token.split('.').filter(|part| part.len() > 8) {
        assert!(!texts.contains(part), "the error contains a part of the token: {texts}");
    }
    error
}

/// What is known of the only issuer.
pub fn status(authenticator: &Authenticator) -> IssuerStatus {
    let mut issuers = authenticator.snapshot().issuers;
    assert_eq!(issuers.len(), 1);
    issuers.remove(0)
}

/// Accepted and refused logins.
pub fn logins(authenticator: &Authenticator, mechanism: Mechanism) -> (u64, u64) {
    let logins = authenticator.snapshot().logins;
    let found = logins.iter().find(|logins| logins.mechanism == mechanism).unwrap();
    (found.accepted, found.refused)
}

/// Waits until something on another thread is so.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
