//! The claims of a token (section 2.1 of the profile; SciTokens, "Claims and Scopes Language").

use std::collections::BTreeSet;

use serde_json::Value;
use types::Timestamp;

use crate::jws::Object;
use crate::shown::{shown, shown_list};
use crate::token::{CLOCK_SKEW, Profile};
use crate::{Issuer, TokenError, WlcgGroup};

/// Longest `sub`, in bytes (section 2.1.1).
const SUBJECT_MAX: usize = 255;
/// Longest `jti`, in bytes.
const TOKEN_ID_MAX: usize = 255;
/// Most groups in a token.
const GROUPS_MAX: usize = 256;
/// The audience that stands for every service, in the WLCG profile.
const WLCG_ANY: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// The same in SciTokens.
const SCITOKENS_ANY: &str = "ANY";

/// Whether `audience` stands for every service. A service itself cannot be called so.
pub(crate) fn is_any_audience(audience: &str) -> bool {
    audience == WLCG_ANY || audience == SCITOKENS_ANY
}

/// The claims that count, in the order in which somebody wants to read them, with their values.
pub(crate) fn shown_claims(claims: &Object) -> Vec<(&'static str, String)> {
    const READ: [&str; 11] =
        ["iss", "sub", "aud", "exp", "nbf", "iat", "scope", "wlcg.groups", "wlcg.ver", "ver", "jti"];
    let value = |claim: &'static str| {
        let text = match claims.get(claim)? {
            Value::String(text) => shown(text),
            Value::Array(list) => shown_list(list.iter().map(|one| one.as_str().unwrap_or("(not a text)"))),
            other => shown(&other.to_string()),
        };
        Some((claim, text))
    };
    READ.into_iter().filter_map(value).collect()
}

/// The text of `claim`; `None` if it is absent.
pub(crate) fn text<'a>(claims: &'a Object, claim: &'static str) -> Result<Option<&'a str>, TokenError> {
    match claims.get(claim) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenError::BadClaim { claim, expected: "a text" }),
    }
}

/// The profile that the token says it follows.
///
/// For the WLCG profile `ver` is an unknown claim, which must be ignored (section 4.3.3). But XRootD reads a token with both as
/// a SciToken, so such a token would allow one thing here and another thing there: it is refused.
pub(crate) fn profile(claims: &Object, issuer: &Issuer) -> Result<Profile, TokenError> {
    if let Some(version) = text(claims, "wlcg.ver")? {
        if claims.get("ver").and_then(Value::as_str).is_some_and(|version| version.starts_with("scitoken")) {
            return Err(TokenError::TwoProfiles);
        }
        let digits = |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let proper = version.split_once('.').filter(|(major, minor)| digits(major) && digits(minor));
        // Newer minor versions must be accepted (section 4.3.3).
        return if proper.is_some_and(|(major, _)| major == "1") {
            Ok(Profile::Wlcg)
        } else {
            Err(TokenError::Version { claim: "wlcg.ver", found: shown(version), expected: "1.x" })
        };
    }
    match text(claims, "ver")? {
        Some("scitoken:2.0" | "scitokens:2.0") => Ok(Profile::SciTokens),
        Some(version) => Err(TokenError::Version { claim: "ver", found: shown(version), expected: "`scitoken:2.0`" }),
        None if issuer.accepts_unversioned() => Ok(Profile::SciTokens),
        None => Err(TokenError::NoProfile),
    }
}

fn required<T>(found: Option<T>, claim: &'static str, profile: Profile) -> Result<T, TokenError> {
    found.ok_or(TokenError::MissingClaim { claim, profile: profile.name() })
}

/// The time of `claim`; `None` if it is absent. Fractions of a second are dropped.
fn time(claims: &Object, claim: &'static str) -> Result<Option<i64>, TokenError> {
    /// The year 2255, the last whole one that a `Timestamp` can hold beside a tolerance.
    const SECONDS_MAX: i64 = 9_000_000_000;
    let Some(value) = claims.get(claim) else { return Ok(None) };
    let wrong = TokenError::BadClaim { claim, expected: "a number of seconds since 1970, up to the year 2255" };
    let whole = value.as_i64().or_else(|| {
        // A cast of a float saturates, and makes 0 of what is not a number.
        #[allow(clippy::cast_possible_truncation)]
        value.as_f64().filter(|seconds| seconds.is_finite()).map(|seconds| seconds.floor() as i64)
    });
    match whole {
        Some(seconds) if (0..=SECONDS_MAX).contains(&seconds) => Ok(Some(seconds)),
        _ => Err(wrong),
    }
}

/// Checks `exp`, `nbf` and `iat`; returns when the token expires.
///
/// SciTokens call `nbf` critical, and the WLCG profile demands `iat`; so does RFC 9068, which tokens without a version follow.
///
/// `nbf` and `iat` may be up to [`CLOCK_SKEW`] in the future. `exp` has no such tolerance: on or after it, the token must
/// not be accepted (section 2.1.1), and a grace period is of no use there (section 4.3.1).
pub(crate) fn check_times(claims: &Object, profile: Profile, now: Timestamp) -> Result<Timestamp, TokenError> {
    let expires = Timestamp::from_secs(required(time(claims, "exp")?, "exp", profile)?);
    if now >= expires {
        return Err(TokenError::expired(expires, now));
    }
    let demanded = match profile {
        Profile::SciTokens if claims.contains_key("ver") => "nbf",
        Profile::Wlcg | Profile::SciTokens => "iat",
    };
    for claim in ["nbf", "iat"] {
        let from = time(claims, claim)?;
        if claim == demanded {
            required(from, claim, profile)?;
        }
        if let Some(from) = from.filter(|from| Timestamp::from_secs(*from) > now.plus(CLOCK_SKEW)) {
            return Err(TokenError::NotYetValid { claim, from, now: now.secs() });
        }
    }
    Ok(expires)
}

/// For whom a token is that is accepted here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// For this service by one of its own names.
    ThisService,
    /// For all services, and not for this one by name.
    EveryService,
}

/// Checks that the token is for this service, and says how. Audiences are compared as they are (section 2.1.1).
pub(crate) fn check_audience(claims: &Object, profile: Profile, issuer: &Issuer) -> Result<Audience, TokenError> {
    let wrong = || TokenError::BadClaim { claim: "aud", expected: "a text or a list of texts" };
    let found: Vec<&str> = match required(claims.get("aud"), "aud", profile)? {
        Value::String(one) => vec![one],
        Value::Array(several) => {
            several.iter().map(|one| one.as_str().ok_or_else(wrong)).collect::<Result<_, TokenError>>()?
        }
        _ => return Err(wrong()),
    };
    let any = match profile {
        Profile::Wlcg => WLCG_ANY,
        Profile::SciTokens => SCITOKENS_ANY,
    };
    if found.iter().any(|audience| issuer.audiences().iter().any(|own| own == audience)) {
        return Ok(Audience::ThisService);
    }
    if issuer.accepts_any_audience() && found.contains(&any) {
        return Ok(Audience::EveryService);
    }
    let accepted = shown_list(issuer.audiences().iter().map(String::as_str));
    Err(TokenError::Audience { found: shown_list(found), accepted })
}

/// The subject. The WLCG profile demands it, in ASCII; SciTokens may leave it out.
pub(crate) fn subject(claims: &Object, profile: Profile) -> Result<Option<Box<str>>, TokenError> {
    let expected = "1 to 255 ASCII characters, without control characters";
    let subject = text(claims, "sub")?;
    if profile == Profile::Wlcg {
        required(subject, "sub", profile)?;
    }
    match subject {
        Some(subject) if subject.is_empty() || subject.len() > SUBJECT_MAX || !is_printable(subject) => {
            Err(TokenError::BadClaim { claim: "sub", expected })
        }
        subject => Ok(subject.map(Into::into)),
    }
}

/// Whether `text` can be in one line of a log.
fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// The token's own ID, for audit lines. Issuers must give one (section 2.1.1), but nothing here depends on it.
pub(crate) fn token_id(claims: &Object) -> Result<Option<Box<str>>, TokenError> {
    match text(claims, "jti")? {
        Some(id) if id.len() > TOKEN_ID_MAX || !is_printable(id) => {
            Err(TokenError::BadClaim { claim: "jti", expected: "a text of up to 255 printable ASCII characters" })
        }
        id => Ok(id.map(Into::into)),
    }
}

/// The groups, in the order of the token. Only for tokens whose groups count.
pub(crate) fn groups(claims: &Object) -> Result<Vec<WlcgGroup>, TokenError> {
    let wrong =
        || TokenError::BadClaim { claim: "wlcg.groups", expected: "a list of up to 256 groups such as `/wlcg/xfers`" };
    match claims.get("wlcg.groups") {
        None => Ok(Vec::new()),
        Some(Value::Array(groups)) if groups.len() <= GROUPS_MAX => {
            groups.iter().map(|group| group.as_str().and_then(WlcgGroup::parse).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// The proper groups, whether they count or not. Their number is limited by the length of a token: a limit that is lower
/// would hide groups behind others.
pub(crate) fn signed_groups(claims: &Object) -> BTreeSet<WlcgGroup> {
    let groups = claims.get("wlcg.groups").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    groups.iter().filter_map(|group| WlcgGroup::parse(group.as_str()?)).collect()
}
