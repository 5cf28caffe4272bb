//! People who administer with the credentials that they use as clients: which role the settings give to them.

use std::fmt;
use std::net::SocketAddr;

use authentication::Authenticated;
use config::AdministratorRule;
use identity::{MatchedBy, TokenRights};
use link::admin::AdminRole;
use types::PrincipalKind;

/// A person: a principal with groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Person {
    /// Who it is, and how it has shown that.
    pub who: Authenticated,
    /// The role, or why there is none. A person without a role may own trees.
    pub role: Result<AdminRole, NoRole>,
    /// Where the person is.
    pub at: PersonAt,
}

/// Where a person is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PersonAt {
    /// On this machine, as the user with this number.
    Here(u32),
    /// At this address.
    Network(SocketAddr),
}

/// Why a person has no role. The texts say what would help.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoRole {
    /// No `[[administrator]]` is about it.
    #[error("no [[administrator]] of the settings gives one to this principal or a group of it")]
    NoRule,
    /// The mapping service says who clients are, but makes no administrators: it would decide about the cluster.
    #[error(
        "the mapping service has said who this is, and it cannot make administrators: write an [[identity]] for this person"
    )]
    ByMappingService,
    /// The token is for some uses of storage only. Such tokens are handed to jobs and services.
    #[error(
        "the token has scopes, so it is for what they name only: get a token without storage scopes for administration"
    )]
    LimitedToken,
    /// The proxy is limited. Such proxies are handed to jobs.
    #[error(
        "the proxy is limited, and such proxies are handed to jobs: make one that is not limited for administration"
    )]
    LimitedProxy,
    /// There is more than one proxy. Services have such proxies to which somebody has delegated one.
    #[error(
        "it is a proxy of a proxy, as services have it to which somebody has delegated one: for administration, make one directly from your certificate"
    )]
    DelegatedProxy,
    /// The token is for every service. Whoever runs another one, or breaks into it, could show it here.
    #[error(
        "the token is for every service that trusts its issuer, so each of them could show it here: get a token for one of this service's `audiences`"
    )]
    TokenForEveryService,
    /// The issuer decides about a part of the namespace. A role is about the whole cluster.
    #[error(
        "the issuer of the token decides about a part of the namespace only, and a role is about all of it: it needs `base_paths = [\"/\"]` and no `restricted_paths`, or use another credential"
    )]
    IssuerOfAPart,
}

impl Person {
    /// Decides which role the rules give to `who`: the highest of its own and those of its groups.
    #[must_use]
    pub fn new(who: Authenticated, rules: &[AdministratorRule], at: PersonAt) -> Self {
        let role = role_of(&who, rules);
        Self { who, role, at }
    }

    /// Whether the person may act as the owner of a tree. Only the namespace knows whether it owns one.
    #[must_use]
    pub fn may_own(&self) -> bool {
        let is_for_others = matches!(
            self.role,
            Err(NoRole::LimitedToken | NoRole::LimitedProxy | NoRole::DelegatedProxy | NoRole::TokenForEveryService)
        );
        !is_for_others
    }
}

fn role_of(who: &Authenticated, rules: &[AdministratorRule]) -> Result<AdminRole, NoRole> {
    if who.is_limited_proxy {
        return Err(NoRole::LimitedProxy);
    }
    // A proxy that was delegated straight from a certificate looks like one that its owner has made.
    if who.proxies > 1 {
        return Err(NoRole::DelegatedProxy);
    }
    match &who.rights {
        Some(TokenRights::Scoped(_) | TokenRights::Nothing { .. }) => return Err(NoRole::LimitedToken),
        Some(TokenRights::Identity(rights)) if rights.is_for_every_service() => {
            return Err(NoRole::TokenForEveryService);
        }
        // What it owns lies in that part: the namespace checks each path.
        Some(TokenRights::Identity(rights)) if !rights.is_of_everything() => return Err(NoRole::IssuerOfAPart),
        Some(TokenRights::Identity(_)) | None => {}
    }
    if who.by == MatchedBy::MappingService {
        return Err(NoRole::ByMappingService);
    }
    let is_about = |rule: &&AdministratorRule| match rule.kind {
        PrincipalKind::User => rule.name == who.name,
        PrincipalKind::Group => who.groups.contains(&rule.name),
    };
    rules.iter().filter(is_about).map(|rule| rule.role).max().ok_or(NoRole::NoRule)
}

impl fmt::Display for PersonAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(uid) => write!(f, "control socket, uid {uid}"),
            Self::Network(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use authentication::Mechanism;
    use identity::Audience;
    use link::admin::AdminRole::{Admin, Operator, Viewer};
    use types::PrincipalName;

    use super::*;

    fn name(kind: PrincipalKind, text: &str) -> PrincipalName {
        PrincipalName::parse(kind, text).unwrap()
    }

    /// A client with these groups, as a rule has named it.
    pub(crate) fn client(user: &str, groups: &[&str]) -> Authenticated {
        Authenticated {
            name: name(PrincipalKind::User, user),
            groups: groups.iter().map(|group| name(PrincipalKind::Group, group)).collect(),
            rights: None,
            credential: format!("subject {user} of https://a.example"),
            mechanism: Mechanism::Ztn,
            by: MatchedBy::Rule { number: 1, conditions: String::new() },
            expires: None,
            session_key: None,
            delegated: None,
            is_limited_proxy: false,
            proxies: 0,
        }
    }

    fn rules() -> Vec<AdministratorRule> {
        let of = |kind, text: &str, role| AdministratorRule { kind, name: name(kind, text), role };
        vec![
            of(PrincipalKind::User, "ana", Viewer),
            of(PrincipalKind::Group, "ops", Operator),
            of(PrincipalKind::Group, "chiefs", Admin),
            of(PrincipalKind::User, "ben", Admin),
            of(PrincipalKind::Group, "ben", Viewer),
        ]
    }

    #[test]
    fn the_highest_role_of_a_principal_and_its_groups_counts() {
        let rules = rules();
        // A user and a group of the same name are two; the case of letters counts.
        for (user, groups, role) in [
            ("ana", &[][..], Ok(Viewer)),
            ("ana", &["ops"], Ok(Operator)),
            ("ana", &["ops", "chiefs", "more"], Ok(Admin)),
            ("ben", &["ops"], Ok(Admin)),
            ("eve", &["ops"], Ok(Operator)),
            ("eve", &["ben"], Ok(Viewer)),
            ("ops", &[], Err(NoRole::NoRule)),
            ("eve", &["ana", "Ops", "ops2"], Err(NoRole::NoRule)),
            ("Ana", &[], Err(NoRole::NoRule)),
            ("admin", &["admin"], Err(NoRole::NoRule)),
        ] {
            assert_eq!(role_of(&client(user, groups), &rules), role, "{user} {groups:?}");
            assert_eq!(role_of(&client(user, groups), &[]), Err(NoRole::NoRule));
        }
    }

    #[test]
    fn a_token_for_jobs_and_the_mapping_service_make_no_administrator() {
        let rules = rules();
        let person = |who| Person::new(who, &rules, PersonAt::Here(1));
        let scoped = Some(TokenRights::of_scopes("storage.modify:/ storage.read:/").unwrap());
        let nothing = Some(TokenRights::Nothing { issuer: "https://a.example".into() });
        for rights in [scoped, nothing] {
            let limited = person(Authenticated { rights, ..client("ben", &["chiefs"]) });
            assert_eq!((limited.role, limited.may_own()), (Err(NoRole::LimitedToken), false));
        }
        // The same token gives the role if it is for this service, and its issuer decides about everything.
        let of = |base: &str, audience| {
            let rights = TokenRights::of_identity(types::NsPath::parse(base.as_bytes()).unwrap(), audience);
            let found = person(Authenticated { rights: Some(rights), ..client("ben", &["chiefs"]) });
            (found.role, found.may_own())
        };
        assert_eq!(of("/", Audience::ThisService), (Ok(Admin), true));
        assert_eq!(of("/", Audience::EveryService), (Err(NoRole::TokenForEveryService), false));
        assert_eq!(of("/cms", Audience::EveryService), (Err(NoRole::TokenForEveryService), false));
        assert_eq!(of("/cms", Audience::ThisService), (Err(NoRole::IssuerOfAPart), true));
        let proxy = person(Authenticated { is_limited_proxy: true, ..client("ben", &["chiefs"]) });
        assert_eq!((proxy.role, proxy.may_own()), (Err(NoRole::LimitedProxy), false));
        for (proxies, role) in
            [(0, Ok(Admin)), (1, Ok(Admin)), (2, Err(NoRole::DelegatedProxy)), (9, Err(NoRole::DelegatedProxy))]
        {
            let found = person(Authenticated { proxies, ..client("ben", &["chiefs"]) });
            assert_eq!((found.role, found.may_own()), (role, role.is_ok()), "{proxies}");
        }
        let by_service = person(Authenticated { by: MatchedBy::MappingService, ..client("ben", &["chiefs"]) });
        assert_eq!((by_service.role, by_service.may_own()), (Err(NoRole::ByMappingService), true));
        assert!(person(client("eve", &[])).may_own());
    }
}
