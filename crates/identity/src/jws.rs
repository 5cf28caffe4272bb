//! The compact form of JSON Web Signatures (RFC 7515, section 7.1): three base64url texts joined by dots.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::key_set::is_key_id;
use crate::member::Member;
use crate::shown::{shown, shown_json};
use crate::token::TOKEN_BYTES_MAX;
use crate::{Algorithm, TokenError};

/// The claims of a token whose signature is right.
pub(crate) type Object = Map<String, Value>;

/// A parsed token whose signature nobody has checked.
pub(crate) struct Jws<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Box<str>,
    /// The claim `iss`.
    pub(crate) issuer: Member,
    pub(crate) signature: Vec<u8>,
    /// What the signature is over.
    pub(crate) signed: &'a [u8],
    /// The decoded payload.
    payload: Vec<u8>,
}

/// What is read of the header. `jwk`, `jku`, `x5c` and `x5u` are not: a token must not choose its own key.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    alg: Member,
    #[serde(default)]
    kid: Member,
    #[serde(default)]
    typ: Member,
    #[serde(default)]
    crit: Member,
}

/// What is read of the claims before the signature is checked.
#[derive(Deserialize)]
struct UnverifiedClaims {
    #[serde(default)]
    iss: Member,
}

impl<'a> Jws<'a> {
    /// Splits and decodes `text`.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, TokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong(text.len()));
        }
        let parts: Vec<&[u8]> = text.splitn(PARTS + 1, |&byte| byte == b'.').collect();
        let [header, payload, signature] = parts[..] else {
            return Err(TokenError::Parts(text.split(|&byte| byte == b'.').count()));
        };
        let signed = &text[..header.len() + 1 + payload.len()];
        let Header { alg, kid, typ, crit } = object(&decode(header, "header")?, "header")?;
        let payload = decode(payload, "payload")?;
        let UnverifiedClaims { iss } = object(&payload, "payload")?;
        let signature = decode(signature, "signature")?;
        let algorithm = algorithm(alg)?;
        if crit != Member::Absent {
            return Err(TokenError::CriticalHeader);
        }
        check_type(typ)?;
        let key_id = match kid {
            Member::Text(id) if is_key_id(&id) => id.into(),
            Member::Absent => return Err(TokenError::NoKeyId),
            Member::Text(_) | Member::Other => return Err(TokenError::BadKeyId),
        };
        Ok(Self { algorithm, key_id, issuer: iss, signature, signed, payload })
    }

    /// All claims. Check the signature before: they can take many times the memory of the token.
    pub(crate) fn claims(&self) -> Result<Object, TokenError> {
        object(&self.payload, "payload")
    }
}

/// How many parts a token has.
const PARTS: usize = 3;

fn decode(text: &[u8], part: &'static str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Base64(part))
}

fn object<T: DeserializeOwned>(json: &[u8], part: &'static str) -> Result<T, TokenError> {
    // serde would also read an array as the members in their order.
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(TokenError::Json { part, why: "it does not begin with a brace".into() });
    }
    serde_json::from_slice(json).map_err(|why| TokenError::Json { part, why: shown_json(&why) })
}

fn algorithm(alg: Member) -> Result<Algorithm, TokenError> {
    let Member::Text(name) = alg else { return Err(TokenError::NoAlgorithm) };
    if let Some(algorithm) = Algorithm::parse(&name) {
        return Ok(algorithm);
    }
    if name.eq_ignore_ascii_case("none") {
        return Err(TokenError::Unsigned);
    }
    if matches!(name.as_str(), "HS256" | "HS384" | "HS512") {
        return Err(TokenError::Symmetric(name));
    }
    Err(TokenError::UnknownAlgorithm(shown(&name)))
}

/// Refuses what the issuer has signed for another purpose, such as a logout token (RFC 8725, section 3.11). `JWT` and
/// `at+jwt` (RFC 9068) are access tokens, and most issuers of either profile leave the type out.
fn check_type(typ: Member) -> Result<(), TokenError> {
    let name = match typ {
        Member::Absent => return Ok(()),
        Member::Text(name) => name,
        Member::Other => return Err(TokenError::WrongType("not a text".into())),
    };
    let lower = name.to_ascii_lowercase();
    match lower.strip_prefix("application/").unwrap_or(&lower) {
        "jwt" | "at+jwt" => Ok(()),
        _ => Err(TokenError::WrongType(shown(&name))),
    }
}
