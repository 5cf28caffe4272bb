//! The source of a third-party copy: checks which server may read which file for which client. The client and the
//! server may arrive in either order.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk_server::VerifiedCapability;
use parking_lot::Mutex;
use types::ErrorCode;
use types::NsPath;

use crate::error::Error;

/// How long a server that arrives first waits for its client.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of waiting servers and of grants.
const WAITING_MAX: usize = 1024;
const GRANTS_MAX: usize = 16_384;

/// What a client has allowed.
#[derive(Clone)]
pub(crate) struct Grant {
    /// The file.
    pub(crate) path: NsPath,
    /// The addresses that may read it.
    pub(crate) to: Vec<IpAddr>,
    /// The client, as `user.pid`.
    pub(crate) origin: Vec<u8>,
    /// In a cluster: the client's capability for reading the file. It was valid at the open, and the grant lasts only
    /// while the client has the file open.
    pub(crate) verified: Option<VerifiedCapability>,
}

/// A server's request for a file.
pub(crate) struct OpenRequest {
    /// The file.
    pub(crate) path: NsPath,
    /// The address of the server.
    pub(crate) from: IpAddr,
    /// The client, as `user.pid@host`.
    pub(crate) origin: Vec<u8>,
}

/// Receives the client's capability, if there is one.
type Then = Box<dyn FnOnce(Result<Option<VerifiedCapability>, Error>) + Send>;

struct Waiting {
    key: Vec<u8>,
    open_request: OpenRequest,
    until: Instant,
    then: Then,
}

/// Grants, and requests that wait for one.
#[derive(Default)]
pub(crate) struct Rendezvous {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    grants: HashMap<Vec<u8>, Grant>,
    waiting: Vec<Waiting>,
}

/// Keeps a grant until it is dropped, when the client closes the file.
pub(crate) struct Registration {
    of: Arc<Rendezvous>,
    key: Vec<u8>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.of.state.lock().grants.remove(&self.key);
    }
}

impl Rendezvous {
    /// Registers a grant. Waiting servers are answered at once.
    pub(crate) fn allow(self: &Arc<Self>, key: Vec<u8>, grant: Grant) -> Result<Registration, Error> {
        let mut state = self.state.lock();
        if state.grants.contains_key(&key) {
            return Err(Error::new(ErrorCode::Conflict, "This key of a third-party copy is in use"));
        }
        if state.grants.len() >= GRANTS_MAX {
            let text = "This server has reached its limit of third-party copies under way".to_owned();
            return Err(Error::Wait { seconds: 10, text });
        }
        state.grants.insert(key.clone(), grant.clone());
        let (met, others) = std::mem::take(&mut state.waiting).into_iter().partition(|waiting| waiting.key == key);
        state.waiting = others;
        drop(state);
        let met: Vec<Waiting> = met;
        for waiting in met {
            (waiting.then)(matches(&grant, &waiting.open_request));
        }
        Ok(Registration { of: Arc::clone(self), key })
    }

    /// Handles a request with a key. `then` is called at once, when the client arrives, or after a timeout.
    pub(crate) fn ask(&self, key: &[u8], open_request: OpenRequest, now: Instant, then: Then) {
        let mut state = self.state.lock();
        let answer = match state.grants.get(key) {
            Some(grant) => matches(grant, &open_request),
            None if state.waiting.len() >= WAITING_MAX => {
                let text = "Too many servers wait for the clients of their third-party copies".to_owned();
                Err(Error::Wait { seconds: 10, text })
            }
            None => {
                state.waiting.push(Waiting { key: key.to_vec(), open_request, until: now + PATIENCE, then });
                return;
            }
        };
        drop(state);
        then(answer);
    }

    /// Refuses requests that have waited too long. Call it regularly.
    pub(crate) fn expire(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.waiting.iter().all(|waiting| waiting.until > now) {
            return;
        }
        let (late, others) = std::mem::take(&mut state.waiting).into_iter().partition(|waiting| waiting.until <= now);
        state.waiting = others;
        drop(state);
        let late: Vec<Waiting> = late;
        for waiting in late {
            (waiting.then)(Err(denied("no client has come to allow it")));
        }
    }
}

fn denied(why: &str) -> Error {
    Error::new(ErrorCode::Denied, format!("Cannot give the file to this third-party copy: {why}"))
}

fn matches(grant: &Grant, open_request: &OpenRequest) -> Result<Option<VerifiedCapability>, Error> {
    if grant.path != open_request.path {
        return Err(denied("its key is for another file"));
    }
    let from = open_request.from.to_canonical();
    // All loopback addresses mean this machine, no matter on which one a server listens.
    let is_here = from.is_loopback() && grant.to.iter().any(IpAddr::is_loopback);
    if !is_here && !grant.to.contains(&from) {
        return Err(denied("its key is for another server"));
    }
    let client = open_request.origin.split(|byte| *byte == b'@').next().unwrap_or_default();
    if client != grant.origin {
        return Err(denied("its key is another client's"));
    }
    Ok(grant.verified.clone())
}

/// The addresses of a host. Queries the resolver, which may take long.
pub(crate) fn addresses_of(host: &str) -> Result<Vec<IpAddr>, Error> {
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let found = (name, 0).to_socket_addrs();
    let found: Vec<IpAddr> = found.into_iter().flatten().map(|address| address.ip().to_canonical()).collect();
    if found.is_empty() {
        return Err(denied(&format!("the target's host {} has no address", name.escape_debug())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn grant() -> Grant {
        Grant {
            path: NsPath::parse(b"/a").unwrap(),
            to: vec![ip("10.0.0.1")],
            origin: b"ana.7".to_vec(),
            verified: None,
        }
    }

    fn ask(all: &Rendezvous, path: &str, from: &str, origin: &str, now: Instant) -> Receiver<bool> {
        let (sender, receiver) = channel();
        let path = NsPath::parse(path.as_bytes()).unwrap();
        let open_request = OpenRequest { path, from: ip(from), origin: origin.as_bytes().to_vec() };
        all.ask(b"key", open_request, now, Box::new(move |answer| sender.send(answer.is_ok()).unwrap()));
        receiver
    }

    #[test]
    fn client_and_server_may_arrive_in_either_order() {
        let all = Arc::new(Rendezvous::default());
        let early = ask(&all, "/a", "10.0.0.1", "ana.7@host", Instant::now());
        assert!(early.try_recv().is_err());
        let registration = all.allow(b"key".to_vec(), grant()).map_err(drop).unwrap();
        assert_eq!(early.try_recv(), Ok(true));
        assert_eq!(ask(&all, "/a", "::ffff:10.0.0.1", "ana.7@else", Instant::now()).try_recv(), Ok(true));
        assert!(all.allow(b"key".to_vec(), grant()).is_err(), "a key is one copy's");
        drop(registration);
        assert!(ask(&all, "/a", "10.0.0.1", "ana.7@host", Instant::now()).try_recv().is_err(), "the client has gone");
    }

    #[test]
    fn a_key_is_for_one_file_one_server_and_one_client() {
        let all = Arc::new(Rendezvous::default());
        let _registration = all.allow(b"key".to_vec(), grant()).map_err(drop).unwrap();
        for (path, from, origin) in
            [("/b", "10.0.0.1", "ana.7@h"), ("/a", "10.0.0.2", "ana.7@h"), ("/a", "10.0.0.1", "eve.7@h")]
        {
            assert_eq!(ask(&all, path, from, origin, Instant::now()).try_recv(), Ok(false), "{path} {from} {origin}");
        }
    }

    #[test]
    fn every_loopback_address_is_this_machine() {
        let here = |text: &str| Grant { to: vec![ip(text)], ..grant() };
        let open_request = |text: &str| OpenRequest { path: grant().path, from: ip(text), origin: b"ana.7@h".to_vec() };
        assert!(matches(&here("127.0.0.3"), &open_request("127.0.0.1")).is_ok());
        assert!(matches(&here("127.0.0.3"), &open_request("::1")).is_ok());
        assert!(matches(&here("10.0.0.3"), &open_request("127.0.0.1")).is_err());
        assert!(matches(&here("127.0.0.3"), &open_request("10.0.0.3")).is_err());
    }

    #[test]
    fn a_server_whose_client_does_not_arrive_is_refused() {
        let all = Arc::new(Rendezvous::default());
        let now = Instant::now();
        let waiting = ask(&all, "/a", "10.0.0.1", "ana.7@host", now);
        all.expire(now + PATIENCE / 2);
        assert!(waiting.try_recv().is_err());
        all.expire(now + PATIENCE);
        assert_eq!(waiting.try_recv(), Ok(false));
    }
}
