//! What an external mapping service is asked, and what it may answer: JSON in both directions.
//! `docs/reference/mapping-service.md` is the contract.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::{PrincipalKind, PrincipalName, PrincipalNameError};

use crate::mapping::{Mapped, MatchedBy};
use crate::rule::GROUPS_MAX;
use crate::shown::{shown, shown_json};
use crate::template::is_reserved;
use crate::{Credential, LoginName, SecretCredential};

/// Longest answer, in bytes.
pub const MAPPING_REPLY_BYTES_MAX: usize = 128 << 10;
/// The version of the questions.
const VERSION: u32 = 1;

/// A question to the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappingQuestion {
    json: Vec<u8>,
    credential: String,
}

#[derive(Serialize)]
struct QuestionJson<'a> {
    version: u32,
    credential: &'static str,
    subject: Option<&'a str>,
    issuer: Option<&'a str>,
    secret: Option<&'a str>,
    groups: Vec<String>,
    client: Option<IpAddr>,
}

impl MappingQuestion {
    /// The question who `credential` is, of a client at `peer`; `None`: a client without credentials is nobody.
    #[must_use]
    pub fn new(credential: &Credential, peer: Option<IpAddr>) -> Option<Self> {
        let logins = |groups: &[LoginName]| groups.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (kind, subject, issuer, secret, groups) = match credential {
            Credential::Token(token) => {
                let groups = token.groups.iter().map(ToString::to_string).collect();
                ("token", token.subject.as_deref(), Some(token.issuer.as_str()), None, groups)
            }
            Credential::Certificate { subject, attributes, .. } => {
                let attributes = attributes.iter().map(ToString::to_string).collect();
                ("certificate", Some(subject.as_str()), None, None, attributes)
            }
            Credential::Kerberos(principal) => ("kerberos", Some(principal.as_str()), None, None, Vec::new()),
            Credential::Secret(SecretCredential { name, user, groups, .. }) => {
                ("secret", user.as_ref().map(LoginName::as_str), None, Some(name.as_str()), logins(groups))
            }
            Credential::LocalUser { name, groups } => ("local_user", Some(name.as_str()), None, None, logins(groups)),
            Credential::Host(name) => ("host", Some(name.as_str()), None, None, Vec::new()),
            Credential::Anonymous => return None,
        };
        let client = peer.map(|peer| peer.to_canonical());
        let question = QuestionJson { version: VERSION, credential: kind, subject, issuer, secret, groups, client };
        // Texts, a number and an address always have a form in JSON.
        let json = serde_json::to_vec(&question).ok()?;
        Some(Self { json, credential: credential.to_string() })
    }

    /// The body of the request. Equal questions have equal ones.
    #[must_use]
    pub fn json(&self) -> &[u8] {
        &self.json
    }
}

/// The credential that it is about.
impl fmt::Display for MappingQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.credential)
    }
}

/// Why an answer is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MappingReplyError {
    /// Too long.
    #[error("the answer has more than {MAPPING_REPLY_BYTES_MAX} bytes")]
    TooLong,
    /// Not JSON of the right form.
    #[error("the answer is not the JSON that was expected: {0}")]
    Json(String),
    /// Neither a principal nor a refusal, or both.
    #[error("the answer must have either `principal` or `refused`")]
    Neither,
    /// A name is none.
    #[error("the answer has a name that cannot be used: {0}")]
    Name(#[from] PrincipalNameError),
    /// The name of an administrator.
    #[error("the answer has the name `{0}`, which only an [[identity]] can give")]
    Reserved(String),
    /// Too many groups.
    #[error("the answer has {0} groups; {GROUPS_MAX} is the limit")]
    TooManyGroups(usize),
}

/// What the service says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MappingReply {
    /// Who the client is.
    Principal {
        /// The principal.
        principal: PrincipalName,
        /// Its groups, each once. The first one becomes the group of new files.
        groups: Vec<PrincipalName>,
    },
    /// The client is not let in.
    Refused(String),
}

/// Members that are not known are ignored: a service may say more.
#[derive(Deserialize)]
struct ReplyJson {
    principal: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    refused: Option<String>,
}

impl MappingReply {
    /// Parses an answer.
    ///
    /// # Errors
    /// [`MappingReplyError`].
    pub fn parse(body: &[u8]) -> Result<Self, MappingReplyError> {
        if body.len() > MAPPING_REPLY_BYTES_MAX {
            return Err(MappingReplyError::TooLong);
        }
        let reply: ReplyJson =
            serde_json::from_slice(body).map_err(|error| MappingReplyError::Json(shown_json(&error)))?;
        match (reply.principal, reply.refused) {
            (Some(name), None) => Self::principal(&name, &reply.groups),
            (None, Some(why)) => Ok(Self::Refused(shown(&why))),
            _ => Err(MappingReplyError::Neither),
        }
    }

    fn principal(name: &str, names: &[String]) -> Result<Self, MappingReplyError> {
        if names.len() > GROUPS_MAX {
            return Err(MappingReplyError::TooManyGroups(names.len()));
        }
        let principal = PrincipalName::parse(PrincipalKind::User, name)?;
        let mut groups: Vec<PrincipalName> = Vec::new();
        for name in names {
            let group = PrincipalName::parse(PrincipalKind::Group, name)?;
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        let mut all = std::iter::once(principal.as_str()).chain(groups.iter().map(PrincipalName::as_str));
        match all.find(|name| is_reserved(name)) {
            Some(name) => Err(MappingReplyError::Reserved(shown(name))),
            None => Ok(Self::Principal { principal, groups }),
        }
    }

    /// Who the client is, or why it is not let in.
    ///
    /// # Errors
    /// The reason.
    pub fn verdict(self) -> Result<Mapped, String> {
        match self {
            Self::Principal { principal, groups } => Ok(Mapped { principal, groups, by: MatchedBy::MappingService }),
            Self::Refused(why) => Err(why),
        }
    }

    /// About how much memory it takes.
    pub(crate) fn size(&self) -> usize {
        let text = match self {
            Self::Principal { principal, groups } => {
                principal.as_str().len() + groups.iter().map(|group| group.as_str().len() + 16).sum::<usize>()
            }
            Self::Refused(why) => why.len(),
        };
        text + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(credential: &Credential, peer: Option<&str>) -> String {
        let question = MappingQuestion::new(credential, peer.map(|peer| peer.parse().unwrap())).unwrap();
        String::from_utf8(question.json().to_vec()).unwrap()
    }

    fn login(text: &str) -> LoginName {
        LoginName::parse(text).unwrap()
    }

    #[test]
    fn questions_are_as_documented() {
        let secret = SecretCredential {
            name: login("fts"),
            user: Some(login("ana")),
            groups: vec![login("atlas")],
            expires: None,
        };
        assert_eq!(
            asked(&Credential::Secret(secret), Some("::ffff:192.0.2.7")),
            r#"{"version":1,"credential":"secret","subject":"ana","issuer":null,"secret":"fts","groups":["atlas"],"client":"192.0.2.7"}"#
        );
        let user = Credential::LocalUser { name: login("a\"b"), groups: Vec::new() };
        assert_eq!(
            asked(&user, None),
            r#"{"version":1,"credential":"local_user","subject":"a\"b","issuer":null,"secret":null,"groups":[],"client":null}"#
        );
        assert_eq!(MappingQuestion::new(&Credential::Anonymous, None), None);
    }

    #[test]
    fn answers_have_a_principal_or_a_reason() {
        let parse = |text: &str| MappingReply::parse(text.as_bytes());
        let MappingReply::Principal { principal, groups } =
            parse(r#"{"principal": "ana", "groups": ["atlas/prod", "b", "b"], "more": [1]}"#).unwrap()
        else {
            panic!("a principal")
        };
        assert_eq!(
            (principal.as_str(), groups.iter().map(PrincipalName::as_str).collect::<Vec<_>>()),
            ("ana", vec!["atlas/prod", "b"])
        );
        assert!(
            matches!(parse(r#"{"principal": "ana"}"#), Ok(MappingReply::Principal { groups, .. }) if groups.is_empty())
        );
        assert_eq!(parse(r#"{"refused": "banned\n"}"#), Ok(MappingReply::Refused("banned\\n".into())));
        for (text, why) in [
            ("", "JSON"),
            ("[]", "JSON"),
            ("{}", "either"),
            (r#"{"principal": "ana", "refused": "x"}"#, "either"),
            (r#"{"principal": 1}"#, "JSON"),
            (r#"{"principal": "ana", "principal": "ben"}"#, "JSON"),
            (r#"{"principal": ""}"#, "name"),
            (r#"{"principal": "a b"}"#, "name"),
            (r#"{"principal": "17"}"#, "name"),
            (r#"{"principal": "Admin"}"#, "[[identity]]"),
            (r#"{"principal": "ana", "groups": ["root"]}"#, "[[identity]]"),
            (r#"{"principal": "ana", "groups": ["a b"]}"#, "name"),
            (r#"{"principal": "ana", "groups": "atlas"}"#, "JSON"),
        ] {
            let found = parse(text).unwrap_err().to_string();
            assert!(found.contains(why), "{text}: {found}");
        }
        let many = |count: usize| {
            let groups: Vec<String> = (0..count).map(|number| format!("g{number}")).collect();
            parse(&format!(r#"{{"principal": "ana", "groups": {groups:?}}}"#))
        };
        assert!(many(GROUPS_MAX).is_ok());
        assert_eq!(many(GROUPS_MAX + 1), Err(MappingReplyError::TooManyGroups(GROUPS_MAX + 1)));
        assert_eq!(MappingReply::parse(&vec![b' '; MAPPING_REPLY_BYTES_MAX + 1]), Err(MappingReplyError::TooLong));
    }

    proptest! {
        #[test]
        fn outside_answers_do_not_panic(text in "[{}\\[\\]\":,a-z0-9 ]{0,80}") {
            let _ = MappingReply::parse(text.as_bytes());
        }
    }
}
