//! What happens to a credential, step by step: for `weir identity test`.

use std::fmt;

use identity::{Credential, Mapped, TokenCredential, TokenError, TokenRights, UnverifiedToken, shown};
use types::PrincipalName;

use crate::{Authenticated, AuthenticationError};

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportStep {
    /// What was looked at.
    pub name: &'static str,
    /// What was found, or why it failed. Nothing follows a step that failed.
    pub outcome: Result<String, String>,
}

/// All steps, and the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The steps, in their order.
    pub steps: Vec<ReportStep>,
    /// What a client gets that shows the credential.
    pub result: Result<Authenticated, AuthenticationError>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ReportStep { name, outcome } in &self.steps {
            let (sign, text) = match outcome {
                Ok(text) => ("ok  ", text),
                Err(text) => ("FAIL", text),
            };
            let mut lines = text.lines();
            writeln!(f, "{sign}  {name:<10} {}", lines.next().unwrap_or_default())?;
            lines.try_for_each(|line| writeln!(f, "{:17}{line}", ""))?;
        }
        Ok(())
    }
}

/// Where steps are told. To most logins nobody listens, and they cost nothing.
pub(crate) struct Trace<'a>(pub(crate) Option<&'a mut Vec<ReportStep>>);

impl Trace<'_> {
    /// Tells of a step, and returns its result.
    pub(crate) fn step<T, E: Into<AuthenticationError>>(
        &mut self,
        name: &'static str,
        result: Result<T, E>,
        found: impl FnOnce(&T) -> String,
    ) -> Result<T, AuthenticationError> {
        let result = result.map_err(Into::into);
        if let Some(steps) = &mut self.0 {
            let outcome = result.as_ref().map(found).map_err(AuthenticationError::for_log);
            steps.push(ReportStep { name, outcome });
        }
        result
    }

    /// Tells of the verification of a token: its signature, and then its claims.
    pub(crate) fn verified(
        &mut self,
        token: &UnverifiedToken<'_>,
        result: Result<TokenCredential, TokenError>,
    ) -> Result<TokenCredential, AuthenticationError> {
        use TokenError::{OtherIssuer, Signature, UnknownKey, WrongAlgorithm, WrongKey};
        let signature_fails = matches!(
            result,
            Err(UnknownKey { .. } | WrongKey { .. } | WrongAlgorithm { .. } | Signature { .. } | OtherIssuer { .. })
        );
        if signature_fails {
            return self.step("signature", result, |_| String::new());
        }
        self.step("signature", Ok::<_, TokenError>(()), |()| format!("{}, valid", token.algorithm()))?;
        self.step("claims", result, |credential| {
            format!("{}, expires at {}", credential.profile.name(), credential.expires.secs())
        })
    }
}

/// Whose certificates they are.
pub(crate) fn grid_user(user: &grid::GridUser) -> String {
    let limited = if user.limited { "\na proxy is limited: it cannot start jobs, and may use storage" } else { "" };
    let attributes: String = user.fqans.iter().map(|fqan| format!("\nVOMS attribute: {fqan}")).collect();
    let subject = shown(user.subject.as_str());
    format!("{subject}, trusted until {}{limited}{attributes}", user.not_after)
}

/// What a token says.
pub(crate) fn claims(token: &UnverifiedToken<'_>) -> String {
    let header = format!("signed with {} and the key `{}`", token.algorithm(), shown(token.key_id()));
    let claims = token.shown_claims().into_iter().map(|(claim, value)| format!("{claim}: {value}"));
    std::iter::once(header).chain(claims).collect::<Vec<_>>().join("\n")
}

/// Who a credential stands for.
pub(crate) fn mapped(Mapped { principal, groups, by }: &Mapped) -> String {
    let groups: Vec<&str> = groups.iter().map(PrincipalName::as_str).collect();
    let groups = if groups.is_empty() { "no groups".to_owned() } else { format!("groups {}", groups.join(", ")) };
    format!("principal {principal}, {groups}, by {by}")
}

/// What a token allows.
pub(crate) fn rights(rights: &Option<TokenRights>) -> String {
    let Some(rights) = rights else { return "what the permissions of the principal allow".into() };
    match rights {
        TokenRights::Identity(_) => {
            "what the permissions of the principal allow, below `base_paths`: the token has no scopes".into()
        }
        TokenRights::Nothing { .. } => "nothing: the token has no storage scope and no group that counts".into(),
        TokenRights::Scoped(scoped) if scoped.scopes().is_empty() => {
            "nothing: no scope of the token is about storage".into()
        }
        TokenRights::Scoped(scoped) => {
            let scopes = scoped.scopes().iter().map(|scope| format!("{}:{}", scope.action.name(), scope.path));
            let scopes = scopes.map(|scope| shown(&scope)).collect::<Vec<_>>().join(" ");
            format!("{scopes}, with paths below `base_paths`, where the permissions of the principal allow it too")
        }
    }
}

/// A credential for logs and audit lines.
pub(crate) fn credential(credential: &Credential) -> String {
    match credential {
        Credential::Token(token) => match &token.id {
            Some(id) => format!("{credential}, ID {}", shown(id)),
            None => credential.to_string(),
        },
        other => other.to_string(),
    }
}
