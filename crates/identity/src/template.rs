//! Names that rules make from credentials: `{user}`, `grid-{subject}`.

use types::{PRINCIPAL_NAME_MAX, PrincipalKind, PrincipalName, PrincipalNameError};

use crate::shown::shown;

/// What a template may contain beside text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placeholder {
    /// `{subject}`: the subject of a token.
    Subject,
    /// `{user}`: the user of a Kerberos principal or of a secret, or a local user.
    User,
    /// `{host}`: the name of a host.
    Host,
    /// `{groups}`: each group of a token, a certificate, a secret or a local user in turn, without the slash before it.
    Groups,
}

impl Placeholder {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "subject" => Some(Self::Subject),
            "user" => Some(Self::User),
            "host" => Some(Self::Host),
            "groups" => Some(Self::Groups),
            _ => None,
        }
    }

    /// The text in a template, without braces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::User => "user",
            Self::Host => "host",
            Self::Groups => "groups",
        }
    }
}

/// Why a template is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TemplateError {
    /// Longer than a name may be.
    #[error("a template has 1 to {PRINCIPAL_NAME_MAX} bytes, and this one has {0}")]
    Length(usize),
    /// Braces around something else.
    #[error("`{0}` has braces around something other than subject, user, host or groups")]
    Placeholder(String),
    /// The credentials of the rule do not have it.
    #[error("`{{{0}}}` cannot be filled in here: the credentials that this rule is about do not have it")]
    Unavailable(&'static str),
    /// The text is not a name.
    #[error(transparent)]
    Name(#[from] PrincipalNameError),
}

/// Names that only a rule without placeholders gives: a client must not get them by being called so elsewhere.
const RESERVED: [&str; 3] = ["root", "admin", "administrator"];

/// Whether only a rule that names it gives `name`.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
}

/// Why a template gives no name for a credential.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FillError {
    /// The credential lacks something.
    #[error("the credential has nothing for `{{{0}}}`")]
    Absent(&'static str),
    /// The result is not a name.
    #[error("{0}; a rule for this credential alone can give it a name")]
    Name(PrincipalNameError),
    /// The result is a name that is given by name only.
    #[error("`{0}` is reserved: only a rule with exactly this `principal` or group gives it")]
    Reserved(String),
}

/// Text with at most one placeholder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    before: Box<str>,
    place: Option<Placeholder>,
    after: Box<str>,
}

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.is_empty() || text.len() > PRINCIPAL_NAME_MAX {
            return Err(TemplateError::Length(text.len()));
        }
        let wrong = || TemplateError::Placeholder(shown(text));
        let (before, place, after) = match text.split_once('{') {
            None => (text, None, ""),
            Some((before, rest)) => {
                let (name, after) = rest.split_once('}').ok_or_else(wrong)?;
                (before, Some(Placeholder::parse(name).ok_or_else(wrong)?), after)
            }
        };
        if [before, after].iter().any(|part| part.contains(['{', '}'])) {
            return Err(wrong());
        }
        Ok(Self { before: before.into(), place, after: after.into() })
    }

    pub(crate) fn place(&self) -> Option<Placeholder> {
        self.place
    }

    /// The text with `value` in it. The result is used as it is, or not at all: no character is replaced, so two credentials
    /// never get one name by that.
    fn fill(&self, value: Option<&str>) -> Result<String, FillError> {
        let Some(place) = self.place else { return Ok(self.before.to_string()) };
        let value = value.ok_or(FillError::Absent(place.name()))?;
        let name = format!("{}{value}{}", self.before, self.after);
        if is_reserved(&name) {
            return Err(FillError::Reserved(shown(&name)));
        }
        Ok(name)
    }

    /// The principal that this gives with `value`.
    pub(crate) fn principal(&self, value: Option<&str>) -> Result<PrincipalName, FillError> {
        PrincipalName::parse(PrincipalKind::User, &self.fill(value)?).map_err(FillError::Name)
    }

    /// The group that this gives with `value`.
    pub(crate) fn group(&self, value: Option<&str>) -> Result<PrincipalName, FillError> {
        PrincipalName::parse(PrincipalKind::Group, &self.fill(value)?).map_err(FillError::Name)
    }
}
