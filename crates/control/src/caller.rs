//! Who makes a request: the owner of the node on its machine, an administrator with a certificate of the cluster, or a person with a credential of a
//! client.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use link::admin::{AdminId, AdminRole};

use crate::local_user::user_name;
use crate::person::{Person, PersonAt};

/// Who makes a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// Root, or the user that the node runs as, on its machine.
    Local {
        /// The number of the user.
        uid: u32,
        /// The name of the user, if this machine's list of users has it.
        user: Option<String>,
    },
    /// An administrator, from any machine.
    Remote {
        /// The id.
        id: AdminId,
        /// The name.
        name: String,
        /// The role.
        role: AdminRole,
        /// The address.
        peer: SocketAddr,
    },
    /// A person, from any machine.
    Person(Box<Person>),
}

impl Caller {
    /// The user of this machine with this number, if it is root or the one that this process runs as: they could also change the files of the node.
    #[must_use]
    pub fn owner_of_node(uid: u32) -> Option<Self> {
        let is_owner = uid == 0 || uid == rustix::process::geteuid().as_raw();
        is_owner.then(|| Self::Local { uid, user: user_name(uid) })
    }

    /// What the caller may do; `None`: nothing but what owners of trees may.
    #[must_use]
    pub fn role(&self) -> Option<AdminRole> {
        match self {
            Self::Local { .. } => Some(AdminRole::Admin),
            Self::Remote { role, .. } => Some(*role),
            Self::Person(person) => person.role.ok(),
        }
    }

    /// The name for the log.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Local { uid, user: None } => format!("uid {uid}"),
            Self::Local { user: Some(user), .. } => user.clone(),
            Self::Remote { name, .. } => name.clone(),
            Self::Person(person) => person.who.name.to_string(),
        }
    }

    /// The name, and of a person also the credential: whoever has stolen that one must be found by what it was used for.
    #[must_use]
    pub fn with_credential(&self) -> String {
        match self {
            Self::Local { .. } | Self::Remote { .. } => self.name(),
            Self::Person(person) => format!("{}, by {}", self.name(), person.who.credential),
        }
    }

    /// Where the request comes from, for the log.
    #[must_use]
    pub fn peer(&self) -> String {
        match self {
            Self::Local { uid, .. } => format!("control socket, uid {uid}"),
            Self::Remote { peer, .. } => peer.to_string(),
            Self::Person(person) => person.at.to_string(),
        }
    }

    /// How the caller has shown who it is, and the credential if there is more to say. Nobody can log in with it.
    pub(crate) fn shown_by(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Local { .. } => ("control socket", None),
            Self::Remote { .. } => ("administrator's certificate", None),
            Self::Person(person) => {
                let mechanism = match person.at {
                    PersonAt::Here(_) => "control socket",
                    PersonAt::Network(_) => person.who.mechanism.name(),
                };
                (mechanism, Some(&person.who.credential))
            }
        }
    }
}

/// The number of the user at the other end of a socket of this machine, as the kernel says it.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn user_at(socket: impl AsFd) -> std::io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw())
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role() {
            Some(role) => write!(f, "{} ({role}, {})", self.name(), self.peer()),
            None => write!(f, "{} (no role, {})", self.name(), self.peer()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_user_at_a_socket_is_this_one() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = rustix::process::getuid().as_raw();
        assert_eq!(user_at(&ours).unwrap(), own);
        let Some(Caller::Local { uid, .. }) = Caller::owner_of_node(own) else { panic!("it owns the node") };
        assert_eq!(uid, own);
        assert_eq!(Caller::owner_of_node(0).and_then(|root| root.role()), Some(AdminRole::Admin));
        assert_eq!(Caller::owner_of_node(own ^ 0x7000), None);
    }
}
