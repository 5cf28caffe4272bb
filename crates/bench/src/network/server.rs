//! The server of a network test. It listens, greets callers, and runs flows for those that know the token.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::child::Program;
use super::error::NetworkError;
use super::message::Join;
use super::{SILENCE_MAX, server_session};
use crate::peer::{Fresh, Hello, HelloError, Peer, Role, Timed as _, Token, accept};

/// The most connections, including those that have not identified themselves yet.
const CONNECTIONS_MAX: usize = 2048;
/// How often the server checks whether it must stop.
const LOOK: Duration = Duration::from_millis(200);

/// The settings of a network-test server.
#[derive(Debug)]
pub struct ServerSettings {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// The token of the callers. [`Token::open`] is accepted on loopback addresses only.
    pub token: Token,
    /// Starts a process for each flow that needs one.
    pub program: Program,
}

/// A network-test server that listens.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    sessions: WaitingSessions,
}

/// The sessions that wait for their flows.
#[derive(Debug)]
pub(super) struct WaitingSessions {
    pub(super) token: Token,
    pub(super) program: Program,
    sessions: Mutex<BTreeMap<u64, mpsc::Sender<(u32, TcpStream)>>>,
    connections: AtomicUsize,
}

impl WaitingSessions {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<u64, mpsc::Sender<(u32, TcpStream)>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session with this number. Returns where its flows arrive; `None`: the session exists.
    pub(super) fn open(&self, session: u64) -> Option<mpsc::Receiver<(u32, TcpStream)>> {
        let mut sessions = self.sessions();
        if sessions.contains_key(&session) {
            return None;
        }
        let (flows, come_in) = mpsc::channel();
        sessions.insert(session, flows);
        Some(come_in)
    }

    pub(super) fn close(&self, session: u64) {
        self.sessions().remove(&session);
    }
}

/// A connection that counts as long as it exists.
struct CountedConnection<'a>(&'a AtomicUsize);

impl Drop for CountedConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// The kernel refuses. The token is open, and the address is reachable from other machines.
    pub fn bind(settings: ServerSettings) -> Result<Self, NetworkError> {
        let ServerSettings { listen, token, program } = settings;
        if token.is_open() && !listen.ip().is_loopback() {
            return Err(NetworkError::Open { listen });
        }
        let listener = TcpListener::bind(listen).map_err(|source| NetworkError::Listen { listen, source })?;
        let sessions = WaitingSessions { token, program, sessions: Mutex::default(), connections: AtomicUsize::new(0) };
        Ok(Self { listener, sessions })
    }

    /// Returns the address that it listens on, including a port that the kernel chose.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. Calls `tell` with texts for the user: callers, and the reasons of refusals.
    ///
    /// # Errors
    /// The kernel gives no more connections.
    pub fn serve(&self, stop: &AtomicBool, tell: &(dyn Fn(String) + Sync)) -> Result<(), NetworkError> {
        std::thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                let Some((stream, peer)) = self.next().map_err(NetworkError::here("accept connections"))? else {
                    continue;
                };
                let sessions = &self.sessions;
                if sessions.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                    drop(CountedConnection(&sessions.connections));
                    tell(format!("{peer} is refused: there are {CONNECTIONS_MAX} connections already"));
                    continue;
                }
                let work = move || {
                    let _counted = CountedConnection(&sessions.connections);
                    if let Err(error) = serve_one(sessions, stream, peer, stop, tell) {
                        tell(error.to_string());
                    }
                };
                if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
                    tell(format!("{peer} is refused: cannot start a thread: {error}"));
                }
            }
            Ok(())
        })
    }

    /// Returns the next connection; `None`: none came for a while.
    fn next(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let within = Timespec::try_from(LOOK).map_err(io::Error::other)?;
        let mut looked_at = [PollFd::new(&self.listener, PollFlags::IN)];
        match poll(&mut looked_at, Some(&within)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match self.listener.accept() {
            Ok(accepted) => Ok(Some(accepted)),
            // The connection was gone before it was accepted, or too many files are open just now.
            Err(error) if is_passing(&error) => {
                std::thread::sleep(Duration::from_millis(10));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno as E;
    let known = [E::CONNABORTED, E::INTR, E::AGAIN, E::MFILE, E::NFILE, E::NOBUFS, E::NOMEM, E::PROTO];
    known.iter().any(|known| error.raw_os_error() == Some(known.raw_os_error()))
}

fn serve_one(
    sessions: &WaitingSessions,
    mut stream: TcpStream,
    peer: SocketAddr,
    stop: &AtomicBool,
    tell: &(dyn Fn(String) + Sync),
) -> Result<(), NetworkError> {
    let name = peer.to_string();
    stream.set_nodelay(true).map_err(NetworkError::here("set up a connection"))?;
    let fresh = Fresh::draw().map_err(NetworkError::here("draw random bytes"))?;
    let hello = Hello { role: Role::NetworkServer, wanted: &[Role::NetworkClient, Role::Flow], token: &sessions.token };
    let role = match accept(&mut stream, &name, hello, &fresh) {
        // A caller only checked whether the port is open.
        Err(HelloError::Gone { .. }) => return Ok(()),
        met => met?,
    };
    stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set up a connection"))?;
    let mut peer = Peer { stream, name };
    if role == Role::Flow {
        let Join { session, number } = peer.receive()?;
        let flows = sessions.sessions().get(&session).cloned();
        // A flow that comes too late finds no session. The other end learns that from the closed connection.
        return match flows.map(|flows| flows.send((number, peer.stream))) {
            Some(Ok(())) => Ok(()),
            _ => Err(NetworkError::Unexpected { peer: peer.name, what: "a flow of no session".to_owned() }),
        };
    }
    server_session::serve(sessions, peer, stop, tell)
}
