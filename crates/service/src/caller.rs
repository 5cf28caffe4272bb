//! The caller of a request.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use identity::DelegatedProxy;
use namespace::{Actor, PathLimits};
use types::{ClientIdentity, PrincipalId};

/// The limits that the caller's credentials set, in addition to the permissions of its principal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rights {
    /// Reading and changing.
    #[default]
    Full,
    /// Reading only.
    ReadOnly,
}

/// The principal of a caller. A front end derives it from credentials, or from the configuration if there is no
/// authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// The principal's number; 0 is the administrator.
    pub id: PrincipalId,
    /// The groups, which are also numeric principals. New files get the first one.
    pub groups: Arc<[PrincipalId]>,
    /// What the credentials allow.
    pub rights: Rights,
    /// Where the credentials allow it, if not everywhere.
    pub limits: Option<Arc<dyn PathLimits>>,
    /// Its name, if it has shown one.
    pub name: Option<Arc<str>>,
}

/// Stands for a user or a group without a number, and for one that does not exist. Nobody gets this number.
pub(crate) const NOBODY: PrincipalId = PrincipalId(u32::MAX);

impl Principal {
    /// A client that has not yet shown who it is. It owns nothing, is in no group, and changes nothing.
    #[must_use]
    pub fn nobody() -> Self {
        Self { id: NOBODY, groups: Arc::from([]), rights: Rights::ReadOnly, limits: None, name: Some("nobody".into()) }
    }

    /// The administrator, who passes all permission checks.
    #[must_use]
    pub fn admin() -> Self {
        let Actor { principal, groups, .. } = Actor::admin();
        Self { id: principal, groups, rights: Rights::Full, limits: None, name: None }
    }
}

/// How a client has shown who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// The name of the mechanism, as in `ztn`.
    pub mechanism: &'static str,
    /// The credential, in words that let nobody in.
    pub credential: String,
    /// A proxy with which this node can act as the client elsewhere, for third-party copies.
    pub delegated: Option<DelegatedProxy>,
}

/// The identity and origin of a request. Every call to the service is on behalf of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The principal. Permissions are checked for it, and it owns what the caller creates.
    pub principal: PrincipalId,
    /// The groups of the principal.
    pub groups: Arc<[PrincipalId]>,
    /// What the credentials allow.
    pub rights: Rights,
    /// Where the credentials allow it, if not everywhere.
    pub limits: Option<Arc<dyn PathLimits>>,
    /// The name of the principal, if it has shown one.
    pub name: Option<Arc<str>>,
    /// How it has shown who it is, if it had to.
    pub login: Option<Arc<Login>>,
    /// The number of its session, if it has one.
    pub session: Option<u64>,
    /// The address from which the caller connects.
    pub peer: SocketAddr,
    /// What the client says about itself. The service recognises a returning writer by this *and* its principal.
    pub client: ClientIdentity,
    /// The protocol, as in a URL ("root", "http"). The caller is sent only to servers that have an address for it.
    pub protocol: &'static str,
}

impl Caller {
    /// A caller that acts as `principal` and has not yet identified its client.
    #[must_use]
    pub fn new(principal: &Principal, peer: SocketAddr, protocol: &'static str) -> Self {
        let Principal { id, groups, rights, limits, name } = principal.clone();
        let client = ClientIdentity::default();
        Self { principal: id, groups, rights, limits, name, login: None, session: None, peer, client, protocol }
    }

    /// The same caller as `principal`, which its credential stands for.
    #[must_use]
    pub fn with_principal(&self, principal: &Principal) -> Self {
        let (client, session) = (self.client.clone(), self.session);
        Self { client, session, ..Self::new(principal, self.peer, self.protocol) }
    }

    /// The same caller, which has shown in this way who it is.
    #[must_use]
    pub fn with_login(self, login: Login) -> Self {
        Self { login: Some(Arc::new(login)), ..self }
    }

    /// The same caller, identified as `client`.
    #[must_use]
    pub fn with_client(&self, client: ClientIdentity) -> Self {
        Self { client: ClientIdentity { principal: self.principal, ..client }, ..self.clone() }
    }

    /// The same caller, as the principal that a capability names. A disk server knows its
    /// clients by nothing else: the manager has found out who they are, and what they may.
    #[must_use]
    pub(crate) fn with_capability_of(&self, principal: PrincipalId) -> Self {
        let client = ClientIdentity { principal, ..self.client.clone() };
        Self { principal, client, name: None, ..self.clone() }
    }

    /// The proxy that the client has delegated.
    #[must_use]
    pub fn delegated(&self) -> Option<&DelegatedProxy> {
        self.login.as_ref()?.delegated.as_ref()
    }

    /// The same caller, without the proxy that it has delegated.
    #[must_use]
    pub(crate) fn without_delegated(self: &Arc<Self>) -> Arc<Self> {
        match &self.login {
            Some(login) if login.delegated.is_some() => {
                let login = Login { delegated: None, ..Login::clone(login) };
                Arc::new(Self { login: Some(Arc::new(login)), ..Self::clone(self) })
            }
            _ => Arc::clone(self),
        }
    }

    /// The actor that the namespace checks permissions for.
    pub(crate) fn actor(&self) -> Actor {
        Actor { limits: self.limits.clone(), ..Actor::new(self.principal, Arc::clone(&self.groups)) }
    }

    /// Whether both callers are the same client of the same principal. Only then may one end or take over what the
    /// other has begun.
    #[must_use]
    pub fn is_same_client(&self, other: &Self) -> bool {
        self.principal == other.principal && self.client == other.client
    }
}

/// Shows the client, its address and the principal.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { principal, peer, client, name, .. } = self;
        if *client != ClientIdentity::default() {
            write!(f, "{}.{}@", client.user.escape_debug(), client.pid)?;
        }
        match name {
            Some(name) => write!(f, "{peer} ({name})"),
            None => write!(f, "{peer} (principal {principal})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_outlives_a_session_has_no_proxy() {
        let proxy = DelegatedProxy::new("secret".to_owned().into(), types::Timestamp::from_secs(7));
        let login = Login { mechanism: "gsi", credential: "ana".into(), delegated: Some(proxy) };
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let caller = Arc::new(Caller::new(&Principal::admin(), peer, "test").with_login(login));
        let kept = caller.without_delegated();
        assert!(caller.delegated().is_some() && kept.delegated().is_none() && kept.is_same_client(&caller));
        assert_eq!(kept.login.as_ref().map(|login| login.credential.as_str()), Some("ana"));
        assert!(Arc::ptr_eq(&kept.without_delegated(), &kept));
    }

    #[test]
    fn another_principal_is_another_client_even_with_the_same_name() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let client = ClientIdentity { principal: PrincipalId(0), user: "ana".into(), pid: 7, host: "127.0.0.1".into() };
        let ana = Caller::new(&Principal::admin(), peer, "test").with_client(client.clone());
        let other = Principal { id: PrincipalId(8), ..Principal::admin() };
        assert!(ana.is_same_client(&ana.clone()));
        assert!(!ana.is_same_client(&Caller::new(&other, peer, "test").with_client(client)));
        assert_eq!(ana.to_string(), "ana.7@127.0.0.1:1 (principal 0)");
    }
}
