//! The issuers that a site trusts, and with what: `[[issuer]]` in the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::{NameError, NsPath};

use crate::claims::is_any_audience;
use crate::shown::shown;

/// Most issuers of a site.
pub const ISSUERS_MAX: usize = 256;
/// Longest URL, in bytes.
pub(crate) const URL_MAX: usize = 1024;
/// Most entries of a list in the settings of an issuer.
const LIST_MAX: usize = 64;

/// Why the settings of an issuer are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IssuerError {
    /// The URL is not one of an issuer.
    #[error("`{url}` cannot be the `url` of an issuer: {why}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong.
        why: UrlProblem,
    },
    /// Without audience every token would be refused, or one for another service accepted.
    #[error("the issuer {0} has no `audiences`: give the URL by which clients know this service")]
    NoAudience(String),
    /// An audience that no service may have.
    #[error("`{audience}` cannot be an audience of issuer {issuer}: {why}")]
    Audience {
        /// The issuer.
        issuer: String,
        /// The audience.
        audience: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Nothing says which part of the namespace the issuer decides about.
    #[error(
        "the issuer {0} has no `base_paths`: give the directories that its tokens are for, or \"/\" for the whole namespace"
    )]
    NoBasePath(String),
    /// A path that is none.
    #[error("`{path}` cannot be in `{setting}` of issuer {issuer}: {why}")]
    Path {
        /// The issuer.
        issuer: String,
        /// The setting.
        setting: &'static str,
        /// The path.
        path: String,
        /// What is wrong.
        why: NameError,
    },
    /// A list is too long.
    #[error("`{setting}` of issuer {issuer} has more than {LIST_MAX} entries")]
    TooManyEntries {
        /// The issuer.
        issuer: String,
        /// The setting.
        setting: &'static str,
    },
    /// The same URL twice.
    #[error("the issuer {0} is configured twice; put all of its `base_paths` into one [[issuer]]")]
    Twice(String),
    /// More than [`ISSUERS_MAX`].
    #[error("there are {0} issuers; {ISSUERS_MAX} is the limit")]
    TooMany(usize),
}

/// What is wrong with a URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlProblem {
    /// Too long.
    #[error("it has more than {URL_MAX} bytes")]
    TooLong,
    /// Not HTTPS.
    #[error("it does not begin with `https://`, and keys are only as genuine as the connection they come over")]
    NotHttps,
    /// No host.
    #[error("it has no proper host after `https://`")]
    Host,
    /// A character that does not belong there.
    #[error("it contains a blank, a quote, a backslash, or a character outside ASCII")]
    Character,
    /// A query or a fragment.
    #[error("it has a `?` or a `#`, which an issuer's URL cannot have")]
    Query,
}

/// Checks the form of an `https` URL, so that it can be put together with other text, and be asked for.
pub(crate) fn check_https(url: &str) -> Result<(), UrlProblem> {
    if url.len() > URL_MAX {
        return Err(UrlProblem::TooLong);
    }
    let rest = url.strip_prefix("https://").ok_or(UrlProblem::NotHttps)?;
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'<>\\^`{|}".contains(&byte)) {
        return Err(UrlProblem::Character);
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let proper = host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]_".contains(&byte));
    if proper { Ok(()) } else { Err(UrlProblem::Host) }
}

/// The URL of an issuer, as it is in `iss` of its tokens. URLs are compared as they are: one with a slash at its end and
/// one without are two issuers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IssuerUrl(Arc<str>);

impl IssuerUrl {
    /// Stands for an issuer where there is none.
    pub(crate) fn unnamed() -> Self {
        Self("https://unnamed.invalid/".into())
    }

    /// Checks `url`: `https`, without query and fragment.
    ///
    /// # Errors
    ///
    /// [`UrlProblem`].
    pub fn parse(url: &str) -> Result<Self, UrlProblem> {
        check_https(url)?;
        if url.contains(['?', '#']) {
            return Err(UrlProblem::Query);
        }
        Ok(Self(url.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IssuerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// When the groups of a token count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupUse {
    /// In tokens without capabilities, as the profile has it (section 2.2.3).
    #[default]
    WithoutScopes,
    /// Always: rules of `[[identity]]` see the groups, and scopes limit the token all the same.
    Always,
    /// Never.
    Never,
}

/// What a token may do that has neither scopes nor groups that count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WithoutScopes {
    /// Nothing.
    #[default]
    Refuse,
    /// All that the identity may do to which rules map the issuer and the subject.
    Identity,
}

/// An `[[issuer]]` of the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerSettings {
    /// Its URL, exactly as `iss` in its tokens.
    pub url: String,
    /// The parts of weir's namespace that it decides about. Its tokens allow nothing elsewhere, whether by scopes or by groups.
    /// The paths in its scopes begin here. With several, each scope holds in each.
    #[serde(default)]
    pub base_paths: Vec<String>,
    /// Tokens must be for one of these audiences.
    pub audiences: Vec<String>,
    /// Whether tokens for every service are accepted, too.
    #[serde(default = "yes")]
    pub any_audience: bool,
    /// If not empty: its tokens allow nothing outside of these paths, which begin at the base path.
    #[serde(default)]
    pub restricted_paths: Vec<String>,
    /// Whether scopes count. Without, a token with scopes is treated as one that has none.
    #[serde(default = "yes")]
    pub scopes: bool,
    /// Whether tokens are accepted that have neither `wlcg.ver` nor `ver`, as general OAuth 2.0 servers issue them (RFC 9068). They
    /// are read as SciTokens: scopes such as `read:/path` limit them, and they need an audience.
    #[serde(default)]
    pub unversioned: bool,
    /// When groups count.
    #[serde(default)]
    pub groups: GroupUse,
    /// What tokens without scopes and groups may do.
    #[serde(default)]
    pub without_scopes: WithoutScopes,
}

fn yes() -> bool {
    true
}

/// The part of the namespace that an issuer decides about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Area {
    pub(crate) issuer: IssuerUrl,
    pub(crate) bases: Vec<NsPath>,
    /// Below each base. Empty: no restriction.
    pub(crate) restricted: Vec<NsPath>,
}

/// The checked settings of an issuer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issuer {
    area: Arc<Area>,
    audiences: Vec<String>,
    any_audience: bool,
    scopes: bool,
    unversioned: bool,
    groups: GroupUse,
    without_scopes: WithoutScopes,
}

impl Issuer {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`IssuerError`].
    pub fn new(settings: IssuerSettings) -> Result<Self, IssuerError> {
        let url = IssuerUrl::parse(&settings.url).map_err(|why| IssuerError::Url { url: shown(&settings.url), why })?;
        let name = || url.to_string();
        for (setting, len) in [
            ("audiences", settings.audiences.len()),
            ("base_paths", settings.base_paths.len()),
            ("restricted_paths", settings.restricted_paths.len()),
        ] {
            if len > LIST_MAX {
                return Err(IssuerError::TooManyEntries { issuer: name(), setting });
            }
        }
        if settings.audiences.is_empty() {
            return Err(IssuerError::NoAudience(name()));
        }
        for audience in &settings.audiences {
            let why = if audience.is_empty() || audience.len() > URL_MAX {
                "it is empty or too long"
            } else if is_any_audience(audience) {
                "it stands for all services; set `any_audience` to accept tokens with it, or not"
            } else {
                continue;
            };
            return Err(IssuerError::Audience { issuer: name(), audience: shown(audience), why });
        }
        if settings.base_paths.is_empty() {
            return Err(IssuerError::NoBasePath(name()));
        }
        let paths = |setting: &'static str, texts: &[String]| {
            let parse = |text: &String| {
                let wrong = |why| IssuerError::Path { issuer: name(), setting, path: shown(text), why };
                NsPath::parse(text.as_bytes()).map_err(wrong)
            };
            texts.iter().map(parse).collect::<Result<Vec<_>, _>>()
        };
        let bases = paths("base_paths", &settings.base_paths)?;
        let restricted = paths("restricted_paths", &settings.restricted_paths)?;
        let IssuerSettings { audiences, any_audience, scopes, unversioned, groups, without_scopes, .. } = settings;
        let area = Arc::new(Area { issuer: url, bases, restricted });
        Ok(Self { area, audiences, any_audience, scopes, unversioned, groups, without_scopes })
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &IssuerUrl {
        &self.area.issuer
    }

    /// The audiences of this service.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Whether tokens for every service are accepted.
    #[must_use]
    pub fn accepts_any_audience(&self) -> bool {
        self.any_audience
    }

    /// Whether scopes count.
    #[must_use]
    pub fn honours_scopes(&self) -> bool {
        self.scopes
    }

    /// Whether tokens without `wlcg.ver` and `ver` are accepted.
    #[must_use]
    pub fn accepts_unversioned(&self) -> bool {
        self.unversioned
    }

    /// When groups count.
    #[must_use]
    pub fn group_use(&self) -> GroupUse {
        self.groups
    }

    /// What tokens without scopes and groups may do.
    #[must_use]
    pub fn without_scopes(&self) -> WithoutScopes {
        self.without_scopes
    }

    pub(crate) fn area(&self) -> &Arc<Area> {
        &self.area
    }
}

/// The issuers that a site trusts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Issuers(BTreeMap<IssuerUrl, Issuer>);

impl Issuers {
    /// Checks the settings of all issuers.
    ///
    /// # Errors
    ///
    /// [`IssuerError`].
    pub fn new(settings: Vec<IssuerSettings>) -> Result<Self, IssuerError> {
        if settings.len() > ISSUERS_MAX {
            return Err(IssuerError::TooMany(settings.len()));
        }
        let mut issuers = BTreeMap::new();
        for settings in settings {
            let issuer = Issuer::new(settings)?;
            let url = issuer.url().clone();
            if issuers.insert(url.clone(), issuer).is_some() {
                return Err(IssuerError::Twice(url.to_string()));
            }
        }
        Ok(Self(issuers))
    }

    /// The issuer whose URL is exactly `url`.
    #[must_use]
    pub fn get(&self, url: &str) -> Option<&Issuer> {
        self.0.get(url)
    }

    /// All of them, in the order of their URLs.
    pub fn iter(&self) -> impl Iterator<Item = &Issuer> {
        self.0.values()
    }
}

/// A map of issuers can be asked by text.
impl std::borrow::Borrow<str> for IssuerUrl {
    fn borrow(&self) -> &str {
        &self.0
    }
}
