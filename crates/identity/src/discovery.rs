//! Where the keys of an issuer are (sections 4.2.1 and 5.1). Fetching them over HTTPS is up to others.

use serde_json::Value;

use crate::IssuerUrl;
use crate::issuer::{UrlProblem, check_https};
use crate::jws::Object;
use crate::shown::{shown, shown_json};

/// Longest discovery document, in bytes.
pub const DISCOVERY_BYTES_MAX: usize = 256 << 10;

/// Why a discovery document is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// More than [`DISCOVERY_BYTES_MAX`] bytes.
    #[error("the discovery document of {issuer} is {len} bytes long; {DISCOVERY_BYTES_MAX} is the limit")]
    TooLong {
        /// The configured issuer.
        issuer: String,
        /// Its length.
        len: usize,
    },
    /// Not a JSON object.
    #[error("the discovery document of {issuer} is not a JSON object: {why}")]
    Json {
        /// The configured issuer.
        issuer: String,
        /// What the parser says.
        why: String,
    },
    /// A text is missing.
    #[error("the discovery document of {issuer} has no text `{member}`")]
    Missing {
        /// The configured issuer.
        issuer: String,
        /// The member of the document.
        member: &'static str,
    },
    /// It is about another issuer, which must not speak for this one.
    #[error(
        "the discovery document of {issuer} is about the issuer `{found}`; both must be equal, also in a slash at the end: \
         correct `url` of the [[issuer]] if it is wrong"
    )]
    OtherIssuer {
        /// The configured issuer.
        issuer: String,
        /// The issuer that the document names.
        found: String,
    },
    /// `jwks_uri` cannot be used.
    #[error("`jwks_uri` in the discovery document of {issuer} is `{found}`, which cannot be used: {why}")]
    KeysUrl {
        /// The configured issuer.
        issuer: String,
        /// The URL.
        found: String,
        /// What is wrong.
        why: UrlProblem,
    },
}

/// What a discovery document says that is needed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovery {
    keys_url: Box<str>,
}

impl Discovery {
    /// The URLs at which the document of `issuer` may be, the likeliest first: as OpenID Connect has it, which every provider
    /// must support; as the profile prefers it for issuers with a path (section 4.2.1); and as RFC 8414 has it.
    #[must_use]
    pub fn urls(issuer: &IssuerUrl) -> Vec<String> {
        const OPENID: &str = "/.well-known/openid-configuration";
        const OAUTH: &str = "/.well-known/oauth-authorization-server";
        let issuer = issuer.as_str().trim_end_matches('/');
        let host_end = issuer["https://".len()..].find('/').map_or(issuer.len(), |slash| "https://".len() + slash);
        let (host, path) = issuer.split_at(host_end);
        let mut urls =
            vec![format!("{issuer}{OPENID}"), format!("{host}{OPENID}{path}"), format!("{host}{OAUTH}{path}")];
        urls.dedup();
        urls
    }

    /// Reads the document that one of the URLs gave.
    ///
    /// # Errors
    ///
    /// [`DiscoveryError`]: among others if the document is about another issuer, or its keys are not under `https`.
    pub fn parse(document: &[u8], issuer: &IssuerUrl) -> Result<Self, DiscoveryError> {
        let name = || shown(issuer.as_str());
        if document.len() > DISCOVERY_BYTES_MAX {
            return Err(DiscoveryError::TooLong { issuer: name(), len: document.len() });
        }
        let document: Object = serde_json::from_slice(document)
            .map_err(|why| DiscoveryError::Json { issuer: name(), why: shown_json(&why) })?;
        let text = |member: &'static str| match document.get(member) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(DiscoveryError::Missing { issuer: name(), member }),
        };
        let found = text("issuer")?;
        if found != issuer.as_str() {
            return Err(DiscoveryError::OtherIssuer { issuer: name(), found: shown(found) });
        }
        let keys_url = text("jwks_uri")?;
        check_https(keys_url).map_err(|why| DiscoveryError::KeysUrl { issuer: name(), found: shown(keys_url), why })?;
        Ok(Self { keys_url: keys_url.as_str().into() })
    }

    /// Where the JWKS document is: an `https` URL.
    #[must_use]
    pub fn keys_url(&self) -> &str {
        &self.keys_url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_asked_for_where_the_standards_put_it() {
        let urls = |issuer: &str| Discovery::urls(&IssuerUrl::parse(issuer).unwrap());
        let at_root = [
            "https://a.example/.well-known/openid-configuration",
            "https://a.example/.well-known/oauth-authorization-server",
        ];
        assert_eq!(urls("https://a.example"), at_root);
        assert_eq!(urls("https://a.example/"), at_root);
        assert_eq!(
            urls("https://a.example/dteam"),
            [
                "https://a.example/dteam/.well-known/openid-configuration",
                "https://a.example/.well-known/openid-configuration/dteam",
                "https://a.example/.well-known/oauth-authorization-server/dteam"
            ]
        );
    }

    #[test]
    fn a_document_speaks_only_for_its_own_issuer_and_only_over_https() {
        let issuer = IssuerUrl::parse("https://a.example/").unwrap();
        let parse = |text: &str| Discovery::parse(text.as_bytes(), &issuer);
        let good =
            parse(r#"{"issuer": "https://a.example/", "jwks_uri": "https://keys.example/jwk?x=1", "more": [1]}"#);
        assert_eq!(good.unwrap().keys_url(), "https://keys.example/jwk?x=1");
        for other in ["https://a.example", "https://b.example/", "https://A.example/"] {
            let text = format!(r#"{{"issuer": "{other}", "jwks_uri": "https://keys.example/"}}"#);
            assert!(matches!(parse(&text), Err(DiscoveryError::OtherIssuer { .. })), "{other}");
        }
        for wrong in [
            "http://a.example/jwk",
            "file:///etc/passwd",
            "https://",
            "https:///jwk",
            "https://me@a.example/",
            "https://a.example/ x",
            "HTTPS://a.example/",
            "",
        ] {
            let text = format!(r#"{{"issuer": "https://a.example/", "jwks_uri": "{wrong}"}}"#);
            assert!(matches!(parse(&text), Err(DiscoveryError::KeysUrl { .. })), "{wrong}");
        }
        let missing = |text| match parse(text) {
            Err(DiscoveryError::Missing { member, .. }) => member,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing("{}"), "issuer");
        assert_eq!(missing(r#"{"issuer": "https://a.example/"}"#), "jwks_uri");
        assert_eq!(missing(r#"{"issuer": "https://a.example/", "jwks_uri": 1}"#), "jwks_uri");
        assert!(matches!(parse("[]"), Err(DiscoveryError::Json { .. })));
        assert!(matches!(parse(&" ".repeat(DISCOVERY_BYTES_MAX + 1)), Err(DiscoveryError::TooLong { .. })));
    }
}
