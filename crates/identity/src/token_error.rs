//! Why a token is not accepted.

use types::Timestamp;

use crate::token::{CLOCK_SKEW, TOKEN_BYTES_MAX};
use crate::{Algorithm, ScopeError};

/// Why a token is not accepted. The messages never contain the token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Longer than [`TOKEN_BYTES_MAX`].
    #[error("the token is {0} bytes long; {TOKEN_BYTES_MAX} is the limit: ask for fewer groups or scopes")]
    TooLong(usize),
    /// Not three parts.
    #[error("a token has three parts joined by dots, and this one has {0}: is it complete, and a signed JWT?")]
    Parts(usize),
    /// A part is not base64url.
    #[error("the {0} of the token is not base64url without padding: the token was altered or cut")]
    Base64(&'static str),
    /// A part is not a JSON object.
    #[error("the {part} of the token is not a JSON object: {why}")]
    Json {
        /// Which part.
        part: &'static str,
        /// What the parser says.
        why: String,
    },
    /// No `alg`.
    #[error("the header of the token has no text `alg`, which names the signature algorithm")]
    NoAlgorithm,
    /// `alg` is `none`.
    #[error("the token is not signed (`alg` is `none`); a signature by its issuer is needed")]
    Unsigned,
    /// `alg` is symmetric.
    #[error("the token is signed with {0}, a shared secret; RS256 or ES256 with a key of the issuer is needed")]
    Symmetric(String),
    /// `alg` is unknown.
    #[error(
        "the token is signed with `{0}`; supported are RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA"
    )]
    UnknownAlgorithm(String),
    /// `crit` names extensions.
    #[error("the header of the token demands extensions (`crit`), and none is supported")]
    CriticalHeader,
    /// `typ` is of something else.
    #[error("the type of the token is `{0}`; an access token (`JWT` or `at+jwt`) is needed")]
    WrongType(String),
    /// No `kid`.
    #[error("the header of the token has no `kid`, which names the key of its issuer (profile, section 4.2)")]
    NoKeyId,
    /// `kid` is not a proper ID.
    #[error("`kid` in the header of the token is not a text of 1 to 255 printable ASCII characters")]
    BadKeyId,
    /// A claim is missing.
    #[error("the token has no claim `{claim}`, which {profile} demands")]
    MissingClaim {
        /// The claim.
        claim: &'static str,
        /// Who demands it.
        profile: &'static str,
    },
    /// A claim is malformed.
    #[error("the claim `{claim}` of the token is not {expected}")]
    BadClaim {
        /// The claim.
        claim: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// Neither `wlcg.ver` nor `ver`.
    #[error(
        "the token has neither `wlcg.ver` nor `ver`; get a token by the WLCG profile 1.x or SciTokens 2.0, or set \
         `unversioned = true` for its issuer"
    )]
    NoProfile,
    /// Both of them.
    #[error(
        "the token has both `wlcg.ver` and a `ver` of SciTokens, which disagree about what it allows; its issuer must choose one"
    )]
    TwoProfiles,
    /// A version that is not supported.
    #[error("`{claim}` of the token is `{found}`; supported is {expected}")]
    Version {
        /// The claim.
        claim: &'static str,
        /// Its value.
        found: String,
        /// What is supported.
        expected: &'static str,
    },
    /// The issuer is not configured.
    #[error("the token's issuer `{0}` is not trusted here: to trust it, add an [[issuer]] with exactly this `url`")]
    UnknownIssuer(String),
    /// The token is checked against the settings of another issuer.
    #[error("the token's issuer is `{found}`, and it was checked with the settings of `{checked}`")]
    OtherIssuer {
        /// The token's issuer.
        found: String,
        /// The issuer of the settings.
        checked: String,
    },
    /// The token is checked with the keys of another issuer.
    #[error("the token's issuer is `{issuer}`, and it was checked with the keys of `{keys}`")]
    OtherKeys {
        /// The token's issuer.
        issuer: String,
        /// The issuer of the keys.
        keys: String,
    },
    /// The issuer has no such key.
    #[error("the token is signed with the key `{key_id}`, which its issuer `{issuer}` does not publish (any more)")]
    UnknownKey {
        /// The key's ID.
        key_id: String,
        /// The issuer.
        issuer: String,
    },
    /// The issuer publishes the key, and it cannot be used.
    #[error("the token is signed with the key `{key_id}` of its issuer `{issuer}`, which cannot be used here: {why}")]
    UnusableKey {
        /// The key's ID.
        key_id: String,
        /// The issuer.
        issuer: String,
        /// The reason.
        why: &'static str,
    },
    /// The key is of another kind.
    #[error("the token is signed with {algorithm}, and the key `{key_id}` of its issuer is {kind}")]
    WrongKey {
        /// The token's algorithm.
        algorithm: Algorithm,
        /// The key's ID.
        key_id: String,
        /// The key's kind.
        kind: &'static str,
    },
    /// The issuer uses the key with another algorithm only.
    #[error("the token is signed with {algorithm}, and its issuer uses the key `{key_id}` with {only} only")]
    WrongAlgorithm {
        /// The token's algorithm.
        algorithm: Algorithm,
        /// The key's ID.
        key_id: String,
        /// The algorithm of the key.
        only: Algorithm,
    },
    /// The signature is wrong.
    #[error("the signature of the token is not one by the key `{key_id}` of its issuer: it was altered, or is forged")]
    Signature {
        /// The key's ID.
        key_id: String,
    },
    /// Expired.
    #[error("the token has expired at {expired}, and it is {now} (seconds since 1970): get a new one")]
    Expired {
        /// When it expired.
        expired: i64,
        /// The current time.
        now: i64,
    },
    /// Not valid yet.
    #[error(
        "the token is valid from {from} (`{claim}`), and it is {now} (seconds since 1970): a clock is more than {} s wrong",
        CLOCK_SKEW.as_secs()
    )]
    NotYetValid {
        /// The claim that says so: `nbf` or `iat`.
        claim: &'static str,
        /// From when it is valid.
        from: i64,
        /// The current time.
        now: i64,
    },
    /// For another service.
    #[error("the token is for the audience {found}; this service accepts {accepted}")]
    Audience {
        /// The audiences of the token.
        found: String,
        /// The audiences of the service.
        accepted: String,
    },
    /// A scope is malformed.
    #[error(transparent)]
    Scope(#[from] ScopeError),
}

impl TokenError {
    pub(crate) fn expired(expires: Timestamp, now: Timestamp) -> Self {
        Self::Expired { expired: expires.secs(), now: now.secs() }
    }
}
