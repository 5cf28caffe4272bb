//! Further connections to a file that is open for reading, at other replicas than those already in use. So several
//! connections use the disks and networks of several servers.
//!
//! The manager of a cluster is told which servers are in use by the hint `tried=`, and by `triedrc=resel` that they are
//! good. It prefers others, and comes back to those if no other server has a good replica. Stock redirectors would refuse
//! then, or make the client wait, so only weir's managers are told.

use std::time::Duration;

use types::capability::OBJECT_KEY;
use wire::Request;
use wire::request::OpenOptions;

use crate::{Client, ClientError, Endpoint, RemoteFile, Url};

/// A server whose round trip is longer than that of the others by this, and twice as long, is far away.
const FAR: Duration = Duration::from_millis(5);
/// How often a server that seems to be far away is asked again. One that is near and busy answers one of them at once.
const PINGS: usize = 4;

impl RemoteFile {
    /// Whether other servers may have replicas of it: a manager of weir has chosen its server.
    #[must_use]
    pub fn may_have_replicas(&self) -> bool {
        self.origin.server != self.url.server && self.url.word(OBJECT_KEY).is_some()
    }

    /// Returns the approximate round trip time to its server.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.session.round_trip()
    }

    /// Whether its server is far away, compared with one at the round trip time `near`.
    fn is_far(&mut self, near: Duration) -> Result<bool, ClientError> {
        for _ in 0..PINGS {
            if !is_far(near, self.round_trip()) {
                return Ok(false);
            }
            self.call("ping for", Request::Ping)?;
        }
        Ok(is_far(near, self.round_trip()))
    }
}

impl Client {
    /// Opens a file for reading once more, if possible at a server that is not among `used`, at which this client has
    /// it open. Takes one of `used` if no other server has a replica, if the other one refuses, or if it is far away:
    /// `near` is the round trip time to a server in use. Call this only for a file that
    /// [may have replicas](RemoteFile::may_have_replicas).
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open_at_another(&mut self, url: &Url, used: &[Endpoint], near: Duration) -> Result<RemoteFile, ClientError> {
        if used.is_empty() {
            return self.open(url, OpenOptions::READ, 0);
        }
        let mut asked = url.clone();
        used.iter().for_each(|server| asked.add_tried(&server.host));
        asked.add_words(&format!("triedrc={}", vec!["resel"; used.len()].join(",")));
        let opened = self.open(&asked, OpenOptions::READ, 0);
        match opened.and_then(|mut file| Ok((!file.is_far(near)?).then_some(file))) {
            Ok(Some(mut file)) => {
                // When this connection is lost, any replica will do.
                file.origin = url.clone();
                file.url = file.url.without("tried").without("triedrc");
                Ok(file)
            }
            Ok(None) => self.open(url, OpenOptions::READ, 0),
            Err(ClientError::Stopped) => Err(ClientError::Stopped),
            Err(error) => {
                tracing::info!(%error, "opening {url} at a server in use");
                self.open(url, OpenOptions::READ, 0)
            }
        }
    }
}

/// The servers of the connections to one file.
#[derive(Clone, Debug, Default)]
pub struct ServersInUse {
    counts: Vec<(Endpoint, usize)>,
    /// A manager that was asked for another server than these has chosen one of them.
    no_others: bool,
}

impl ServersInUse {
    /// Another connection goes to `server`.
    pub fn add(&mut self, server: Option<&Endpoint>) {
        let Some(server) = server else { return };
        match self.counts.iter_mut().find(|(other, _)| other == server) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((server.clone(), 1)),
        }
    }

    /// A connection to `server` has ended, or is no longer counted there.
    pub fn remove(&mut self, server: Option<&Endpoint>) {
        if let Some((_, count)) = self.counts.iter_mut().find(|(other, _)| Some(other) == server) {
            *count = count.saturating_sub(1);
        }
        self.counts.retain(|(_, count)| *count > 0);
    }

    /// Another connection went to `server`, where [`Client::open_at_another`] was told `used`.
    pub fn came(&mut self, server: Option<&Endpoint>, used: &[Endpoint]) {
        self.no_others |= server.is_some_and(|server| used.contains(server));
        self.add(server);
    }

    /// Returns the servers for [`Client::open_at_another`]: those that the next connection should not go to: all, unless there are no others. Then those with
    /// more connections than another one.
    #[must_use]
    pub fn most_used(&self) -> Vec<Endpoint> {
        let fewest = self.counts.iter().map(|(_, count)| *count).min().unwrap_or_default();
        let is_used = |count: usize| !self.no_others || count > fewest;
        self.counts.iter().filter(|(_, count)| is_used(*count)).map(|(server, _)| server.clone()).collect()
    }
}

fn is_far(near: Duration, other: Duration) -> bool {
    other > near.saturating_mul(2).max(near.saturating_add(FAR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_at_a_much_longer_round_trip_is_far() {
        let far = |near, other| is_far(Duration::from_micros(near), Duration::from_micros(other));
        assert!(!far(100, 100) && !far(100, 5_000) && far(100, 6_000));
        assert!(!far(20_000, 40_000) && far(20_000, 41_000) && !far(20_000, 100));
        assert!(!is_far(Duration::MAX, Duration::MAX));
    }

    #[test]
    fn connections_go_to_new_servers_first_and_then_to_those_with_few() {
        let at = |port| Endpoint { host: "127.0.0.1".to_owned(), port };
        let mut servers = ServersInUse::default();
        assert!(servers.most_used().is_empty());
        servers.add(None);
        servers.add(Some(&at(1)));
        assert_eq!(servers.most_used(), [at(1)]);
        servers.came(Some(&at(2)), &[at(1)]);
        assert_eq!(servers.most_used(), [at(1), at(2)], "there may be a third one");
        servers.came(Some(&at(2)), &[at(1), at(2)]);
        assert_eq!(servers.most_used(), [at(2)]);
        servers.came(Some(&at(1)), &[at(2)]);
        assert!(servers.most_used().is_empty(), "each has two");
        servers.remove(Some(&at(1)));
        assert_eq!(servers.most_used(), [at(2)]);
        servers.remove(Some(&at(1)));
        servers.remove(Some(&at(1)));
        servers.remove(None);
        assert!(servers.most_used().is_empty(), "the other one may be gone");
    }
}
