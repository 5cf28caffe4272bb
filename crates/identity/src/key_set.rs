//! The keys of an issuer, from its JWKS document (RFC 7517).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::shown::{shown, shown_json};
use crate::{Algorithm, IssuerUrl, PublicKey};

/// Longest JWKS document, in bytes.
pub const JWKS_BYTES_MAX: usize = 256 << 10;
/// Most keys in a JWKS document.
pub const KEYS_MAX: usize = 64;
/// Longest key ID, in bytes.
pub const KEY_ID_MAX: usize = 255;

/// Why a JWKS document is not a set of keys.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeySetError {
    /// More than [`JWKS_BYTES_MAX`] bytes.
    #[error("the JWKS document is {0} bytes long; {JWKS_BYTES_MAX} is the limit")]
    TooLong(usize),
    /// Not JSON, or without `keys`.
    #[error("the JWKS document is not a JSON object with an array `keys`: {0}")]
    Json(String),
    /// More than [`KEYS_MAX`] keys.
    #[error("the JWKS document has {0} keys; {KEYS_MAX} is the limit: the issuer must remove old ones")]
    TooManyKeys(usize),
}

/// A key that can verify tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerificationKey {
    /// Its ID, which tokens name in `kid`.
    pub id: Box<str>,
    /// The only algorithm that the issuer uses it with, if it says so.
    pub algorithm: Option<Algorithm>,
    /// The key.
    pub key: PublicKey,
}

/// A key that no token can be verified with here, and why. Such keys are normal: issuers publish encryption keys, and new
/// kinds of keys, beside those that are needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkippedKey {
    /// Its ID, if it has a proper one.
    pub id: Option<Box<str>>,
    /// Its position in the document, from 1.
    pub position: usize,
    /// The reason.
    pub why: &'static str,
}

impl fmt::Display for SkippedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => write!(f, "the key `{}`", shown(id))?,
            None => write!(f, "the key number {}", self.position)?,
        }
        write!(f, " cannot be used: {}", self.why)
    }
}

/// Whether `text` can be the ID of a key: printable ASCII of a bounded length, because it is logged. RFC 7517 leaves the form
/// to issuers, and all use such IDs.
pub(crate) fn is_key_id(text: &str) -> bool {
    (1..=KEY_ID_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The usable keys of an issuer at one time. They verify tokens of this issuer only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySet {
    issuer: IssuerUrl,
    keys: Vec<VerificationKey>,
    skipped: Vec<SkippedKey>,
}

impl KeySet {
    /// Reads the JWKS document of `issuer`. Unusable keys are skipped and listed. An issuer may publish an empty set: it then revokes all
    /// tokens (section 4.4).
    ///
    /// # Errors
    ///
    /// [`KeySetError`].
    pub fn parse(document: &[u8], issuer: &IssuerUrl) -> Result<Self, KeySetError> {
        if document.len() > JWKS_BYTES_MAX {
            return Err(KeySetError::TooLong(document.len()));
        }
        let Document { keys: all } =
            serde_json::from_slice(document).map_err(|why| KeySetError::Json(shown_json(&why)))?;
        if all.len() > KEYS_MAX {
            return Err(KeySetError::TooManyKeys(all.len()));
        }
        let mut set = Self { issuer: issuer.clone(), keys: Vec::new(), skipped: Vec::new() };
        for (index, value) in all.into_iter().enumerate() {
            let id = value.get("kid").and_then(serde_json::Value::as_str).filter(|id| is_key_id(id)).map(Into::into);
            let read = serde_json::from_value(value).map_err(|_| "a parameter has the wrong type");
            match read.and_then(|key: WrittenKey| key.usable()) {
                Ok(key) => set.keys.push(key),
                Err(why) => set.skipped.push(SkippedKey { id, position: index + 1, why }),
            }
        }
        Ok(set)
    }

    /// Whose keys they are.
    #[must_use]
    pub fn issuer(&self) -> &IssuerUrl {
        &self.issuer
    }

    /// The usable keys.
    #[must_use]
    pub fn keys(&self) -> &[VerificationKey] {
        &self.keys
    }

    /// The other keys, for the log.
    #[must_use]
    pub fn skipped(&self) -> &[SkippedKey] {
        &self.skipped
    }

    /// Why the key with this ID cannot be used; `None` if the issuer does not publish it, or it can be used.
    #[must_use]
    pub fn skipped_because(&self, id: &str) -> Option<&'static str> {
        if self.contains(id) {
            return None;
        }
        self.skipped.iter().find(|key| key.id.as_deref() == Some(id)).map(|key| key.why)
    }

    /// Whether a usable key has this ID.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.with_id(id).next().is_some()
    }

    /// The keys with this ID. There may be several, of different kinds (RFC 7517, section 4.5).
    pub fn with_id(&self, id: &str) -> impl Iterator<Item = &VerificationKey> {
        self.keys.iter().filter(move |key| &*key.id == id)
    }
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

/// The parameters of a JSON Web Key that are looked at.
#[derive(Deserialize)]
struct WrittenKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<serde::de::IgnoredAny>,
}

impl WrittenKey {
    fn usable(self) -> Result<VerificationKey, &'static str> {
        let id = self.kid.ok_or("it has no `kid`, so no token can name it")?;
        if !is_key_id(&id) {
            return Err("its `kid` does not consist of 1 to 255 printable ASCII characters");
        }
        if self.r#use.is_some_and(|is_for| is_for != "sig") {
            return Err("its `use` is not `sig`");
        }
        if self.key_ops.is_some_and(|operations| !operations.iter().any(|operation| operation == "verify")) {
            return Err("its `key_ops` do not contain `verify`");
        }
        if self.d.is_some() {
            return Err("it contains its private part: each reader of the document can make tokens with it");
        }
        let known = |name: &str| Algorithm::parse(name).ok_or("its `alg` is not supported");
        let algorithm = self.alg.as_deref().map(known).transpose()?;
        let part = |text: &Option<String>| {
            let text = text.as_ref().ok_or("a parameter of its `kty` is missing")?;
            // RFC 7515 forbids the padding, and keys made by scitokens-admin-create-key have it.
            URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| "a parameter is not base64url")
        };
        let key = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => PublicKey::rsa(&part(&self.n)?, &part(&self.e)?)
                .ok_or("its modulus has fewer than 2048 or more than 8192 bits, or its exponent is unusual")?,
            ("EC", Some("P-256")) => PublicKey::p256(&part(&self.x)?, &part(&self.y)?)
                .ok_or("its coordinates do not have the length that its curve needs")?,
            ("EC", Some("P-384")) => PublicKey::p384(&part(&self.x)?, &part(&self.y)?)
                .ok_or("its coordinates do not have the length that its curve needs")?,
            ("OKP", Some("Ed25519")) => PublicKey::ed25519(&part(&self.x)?).ok_or("it does not have 32 bytes")?,
            ("EC" | "OKP", _) => return Err("its `crv` is not supported"),
            ("oct", _) => return Err("it is symmetric"),
            _ => return Err("its `kty` is not supported"),
        };
        if algorithm.is_some_and(|algorithm| !key.fits(algorithm)) {
            return Err("its `alg` needs another kind of key");
        }
        Ok(VerificationKey { id: id.into(), algorithm, key })
    }
}
