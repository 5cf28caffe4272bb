//! A standby manager: it has no namespace, and sends clients to the active manager.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::error::{Error, Redirect};

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
