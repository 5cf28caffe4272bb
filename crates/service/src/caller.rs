//! Who asks for something.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use namespace::Actor;
use types::{ClientIdentity, PrincipalId};

/// What the caller's credentials allow at all, whatever its principal may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rights {
    /// To read and to change.
    #[default]
    Full,
    /// To read only.
    ReadOnly,
}

/// Whom a caller acts as. A front end gets it from credentials; without authentication, from the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// Its number; 0 is the administrator.
    pub id: PrincipalId,
    /// Its groups, also numeric principals. New files get the first one.
    pub groups: Arc<[PrincipalId]>,
    /// What its credentials allow.
    pub rights: Rights,
}

impl Principal {
    /// The administrator, whom no rule stops.
    #[must_use]
    pub fn admin() -> Self {
        let Actor { principal, groups } = Actor::admin();
        Self { id: principal, groups, rights: Rights::Full }
    }
}

/// Who asks, and from where. Each call to the service is on behalf of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// Whom it acts as: what it may do, and what it makes belongs to it.
    pub principal: PrincipalId,
    /// The groups of this principal.
    pub groups: Arc<[PrincipalId]>,
    /// What its credentials allow.
    pub rights: Rights,
    /// Where its connection comes from.
    pub peer: SocketAddr,
    /// What it says that it is. A writer that lost its connection is found again by this *and* its principal.
    pub client: ClientIdentity,
    /// The front end that it uses ("root", "http"), for logs.
    pub protocol: &'static str,
}

impl Caller {
    /// One who acts as `principal`, and has not said yet which client it is.
    #[must_use]
    pub fn new(principal: &Principal, peer: SocketAddr, protocol: &'static str) -> Self {
        let Principal { id, groups, rights } = principal.clone();
        Self { principal: id, groups, rights, peer, client: ClientIdentity::default(), protocol }
    }

    /// The same with `client`, as a client of this caller's principal.
    #[must_use]
    pub fn with_client(&self, client: ClientIdentity) -> Self {
        Self { client: ClientIdentity { principal: self.principal, ..client }, ..self.clone() }
    }

    /// As the namespace wants it.
    pub(crate) fn actor(&self) -> Actor {
        Actor { principal: self.principal, groups: Arc::clone(&self.groups) }
    }

    /// Whether `other` is the same client of the same principal: only then may it end or take over what this one has begun.
    #[must_use]
    pub fn is_same_client(&self, other: &Self) -> bool {
        self.principal == other.principal && self.client == other.client
    }
}

/// The client, its address and the principal.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { principal, peer, client, .. } = self;
        if *client != ClientIdentity::default() {
            write!(f, "{}.{}@", client.user.escape_debug(), client.pid)?;
        }
        write!(f, "{peer} (principal {principal})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_principal_is_another_client_whatever_it_says() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let client = ClientIdentity { principal: PrincipalId(0), user: "ana".into(), pid: 7, host: "127.0.0.1".into() };
        let ana = Caller::new(&Principal::admin(), peer, "test").with_client(client.clone());
        let other = Principal { id: PrincipalId(8), ..Principal::admin() };
        assert!(ana.is_same_client(&ana.clone()));
        assert!(!ana.is_same_client(&Caller::new(&other, peer, "test").with_client(client)));
        assert_eq!(ana.to_string(), "ana.7@127.0.0.1:1 (principal 0)");
    }
}
