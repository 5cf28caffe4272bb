//! A rule of the mapping: `[[identity]]` in the configuration.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use types::{PrincipalKind, PrincipalName, PrincipalNameError};

use crate::grid_map::{GridMap, GridMapEntry};
use crate::issuer::{IssuerUrl, UrlProblem};
use crate::shown::shown;
use crate::template::{FillError, Placeholder, Template};
use crate::{
    Credential, CredentialError, DistinguishedName, DistinguishedNameError, Fqan, FqanError, FqanPattern, HostName,
    KerberosPrincipal, LoginName, SecretCredential, TemplateError, WlcgGroup,
};

/// Most groups of an identity.
pub(crate) const GROUPS_MAX: usize = 256;
/// Most entries of `groups` in a rule.
const RULE_GROUPS_MAX: usize = 64;

/// An `[[identity]]` of the configuration. It is about one kind of credential, and all of its conditions must be met. `*`
/// stands for anything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleSettings {
    /// Tokens of this issuer.
    pub issuer: Option<String>,
    /// Only those with this subject.
    pub subject: Option<String>,
    /// Only those with this group.
    pub group: Option<String>,
    /// Certificates with this subject ([`DistinguishedName::parse_escaped`]).
    pub certificate: Option<String>,
    /// Certificates with a VOMS attribute that this pattern matches ([`FqanPattern`]).
    pub voms: Option<String>,
    /// Certificates whose subject is in the grid-mapfile, which also names the principal.
    pub grid_map: bool,
    /// This Kerberos principal, or with `*@EXAMPLE.ORG` each user of a realm.
    pub kerberos: Option<String>,
    /// The holder of the shared secret of this name.
    pub secret: Option<String>,
    /// Only as this user: the one that the secret is for or, if it is for any user, the one that its holder names.
    pub user: Option<String>,
    /// This local user.
    pub local_user: Option<String>,
    /// This host, or with `*.example.org` each host below a domain.
    pub host: Option<String>,
    /// Clients without credentials.
    pub anonymous: bool,
    /// The principal's name, which may contain `{subject}`, `{user}` or `{host}`. With such a placeholder alone, others
    /// choose the name, and it can be that of a principal whom another rule names: `grid-{subject}` prevents that.
    pub principal: Option<String>,
    /// The names of its groups. `{groups}` stands for each group of the token, of the certificate's VOMS attributes, of the
    /// shared secret, or that a local user's client names.
    pub groups: Vec<String>,
    /// Refuses these credentials. With `group`, this looks at all groups that the issuer has signed into the token, also if
    /// scopes make them irrelevant otherwise.
    ///
    /// A ban by `group` or `voms` is not reliable: a client chooses which optional groups and attributes it presents. To shut
    /// somebody out, name the `subject` or the `certificate`, or have the issuer do it.
    pub refuse: bool,
}

/// Why a rule is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleError {
    /// No condition.
    #[error(
        "it does not say which credentials it is about: give `issuer`, `certificate`, `voms`, `grid_map`, `kerberos`, `secret`, \
         `local_user`, `host` or `anonymous`"
    )]
    NoKind,
    /// Conditions on different kinds of credentials.
    #[error("it is about several kinds of credentials ({0}), and no credential is of two kinds: make a rule for each")]
    TwoKinds(String),
    /// A subject or group without issuer.
    #[error("`{0}` needs `issuer` beside it: each issuer can use each subject and group")]
    NoIssuer(&'static str),
    /// A user without secret.
    #[error("`user` needs `secret` beside it: a local user is a `local_user`")]
    NoSecret,
    /// Neither `principal` nor `refuse`.
    #[error("it says neither which `principal` matching credentials get nor `refuse = true`")]
    NoResult,
    /// `refuse` with something else.
    #[error("it has `refuse = true` and `principal` or `groups`: use one of them")]
    RefusesAndMaps,
    /// `grid_map` names the principal.
    #[error("it has `grid_map = true` and `principal` or `refuse`: the grid-mapfile names the principal")]
    GridMapAndResult,
    /// Too many groups.
    #[error("it has {0} entries in `groups`; {RULE_GROUPS_MAX} is the limit")]
    TooManyGroups(usize),
    /// The URL of an issuer is malformed.
    #[error("its `issuer` `{0}` is not an issuer: {1}")]
    Issuer(String, UrlProblem),
    /// A subject is malformed.
    #[error("its `subject` is empty or has more than 255 bytes")]
    Subject,
    /// A group is malformed.
    #[error("its `group` `{0}` is not a group such as /wlcg/xfers")]
    Group(String),
    /// A certificate's subject is malformed.
    #[error("its `certificate` cannot be used: {0}")]
    Certificate(#[from] DistinguishedNameError),
    /// A VOMS pattern is malformed.
    #[error("its `voms` cannot be used: {0}")]
    Voms(#[from] FqanError),
    /// Another name is malformed.
    #[error("its `{setting}` cannot be used: {why}")]
    Name {
        /// The setting.
        setting: &'static str,
        /// What is wrong.
        why: CredentialError,
    },
    /// `principal` or `groups` is malformed.
    #[error("its `{setting}` cannot be used: {why}")]
    Result {
        /// The setting.
        setting: &'static str,
        /// What is wrong.
        why: TemplateError,
    },
}

/// `*`, or one text.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Pattern {
    Any,
    One(Box<str>),
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => **one == *text,
        }
    }
}

/// Which credentials a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Condition {
    Token {
        issuer: IssuerUrl,
        subject: Option<Pattern>,
        group: Option<WlcgGroup>,
    },
    /// A subject of `None` is any.
    Certificate {
        subject: Option<DistinguishedName>,
        voms: Option<FqanPattern>,
    },
    GridMap,
    Kerberos(KerberosPrincipal),
    /// Each user of a realm.
    KerberosRealm(Box<str>),
    Secret {
        name: Pattern,
        user: Option<Pattern>,
    },
    LocalUser(Pattern),
    Host(HostName),
    /// Each host whose name ends so, with the dot.
    HostsBelow(Box<str>),
    AnyHost,
    Anonymous,
}

/// What matching credentials get.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Refuse,
    Principal(Template),
    /// As the grid-mapfile says.
    GridMap,
}

/// A checked rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    condition: Condition,
    outcome: Outcome,
    groups: Vec<Template>,
}

/// What a rule says about a credential that it matches.
pub(crate) enum Verdict {
    Refuse,
    /// The line of the grid-mapfile, if that named the principal.
    Principal {
        name: PrincipalName,
        groups: Vec<PrincipalName>,
        line: Option<usize>,
    },
}

impl Rule {
    pub(crate) fn new(settings: &RuleSettings) -> Result<Self, RuleError> {
        let condition = Condition::new(settings)?;
        let RuleSettings { principal, groups, refuse, .. } = settings;
        let outcome = match (principal, *refuse) {
            (None, false) if condition == Condition::GridMap => Outcome::GridMap,
            _ if condition == Condition::GridMap => return Err(RuleError::GridMapAndResult),
            (None, true) if groups.is_empty() => Outcome::Refuse,
            (_, true) => return Err(RuleError::RefusesAndMaps),
            (Some(principal), false) => {
                let wrong = |why| RuleError::Result { setting: "principal", why };
                let template = condition.template(principal, false).map_err(wrong)?;
                if template.place().is_none() {
                    PrincipalName::parse(PrincipalKind::User, principal)
                        .map_err(|why: PrincipalNameError| wrong(why.into()))?;
                }
                Outcome::Principal(template)
            }
            (None, false) => return Err(RuleError::NoResult),
        };
        if groups.len() > RULE_GROUPS_MAX {
            return Err(RuleError::TooManyGroups(groups.len()));
        }
        let group = |text: &String| {
            let template = condition.template(text, true)?;
            if template.place().is_none() {
                PrincipalName::parse(PrincipalKind::Group, text)?;
            }
            Ok(template)
        };
        let groups = groups.iter().map(group).collect::<Result<_, _>>();
        let groups = groups.map_err(|why| RuleError::Result { setting: "groups", why })?;
        Ok(Self { condition, outcome, groups })
    }

    /// What the rule says about `credential`; `None` if it is not about it.
    pub(crate) fn apply(
        &self,
        credential: &Credential,
        grid_map: Option<&GridMap>,
    ) -> Option<Result<Verdict, FillError>> {
        if !self.condition.matches(credential, self.outcome == Outcome::Refuse) {
            return None;
        }
        let (name, line) = match &self.outcome {
            Outcome::Refuse => return Some(Ok(Verdict::Refuse)),
            Outcome::Principal(template) => {
                let value = template.place().and_then(|place| value(credential, place));
                match template.principal(value) {
                    Ok(name) => (name, None),
                    Err(why) => return Some(Err(why)),
                }
            }
            Outcome::GridMap => {
                let Credential::Certificate { subject, .. } = credential else { return None };
                let GridMapEntry { account, line } = grid_map?.get(subject)?;
                (account.clone(), Some(*line))
            }
        };
        Some(self.groups(credential).map(|groups| Verdict::Principal { name, groups, line }))
    }

    /// The groups that the rule gives, each once, in its order. Of too many it returns one more than an identity can have.
    fn groups(&self, credential: &Credential) -> Result<Vec<PrincipalName>, FillError> {
        let mut groups: Vec<PrincipalName> = Vec::new();
        let mut seen: BTreeSet<PrincipalName> = BTreeSet::new();
        for template in &self.groups {
            let values = match template.place() {
                Some(Placeholder::Groups) => groups_of(credential).into_iter().map(Some).collect(),
                place => vec![place.and_then(|place| value(credential, place))],
            };
            for value in values {
                let group = template.group(value)?;
                if seen.insert(group.clone()) {
                    groups.push(group);
                }
                if groups.len() > GROUPS_MAX {
                    return Ok(groups);
                }
            }
        }
        Ok(groups)
    }
}

/// What `credential` has for `place`.
fn value(credential: &Credential, place: Placeholder) -> Option<&str> {
    match (place, credential) {
        (Placeholder::Subject, Credential::Token(token)) => token.subject.as_deref(),
        (Placeholder::User, Credential::Kerberos(principal)) => principal.user(),
        (Placeholder::User, Credential::Secret(secret)) => secret.user.as_ref().map(LoginName::as_str),
        (Placeholder::User, Credential::LocalUser { name, .. }) => Some(name.as_str()),
        (Placeholder::Host, Credential::Host(name)) => Some(name.as_str()),
        _ => None,
    }
}

/// The groups of `credential`, without the slash before those of tokens and certificates.
pub(crate) fn groups_of(credential: &Credential) -> Vec<&str> {
    let groups: Vec<&WlcgGroup> = match credential {
        Credential::LocalUser { groups, .. } | Credential::Secret(SecretCredential { groups, .. }) => {
            return groups.iter().map(LoginName::as_str).collect();
        }
        Credential::Token(token) => token.groups.iter().collect(),
        Credential::Certificate { attributes, .. } => attributes.iter().map(Fqan::group).collect(),
        _ => Vec::new(),
    };
    groups.into_iter().map(|group| group.as_str().trim_start_matches('/')).collect()
}

impl Rule {
    /// The issuer of the tokens that the rule is about.
    pub(crate) fn issuer(&self) -> Option<&IssuerUrl> {
        match &self.condition {
            Condition::Token { issuer, .. } => Some(issuer),
            _ => None,
        }
    }
}

impl Condition {
    fn new(settings: &RuleSettings) -> Result<Self, RuleError> {
        let RuleSettings { issuer, subject, group, certificate, voms, kerberos, secret, local_user, host, .. } =
            settings;
        let kinds = [
            ("issuer", issuer.is_some()),
            ("certificate or voms", certificate.is_some() || voms.is_some()),
            ("grid_map", settings.grid_map),
            ("kerberos", kerberos.is_some()),
            ("secret", secret.is_some()),
            ("local_user", local_user.is_some()),
            ("host", host.is_some()),
            ("anonymous", settings.anonymous),
        ];
        let given: Vec<&str> = kinds.into_iter().filter_map(|(name, given)| given.then_some(name)).collect();
        if issuer.is_none() {
            for (name, given) in [("subject", subject.is_some()), ("group", group.is_some())] {
                if given {
                    return Err(RuleError::NoIssuer(name));
                }
            }
        }
        if secret.is_none() && settings.user.is_some() {
            return Err(RuleError::NoSecret);
        }
        if given.len() > 1 {
            return Err(RuleError::TwoKinds(given.join(", ")));
        }
        let name = |setting| move |why| RuleError::Name { setting, why };
        if let Some(issuer) = issuer {
            let wrong = |why| RuleError::Issuer(shown(issuer), why);
            let issuer = IssuerUrl::parse(issuer).map_err(wrong)?;
            let subject = subject.as_deref().map(subject_pattern).transpose()?;
            let group = |text: &String| WlcgGroup::parse(text).ok_or_else(|| RuleError::Group(shown(text)));
            let group = settings.group.as_ref().map(group).transpose()?;
            return Ok(Self::Token { issuer, subject, group });
        }
        if certificate.is_some() || voms.is_some() {
            let one = |text: &&String| text.as_str() != "*";
            let written = |text: &String| DistinguishedName::parse_escaped(text);
            let subject = certificate.as_ref().filter(one).map(written).transpose()?;
            let voms = voms.as_ref().map(|text| FqanPattern::parse(text)).transpose()?;
            return Ok(Self::Certificate { subject, voms });
        }
        if settings.grid_map {
            return Ok(Self::GridMap);
        }
        if let Some(text) = kerberos {
            // A realm is checked with a user in front of it.
            let user = text.strip_prefix("*@").map(|realm| format!("x@{realm}"));
            let principal = KerberosPrincipal::parse(user.as_deref().unwrap_or(text)).map_err(name("kerberos"))?;
            return Ok(match user {
                Some(_) => Self::KerberosRealm(principal.realm().into()),
                None => Self::Kerberos(principal),
            });
        }
        if let Some(text) = secret {
            let user = settings.user.as_deref().map(login_pattern).transpose().map_err(name("user"))?;
            return Ok(Self::Secret { name: login_pattern(text).map_err(name("secret"))?, user });
        }
        if let Some(text) = local_user {
            return login_pattern(text).map(Self::LocalUser).map_err(name("local_user"));
        }
        if let Some(text) = host {
            let (domain, below) = text.strip_prefix("*.").map_or((text.as_str(), false), |domain| (domain, true));
            if domain == "*" && !below {
                return Ok(Self::AnyHost);
            }
            let domain = HostName::parse(domain).map_err(name("host"))?;
            if below && domain.is_address() {
                return Err(RuleError::Name { setting: "host", why: CredentialError::Host(shown(text)) });
            }
            return Ok(if below { Self::HostsBelow(format!(".{domain}").into()) } else { Self::Host(domain) });
        }
        if settings.anonymous { Ok(Self::Anonymous) } else { Err(RuleError::NoKind) }
    }

    /// Whether `credential` meets the condition. Groups of a token that do not count make no difference, except to a rule that
    /// refuses.
    fn matches(&self, credential: &Credential, refuses: bool) -> bool {
        match (self, credential) {
            (Self::Token { issuer, subject, group }, Credential::Token(token)) => {
                let subject_matches =
                    |pattern: &Pattern| token.subject.as_deref().is_some_and(|subject| pattern.matches(subject));
                *issuer == token.issuer
                    && subject.as_ref().is_none_or(subject_matches)
                    && group.as_ref().is_none_or(|group| {
                        token.groups.contains(group) || (refuses && token.signed_groups.contains(group))
                    })
            }
            (Self::Certificate { subject: wanted, voms }, Credential::Certificate { subject, attributes }) => {
                wanted.as_ref().is_none_or(|wanted| wanted == subject)
                    && voms.as_ref().is_none_or(|voms| attributes.iter().any(|attribute| voms.matches(attribute)))
            }
            (Self::GridMap, Credential::Certificate { .. }) | (Self::AnyHost, Credential::Host(_)) => true,
            (Self::Kerberos(wanted), Credential::Kerberos(principal)) => wanted == principal,
            (Self::KerberosRealm(realm), Credential::Kerberos(principal)) => {
                **realm == *principal.realm() && principal.user().is_some()
            }
            (Self::Secret { name, user }, Credential::Secret(secret)) => {
                let is_user = |user: &Pattern| secret.user.as_ref().is_some_and(|name| user.matches(name.as_str()));
                name.matches(secret.name.as_str()) && user.as_ref().is_none_or(is_user)
            }
            (Self::LocalUser(wanted), Credential::LocalUser { name, .. }) => wanted.matches(name.as_str()),
            (Self::Host(wanted), Credential::Host(name)) => wanted == name,
            (Self::HostsBelow(end), Credential::Host(name)) => {
                name.as_str().strip_suffix(&**end).is_some_and(|host| !host.is_empty())
            }
            (Self::Anonymous, Credential::Anonymous) => true,
            _ => false,
        }
    }

    /// Parses a template whose placeholder the credentials of this rule can fill.
    fn template(&self, text: &str, of_group: bool) -> Result<Template, TemplateError> {
        let template = Template::parse(text)?;
        let Some(place) = template.place() else { return Ok(template) };
        let available = match (self, place) {
            (
                Self::Token { .. }
                | Self::Certificate { .. }
                | Self::GridMap
                | Self::Secret { .. }
                | Self::LocalUser(_),
                Placeholder::Groups,
            ) => of_group,
            (Self::Token { .. }, Placeholder::Subject)
            | (
                Self::Kerberos(_) | Self::KerberosRealm(_) | Self::Secret { .. } | Self::LocalUser(_),
                Placeholder::User,
            )
            | (Self::Host(_) | Self::HostsBelow(_) | Self::AnyHost, Placeholder::Host) => true,
            _ => false,
        };
        if available { Ok(template) } else { Err(TemplateError::Unavailable(place.name())) }
    }
}

fn subject_pattern(text: &str) -> Result<Pattern, RuleError> {
    match text {
        "*" => Ok(Pattern::Any),
        text if (1..=255).contains(&text.len()) => Ok(Pattern::One(text.into())),
        _ => Err(RuleError::Subject),
    }
}

fn login_pattern(text: &str) -> Result<Pattern, CredentialError> {
    if text == "*" { Ok(Pattern::Any) } else { LoginName::parse(text).map(|_| Pattern::One(text.into())) }
}

/// The conditions, as somebody would write them.
impl fmt::Display for RuleSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conditions = [
            ("issuer", &self.issuer),
            ("subject", &self.subject),
            ("group", &self.group),
            ("certificate", &self.certificate),
            ("voms", &self.voms),
            ("kerberos", &self.kerberos),
            ("secret", &self.secret),
            ("user", &self.user),
            ("local_user", &self.local_user),
            ("host", &self.host),
        ];
        let mut between = "";
        for (name, text) in conditions {
            if let Some(text) = text {
                write!(f, "{between}{name} = \"{}\"", shown(text))?;
                between = ", ";
            }
        }
        for (name, given) in [("grid_map", self.grid_map), ("anonymous", self.anonymous)] {
            if given {
                write!(f, "{between}{name} = true")?;
                between = ", ";
            }
        }
        Ok(())
    }
}
