//! From credentials to principals: the first rule that matches decides.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{PrincipalKind, PrincipalName, PrincipalNameError};

use crate::rule::{GROUPS_MAX, Rule, Verdict};
use crate::shown::shown;
use crate::template::FillError;
use crate::{Credential, GridMap, Issuers, RuleError, RuleSettings};

/// Most rules.
pub const IDENTITY_RULES_MAX: usize = 10_000;
/// Most VOMS attributes of a certificate that is mapped. Real ones have a few dozen.
pub const VOMS_ATTRIBUTES_MAX: usize = 256;

/// The keys of the configuration that map credentials.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MappingSettings {
    /// The rules, in order.
    pub identity: Vec<RuleSettings>,
    /// The principal of credentials that no rule matches. Without it they are refused. Clients without credentials never
    /// get it: only a rule with `anonymous = true` lets them in.
    pub identity_default: Option<String>,
}

/// Why rules are refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MappingError {
    /// A rule is wrong.
    #[error("cannot use [[identity]] number {number}: {why}")]
    Rule {
        /// Its position, from 1.
        number: usize,
        /// What is wrong.
        why: RuleError,
    },
    /// A rule is about an issuer that is not configured, so it would never match: a ban would silently do nothing.
    #[error(
        "cannot use [[identity]] number {number}: no [[issuer]] has the `url` {issuer}; both must be equal, also in a slash at \
         the end"
    )]
    UnknownIssuer {
        /// The position of the rule, from 1.
        number: usize,
        /// The issuer.
        issuer: String,
    },
    /// The default is not a name.
    #[error("cannot use `identity_default`: {0}")]
    Default(#[from] PrincipalNameError),
    /// More than [`IDENTITY_RULES_MAX`].
    #[error(
        "there are {0} [[identity]] rules; {IDENTITY_RULES_MAX} is the limit: use a grid-mapfile or VOMS attributes"
    )]
    TooMany(usize),
}

/// What decided about a credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MatchedBy {
    /// A rule.
    Rule {
        /// Its position, from 1.
        number: usize,
        /// Its conditions.
        conditions: String,
    },
    /// A line of the grid-mapfile, because of a rule.
    GridMap {
        /// The position of the rule, from 1.
        number: usize,
        /// The number of the line, from 1.
        line: usize,
    },
    /// `identity_default`.
    Default,
    /// The external mapping service.
    MappingService,
}

impl fmt::Display for MatchedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { number, conditions } => write!(f, "[[identity]] number {number} ({conditions})"),
            Self::GridMap { number, line } => {
                write!(f, "line {line} of the grid-mapfile, by [[identity]] number {number}")
            }
            Self::Default => f.write_str("identity_default"),
            Self::MappingService => f.write_str("the mapping service"),
        }
    }
}

/// Who a credential stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The principal.
    pub principal: PrincipalName,
    /// Its groups, each once. The first one becomes the group of new files.
    pub groups: Vec<PrincipalName>,
    /// What decided.
    pub by: MatchedBy,
}

/// Why a credential stands for nobody.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A rule refuses it.
    #[error("{credential} is refused by {by}, which has `refuse = true`")]
    ByRule {
        /// The credential.
        credential: String,
        /// The rule.
        by: MatchedBy,
    },
    /// No rule matches.
    #[error("no [[identity]] matches {credential}: add a rule for it, or set `identity_default`")]
    NoRule {
        /// The credential.
        credential: String,
    },
    /// Nothing lets clients without credentials in.
    #[error("credentials are needed: no [[identity]] has `anonymous = true`")]
    Anonymous,
    /// The rule that matches gives no usable name. No later rule is asked, because it may be meant for others.
    #[error("{credential} matches {by}, which gives it no name: {why}")]
    Name {
        /// The credential.
        credential: String,
        /// The rule.
        by: MatchedBy,
        /// What is wrong.
        why: FillError,
    },
    /// More groups than an identity can have.
    #[error("{credential} matches {by}, which gives it more than {GROUPS_MAX} groups, the limit")]
    TooManyGroups {
        /// The credential.
        credential: String,
        /// The rule.
        by: MatchedBy,
    },
    /// More than [`VOMS_ATTRIBUTES_MAX`]. To look at a part of them only could miss the one that a rule refuses.
    #[error("{credential} has {len} VOMS attributes; {VOMS_ATTRIBUTES_MAX} is the limit: ask for fewer")]
    TooManyAttributes {
        /// The credential.
        credential: String,
        /// How many.
        len: usize,
    },
}

/// The checked rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MappingRules {
    /// Each with its conditions as text.
    rules: Vec<(Rule, String)>,
    default: Option<PrincipalName>,
}

impl MappingRules {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// [`MappingError`].
    pub fn new(settings: &MappingSettings) -> Result<Self, MappingError> {
        let MappingSettings { identity, identity_default } = settings;
        if identity.len() > IDENTITY_RULES_MAX {
            return Err(MappingError::TooMany(identity.len()));
        }
        let rule = |(index, settings): (usize, &RuleSettings)| match Rule::new(settings) {
            Ok(rule) => Ok((rule, settings.to_string())),
            Err(why) => Err(MappingError::Rule { number: index + 1, why }),
        };
        let rules = identity.iter().enumerate().map(rule).collect::<Result<_, _>>()?;
        let default =
            identity_default.as_deref().map(|name| PrincipalName::parse(PrincipalKind::User, name)).transpose()?;
        Ok(Self { rules, default })
    }

    /// Checks that each issuer that a rule names is configured.
    ///
    /// # Errors
    ///
    /// [`MappingError::UnknownIssuer`].
    pub fn check_issuers(&self, issuers: &Issuers) -> Result<(), MappingError> {
        for (index, (rule, _)) in self.rules.iter().enumerate() {
            if let Some(issuer) = rule.issuer().filter(|issuer| issuers.get(issuer.as_str()).is_none()) {
                return Err(MappingError::UnknownIssuer { number: index + 1, issuer: shown(issuer.as_str()) });
            }
        }
        Ok(())
    }

    /// Who `credential` stands for. Rules with `grid_map = true` look into `grid_map`, and match nothing without it.
    ///
    /// # Errors
    ///
    /// [`Refusal`], which names the rule.
    pub fn map(&self, credential: &Credential, grid_map: Option<&GridMap>) -> Result<Mapped, Refusal> {
        if let Credential::Certificate { attributes, .. } = credential
            && attributes.len() > VOMS_ATTRIBUTES_MAX
        {
            let len = attributes.len();
            return Err(Refusal::TooManyAttributes { credential: credential.to_string(), len });
        }
        for (index, (rule, conditions)) in self.rules.iter().enumerate() {
            let Some(verdict) = rule.apply(credential, grid_map) else { continue };
            let number = index + 1;
            let by = MatchedBy::Rule { number, conditions: conditions.clone() };
            let shown = || credential.to_string();
            return match verdict {
                Ok(Verdict::Refuse) => Err(Refusal::ByRule { credential: shown(), by }),
                Err(why) => Err(Refusal::Name { credential: shown(), by, why }),
                Ok(Verdict::Principal { groups, .. }) if groups.len() > GROUPS_MAX => {
                    Err(Refusal::TooManyGroups { credential: shown(), by })
                }
                Ok(Verdict::Principal { name, groups, line }) => {
                    let by = line.map_or(by, |line| MatchedBy::GridMap { number, line });
                    Ok(Mapped { principal: name, groups, by })
                }
            };
        }
        match (&self.default, credential) {
            (_, Credential::Anonymous) => Err(Refusal::Anonymous),
            (Some(default), _) => Ok(Mapped { principal: default.clone(), groups: Vec::new(), by: MatchedBy::Default }),
            (None, _) => Err(Refusal::NoRule { credential: credential.to_string() }),
        }
    }
}
