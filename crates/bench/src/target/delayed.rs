//! A system through a proxy that delays the path to its server.

use std::io;
use std::sync::Arc;

use super::{IoOptions, Purpose, RelName, Target, TargetError};
use crate::delay::DelayProxy;

/// A system that seems further away. Its proxy ends with it.
pub struct DelayedTarget {
    target: Arc<dyn Target>,
    proxy: DelayProxy,
    /// The server behind the proxy, for errors.
    server: String,
}

impl DelayedTarget {
    pub(super) fn new(target: Arc<dyn Target>, proxy: DelayProxy, server: String) -> Self {
        Self { target, proxy, server }
    }

    /// Returns the system.
    #[must_use]
    pub fn target(&self) -> &Arc<dyn Target> {
        &self.target
    }

    /// Checks with one file that the server answers itself. Clients that it redirects would go around the proxy.
    ///
    /// # Errors
    /// The server redirects, or the file cannot be opened.
    pub fn check(&self, name: &RelName) -> Result<(), TargetError> {
        let mut session = self.target.session()?;
        let file = session.open(name, Purpose::Read, IoOptions::default())?;
        let (proxy, found) = (self.proxy.address().to_string(), file.server());
        file.close()?;
        match found.filter(|found| *found != proxy) {
            None => Ok(()),
            Some(found) => Err(TargetError::path(
                format!("delay the path to {}", self.server),
                io::Error::other(format!(
                    "it redirects clients to {found}, and they would reach that server without the delay; name a server that \
                     redirects nobody, or use `added_round_trip`"
                )),
            )),
        }
    }
}
