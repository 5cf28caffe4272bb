//! Further connections to a file that is open for reading, at other replicas than those already in use. So several
//! connections use the disks and networks of several servers.
//!
//! The manager of a cluster is told which servers are in use by the hint `tried=`, and by `triedrc=resel` that they are
//! good. It prefers others that are as good and as near, and comes back to those if there is none. Stock redirectors
//! would refuse then, or make the client wait, so only weir's managers are told.

use std::time::Duration;

use wire::Request;
use wire::request::OpenOptions;

use crate::{Client, ClientError, Endpoint, RemoteFile, Url};

/// A server whose round trip is longer than that of the others by this, and twice as long, is far away.
const FAR: Duration = Duration::from_millis(5);
/// How often the round trip is measured again before a server counts as far away: it may just have been busy.
const MEASURED_AGAIN: usize = 3;

/// A further connection to a file.
#[derive(Debug)]
pub struct Another {
    /// The open file.
    pub file: RemoteFile,
    /// The manager has sent the client to a server that was not in use, but that one has refused or failed, or is far
    /// away. So the file is open at any server.
    pub was_rejected: bool,
}

impl RemoteFile {
    /// Whether other servers may have replicas of it: the server that was asked is a manager of weir, and has chosen its
    /// server.
    #[must_use]
    pub fn may_have_replicas(&self) -> bool {
        self.is_of_cluster && self.origin.server != self.url.server
    }

    /// Returns the approximate round trip time to its server.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.session.round_trip()
    }

    fn is_far(&mut self, near: Duration) -> Result<bool, ClientError> {
        for _ in 0..MEASURED_AGAIN {
            if !is_far(near, self.round_trip()) {
                break;
            }
            self.call("measure the way to", Request::Ping)?;
        }
        Ok(is_far(near, self.round_trip()))
    }
}

impl Client {
    /// Opens a file for reading once more, at a server that is not among `used`, at which this client has it open, or, if
    /// the manager knows no other that is as good, at the one that it names. If the other server refuses or fails, or is
    /// far away, opens the file like the first time, at any server. `near` is the round trip time to a server in use. Call
    /// this only for a file that [may have replicas](RemoteFile::may_have_replicas).
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open_at_another(&mut self, url: &Url, used: &[Endpoint], near: Duration) -> Result<Another, ClientError> {
        if used.is_empty() {
            return Ok(Another { file: self.open(url, OpenOptions::READ, 0)?, was_rejected: false });
        }
        match self.open_near(url, used, near) {
            Ok(Some(file)) => return Ok(Another { file, was_rejected: false }),
            Ok(None) => {}
            Err(ClientError::Stopped) => return Err(ClientError::Stopped),
            Err(error) => tracing::info!(%error, "opening {url} at any server"),
        }
        Ok(Another { file: self.open(url, OpenOptions::READ, 0)?, was_rejected: true })
    }

    /// `None`: the other server is far away.
    fn open_near(&mut self, url: &Url, used: &[Endpoint], near: Duration) -> Result<Option<RemoteFile>, ClientError> {
        let mut asked = url.clone();
        used.iter().for_each(|server| asked.add_tried(&server.host));
        asked.add_words(&format!("triedrc={}", vec!["resel"; used.len()].join(",")));
        let mut file = self.open(&asked, OpenOptions::READ, 0)?;
        if !used.contains(&file.url.server) && file.is_far(near)? {
            return Ok(None);
        }
        // When this connection is lost, any replica will do.
        file.origin = url.clone();
        file.url = file.url.without("tried").without("triedrc");
        Ok(Some(file))
    }
}

/// The servers of the connections to one file.
#[derive(Clone, Debug, Default)]
pub struct ServersInUse {
    counts: Vec<(Endpoint, usize)>,
    /// A manager that was asked for another server than these has chosen one of them: there is no other that is as good.
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

    /// Another connection went to `server`, where [`Client::open_at_another`] was told `used`. A server that
    /// `was_rejected` may be good the next time.
    pub fn came(&mut self, server: Option<&Endpoint>, used: &[Endpoint], was_rejected: bool) {
        self.no_others |= !was_rejected && server.is_some_and(|server| used.contains(server));
        self.add(server);
    }

    /// Returns the servers to which the next connection should not go, for [`Client::open_at_another`]: all, or, if there
    /// are no others, those with more connections than another one.
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
        servers.came(Some(&at(2)), &[at(1)], false);
        assert_eq!(servers.most_used(), [at(1), at(2)], "there may be a third one");
        servers.came(Some(&at(2)), &[at(1), at(2)], true);
        assert_eq!(servers.most_used(), [at(1), at(2)], "the third one may be good the next time");
        servers.remove(Some(&at(2)));
        servers.came(Some(&at(2)), &[at(1), at(2)], false);
        assert_eq!(servers.most_used(), [at(2)]);
        servers.came(Some(&at(1)), &[at(2)], false);
        assert!(servers.most_used().is_empty(), "each has two");
        servers.remove(Some(&at(1)));
        assert_eq!(servers.most_used(), [at(2)]);
        servers.remove(Some(&at(1)));
        servers.remove(Some(&at(1)));
        servers.remove(None);
        assert!(servers.most_used().is_empty(), "the other one may be gone");
    }
}
