//! Who makes a request: a user of this machine, or an administrator with a certificate of the cluster.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use link::admin::{AdminId, AdminRole};

/// The file with the names of users (passwd(5)).
const PASSWD: &str = "/etc/passwd";
/// A longer file is not read to its end: the user is then shown by number.
const PASSWD_MAX: u64 = 4 << 20;

/// Who makes a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// A user of this machine, who may open the socket: the owner of the data directory, or root.
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
}

impl Caller {
    /// The user at the other end of a socket of this machine.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(super) fn of_socket(socket: impl AsFd) -> std::io::Result<Self> {
        let peer = rustix::net::sockopt::socket_peercred(socket)?;
        let uid = peer.uid.as_raw();
        Ok(Self::Local { uid, user: user_name(uid) })
    }

    /// What the caller may do. A local user who can open the socket could also change the files under it.
    #[must_use]
    pub fn role(&self) -> AdminRole {
        match self {
            Self::Local { .. } => AdminRole::Admin,
            Self::Remote { role, .. } => *role,
        }
    }

    /// The name for the log.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Local { uid, user: None } => format!("uid {uid}"),
            Self::Local { user: Some(user), .. } => user.clone(),
            Self::Remote { name, .. } => name.clone(),
        }
    }

    /// Where the request comes from, for the log.
    #[must_use]
    pub fn peer(&self) -> String {
        match self {
            Self::Local { uid, .. } => format!("control socket, uid {uid}"),
            Self::Remote { peer, .. } => peer.to_string(),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.name(), self.role(), self.peer())
    }
}

fn user_name(uid: u32) -> Option<String> {
    let passwd = std::fs::File::open(PASSWD).ok()?.take(PASSWD_MAX);
    let mut lines = BufReader::new(passwd).split(b'\n');
    lines.find_map(|line| user_in(&line.ok()?, uid))
}

/// The user's name, if this line of passwd(5) is about this number.
fn user_in(line: &[u8], uid: u32) -> Option<String> {
    let mut fields = std::str::from_utf8(line).ok()?.split(':');
    let (name, number) = (fields.next()?, fields.nth(1)?);
    let is_it = number.parse() == Ok(uid) && !name.is_empty() && !name.starts_with(['+', '-']);
    is_it.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        assert_eq!(user_in(b"root:x:0:0:root:/root:/bin/sh", 0), Some("root".into()));
        for (line, uid) in [(&b"root:x:0:0::/:"[..], 1), (b"+:x:0", 0), (b"root:x", 0), (b"", 0), (b"\xff:x:0", 0)] {
            assert_eq!(user_in(line, uid), None, "{line:?}");
        }
    }

    #[test]
    fn the_user_at_a_socket_is_this_one() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = rustix::process::getuid().as_raw();
        let Caller::Local { uid, .. } = Caller::of_socket(&ours).unwrap() else { panic!("it is a local user") };
        assert_eq!(uid, own);
    }
}
