//! A standby manager: it answers readers, as long as it hears of the active manager, and sends everybody else there.
//!
//! It answers only what it knows for sure. Whatever else the answer would be (a file that is being written, a store that is away, a database that does not
//! answer), the active manager may know more, so the client goes there.

use std::fmt;
use std::sync::{Arc, OnceLock};

use manager::StandbyManager;
use namespace::{FileState, Inode, Namespace};
use parking_lot::RwLock;
use types::ErrorCode;

use crate::caller::{Caller, NOBODY};
use crate::error::{Error, Redirect};
use crate::service::{Role, Service};

/// How long a client waits before it asks again, as long as no active manager is known to be there.
const WAIT_SECS: u32 = 1;

/// Where the active manager is, as a standby manager knows it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ActiveManager {
    at: Arc<RwLock<Option<(String, u16)>>>,
}

impl ActiveManager {
    /// Sets the active manager's address for clients, `host:port`; `None`: none is known to be there. Another text counts as none.
    pub fn set(&self, address: Option<&str>) {
        *self.at.write() = address.and_then(split);
    }

    /// The active manager's host and port for clients.
    #[must_use]
    pub fn get(&self) -> Option<(String, u16)> {
        self.at.read().clone()
    }

    /// The answer to a request that only the active manager can answer.
    pub(crate) fn elsewhere(&self) -> Error {
        match self.get() {
            Some((host, port)) => Error::redirect(Redirect::to_manager(host, port)),
            None => Error::Wait {
                seconds: WAIT_SECS,
                text: "This manager is a standby, and the active one is not there; one of them takes over".into(),
            },
        }
    }
}

/// What a standby manager has.
#[derive(Clone)]
pub struct Standby {
    /// Where clients are sent.
    pub active: ActiveManager,
    /// The namespace, which the active manager changes.
    namespace: Arc<Namespace>,
    reads: Arc<OnceLock<Arc<StandbyManager>>>,
}

impl fmt::Debug for Standby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby").field("active", &self.active).finish_non_exhaustive()
    }
}

impl Standby {
    /// A standby that reads `namespace`. It answers readers from [`Standby::begin_to_read`] on.
    #[must_use]
    pub fn new(active: ActiveManager, namespace: Arc<Namespace>) -> Self {
        Self { active, namespace, reads: Arc::default() }
    }

    /// It answers readers by what `manager` knows. A second call changes nothing.
    pub fn begin_to_read(&self, manager: Arc<StandbyManager>) {
        let _ = self.reads.set(manager);
    }

    /// The namespace, for reading.
    #[must_use]
    pub fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// What is known here, or the active manager.
    pub(crate) fn known<T>(&self, found: Option<T>) -> Result<T, Error> {
        found.ok_or_else(|| self.active.elsewhere())
    }

    /// What answers readers, as long as it knows enough.
    #[must_use]
    pub fn reads(&self) -> Option<&Arc<StandbyManager>> {
        self.reads.get().filter(|manager| manager.is_current())
    }
}

/// Whether it is sure what this error says, even if the active manager knew more.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Redirect(_) => true,
        Error::Wait { .. } => false,
        Error::Refused { code, .. } => matches!(
            code,
            ErrorCode::NotFound
                | ErrorCode::Denied
                | ErrorCode::Exists
                | ErrorCode::IsDirectory
                | ErrorCode::NotDirectory
                | ErrorCode::NoAttribute
                | ErrorCode::Invalid
                | ErrorCode::NameTooLong
        ),
    }
}

impl Service {
    /// Redirects a request that only reads; `None`: this node answers it. A standby manager answers it if it knows enough.
    #[must_use]
    pub fn reads_elsewhere(&self, caller: &Caller) -> Option<Error> {
        match &self.role {
            // Only the active manager can give a number to a user who has none.
            Role::Standby(standby) if caller.principal != NOBODY && standby.reads().is_some() => None,
            _ => self.names_elsewhere(),
        }
    }

    /// The answer, unless this is a standby manager and the active one may know more.
    pub(crate) fn unless_active_knows_more<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        match (&self.role, answer) {
            (Role::Standby(standby), Err(error)) if !is_final(&error) => Err(standby.active.elsewhere()),
            (_, answer) => answer,
        }
    }

    /// Whether this is a standby manager, and the last of the hosts that the client has tried is the active one. XrdCl comes back from there after some
    /// errors, `NotFound` among them: whoever redirects it again sends it round in circles. `is_for_data`: the client may also have been at a disk server
    /// on that host, so it counts only if there is none.
    #[must_use]
    pub fn comes_from_active(&self, tried: &[String], is_for_data: bool) -> bool {
        let (Role::Standby(standby), Some(last)) = (&self.role, tried.last()) else { return false };
        let is_active = standby.active.get().is_some_and(|(host, _)| host == *last);
        let may_be_disk_server = || standby.reads.get().is_none_or(|manager| manager.has_servers_at(last));
        is_active && !(is_for_data && may_be_disk_server())
    }

    /// The inode, unless this is a standby manager and only the active one knows the length of the file.
    pub(crate) fn with_known_length(&self, inode: Inode) -> Result<Inode, Error> {
        let is_open = || inode.content().is_some_and(|content| matches!(content.state, FileState::Open(_)));
        match &self.role {
            Role::Standby(standby) if is_open() => Err(standby.active.elsewhere()),
            _ => Ok(inode),
        }
    }
}

fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_sent_to_the_active_manager_or_wait_for_one() {
        let active = ActiveManager::default();
        assert!(matches!(active.elsewhere(), Error::Wait { seconds: 1, .. }));
        active.clone().set(Some("[::1]:1094"));
        assert_eq!(active.get(), Some(("[::1]".into(), 1094)));
        assert!(matches!(active.elsewhere(), Error::Redirect(to) if to.node.is_none()));
        for wrong in [None, Some("mgr2"), Some(":1094"), Some("mgr2:0"), Some("mgr2:x")] {
            active.set(wrong);
            assert_eq!(active.get(), None, "{wrong:?}");
        }
    }
}
