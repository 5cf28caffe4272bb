//! Bearer tokens: from a text to a verified identity with rights.

use std::collections::BTreeSet;
use std::time::Duration;

use types::Timestamp;

use crate::jws::Jws;
use crate::member::Member;
use crate::public_key::SignatureProblem;
use crate::rights::rights_of;
use crate::shown::shown;
use crate::{
    Algorithm, Issuer, IssuerUrl, Issuers, KeySet, TokenError, TokenRights, VerificationKey, WlcgGroup, claims,
};

/// Longest token, in bytes. Real ones have one to two thousand.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// How far in the future `nbf` and `iat` may be, because clocks differ (section 4.3.1).
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// The profile that a token follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// WLCG Common JWT Profiles, major version 1.
    Wlcg,
    /// SciTokens 2.0.
    SciTokens,
}

impl Profile {
    /// The name, for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wlcg => "the WLCG profile",
            Self::SciTokens => "SciTokens 2.0",
        }
    }
}

/// A token that was parsed, but not verified. Each of its claims may be false.
pub struct UnverifiedToken<'a> {
    jws: Jws<'a>,
    issuer: Box<str>,
}

impl<'a> UnverifiedToken<'a> {
    /// Parses the text of a token, without `Bearer ` before it.
    ///
    /// # Errors
    ///
    /// [`TokenError`]: it is not a signed token.
    pub fn parse(text: &'a [u8]) -> Result<Self, TokenError> {
        let jws = Jws::parse(text)?;
        let issuer = match &jws.issuer {
            Member::Text(issuer) => issuer.as_str().into(),
            Member::Absent => return Err(TokenError::MissingClaim { claim: "iss", profile: "each profile" }),
            Member::Other => return Err(TokenError::BadClaim { claim: "iss", expected: "a text" }),
        };
        Ok(Self { jws, issuer })
    }

    /// The ID of the key that the token says it is signed with: 1 to 255 printable ASCII characters.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.jws.key_id
    }

    /// The signature algorithm that the token names.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.jws.algorithm
    }

    /// What the token says about itself, for somebody who looks for the reason of a refusal: the claims that count here, and
    /// their values. None of it is verified. Nothing of it lets anybody use the token.
    #[must_use]
    pub fn shown_claims(&self) -> Vec<(&'static str, String)> {
        self.jws.claims().map(|claims| claims::shown_claims(&claims)).unwrap_or_default()
    }

    /// The settings of the token's issuer.
    ///
    /// # Errors
    ///
    /// [`TokenError::UnknownIssuer`].
    pub fn issuer<'b>(&self, issuers: &'b Issuers) -> Result<&'b Issuer, TokenError> {
        issuers.get(&self.issuer).ok_or_else(|| TokenError::UnknownIssuer(shown(&self.issuer)))
    }

    /// Verifies the signature with a key of `issuer`, and then each claim that counts.
    ///
    /// # Errors
    ///
    /// [`TokenError`]: the first check that failed.
    pub fn verify(&self, issuer: &Issuer, keys: &KeySet, now: Timestamp) -> Result<TokenCredential, TokenError> {
        if *self.issuer != *issuer.url().as_str() {
            return Err(TokenError::OtherIssuer { found: shown(&self.issuer), checked: shown(issuer.url().as_str()) });
        }
        if keys.issuer() != issuer.url() {
            let (issuer, keys) = (shown(issuer.url().as_str()), shown(keys.issuer().as_str()));
            return Err(TokenError::OtherKeys { issuer, keys });
        }
        self.verify_signature(issuer, keys)?;
        let claims = &self.jws.claims()?;
        let profile = claims::profile(claims, issuer)?;
        let expires = claims::check_times(claims, profile, now)?;
        let audience = claims::check_audience(claims, profile, issuer)?;
        let subject = claims::subject(claims, profile)?;
        let (rights, groups) = rights_of(profile, claims, (issuer, audience))?;
        let signed_groups = claims::signed_groups(claims);
        let id = claims::token_id(claims)?;
        let issuer = issuer.url().clone();
        Ok(TokenCredential { issuer, profile, subject, groups, signed_groups, rights, expires, id })
    }

    /// Chooses the key by its ID, its kind and its algorithm, in this order, so that an error names the first that fails.
    fn verify_signature(&self, issuer: &Issuer, keys: &KeySet) -> Result<(), TokenError> {
        let Jws { algorithm, ref key_id, .. } = self.jws;
        let key_name = || shown(key_id);
        let mut unfit = None;
        let mut other = None;
        let mut wrong = None;
        for VerificationKey { algorithm: only, key, .. } in keys.with_id(key_id) {
            if !key.fits(algorithm) {
                unfit = Some(TokenError::WrongKey { algorithm, key_id: key_name(), kind: key.kind() });
            } else if let Some(only) = only.filter(|only| *only != algorithm) {
                other = Some(TokenError::WrongAlgorithm { algorithm, key_id: key_name(), only });
            } else {
                match key.verify(algorithm, self.jws.signed, &self.jws.signature) {
                    Ok(()) => return Ok(()),
                    Err(SignatureProblem::Wrong | SignatureProblem::WrongKind) => {
                        wrong = Some(TokenError::Signature { key_id: key_name() });
                    }
                }
            }
        }
        let unknown = || match keys.skipped_because(key_id) {
            Some(why) => TokenError::UnusableKey { key_id: key_name(), issuer: shown(issuer.url().as_str()), why },
            None => TokenError::UnknownKey { key_id: key_name(), issuer: shown(issuer.url().as_str()) },
        };
        Err(wrong.or(other).or(unfit).unwrap_or_else(unknown))
    }
}

/// A verified token: an identity, and what it may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenCredential {
    /// Who has issued it. A subject means something only together with its issuer.
    pub issuer: IssuerUrl,
    /// The profile that it follows.
    pub profile: Profile,
    /// The subject, which SciTokens may leave out.
    pub subject: Option<Box<str>>,
    /// The groups that count: those of the token, unless its scopes make them irrelevant
    /// ([`GroupUse`](crate::GroupUse)).
    pub groups: Vec<WlcgGroup>,
    /// All proper groups of the token, also if they do not count. They give nothing; rules that refuse look at them, so that a
    /// client cannot drop a group by asking for scopes beside it.
    pub signed_groups: BTreeSet<WlcgGroup>,
    /// What the scopes allow.
    pub rights: TokenRights,
    /// From when on it must not be accepted any more. A session that outlives this needs a new token.
    pub expires: Timestamp,
    /// Its own ID (`jti`), for audit lines: printable ASCII.
    pub id: Option<Box<str>>,
}

impl TokenCredential {
    /// Refuses a token that has expired since it was verified.
    ///
    /// # Errors
    ///
    /// [`TokenError::Expired`].
    pub fn check_not_expired(&self, now: Timestamp) -> Result<(), TokenError> {
        if now >= self.expires { Err(TokenError::expired(self.expires, now)) } else { Ok(()) }
    }
}
