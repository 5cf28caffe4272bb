//! The far side of flows: it listens, greets whoever calls, and does what those who know the token ask for.

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
use super::{SILENCE_MAX, hosted};
use crate::peer::{Fresh, Hello, HelloError, Peer, Role, Timed as _, Token, accept};

/// Connections at a time, those included that have not said yet who they are.
const CONNECTIONS_MAX: usize = 2048;
/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(200);

/// How the far side runs.
#[derive(Debug)]
pub struct FarSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who may call; [`Token::open`] on loopback addresses only.
    pub token: Token,
    /// For flows that have processes of their own.
    pub program: Program,
}

/// A far side that listens.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    hall: Hall,
}

/// Where sessions wait for their flows.
#[derive(Debug)]
pub(super) struct Hall {
    pub(super) token: Token,
    pub(super) program: Program,
    sessions: Mutex<BTreeMap<u64, mpsc::Sender<(u32, TcpStream)>>>,
    connections: AtomicUsize,
}

impl Hall {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<u64, mpsc::Sender<(u32, TcpStream)>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session of this number, and where its flows come in; `None`: there is one.
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

/// A connection that counts as long as it is there.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// Of the kernel; and when everybody knows the token, and the address is not of this machine alone.
    pub fn bind(settings: FarSettings) -> Result<Self, NetworkError> {
        let FarSettings { listen, token, program } = settings;
        if token.is_open() && !listen.ip().is_loopback() {
            return Err(NetworkError::Open { listen });
        }
        let listener = TcpListener::bind(listen).map_err(|source| NetworkError::Listen { listen, source })?;
        let hall = Hall { token, program, sessions: Mutex::default(), connections: AtomicUsize::new(0) };
        Ok(Self { listener, hall })
    }

    /// Where it listens: with the port that the kernel chose, if that was left to it.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`; `tell` is called with what whoever runs it should know: who called, and why somebody was refused.
    ///
    /// # Errors
    /// When the kernel gives no connections any more.
    pub fn serve(&self, stop: &AtomicBool, tell: &(dyn Fn(String) + Sync)) -> Result<(), NetworkError> {
        std::thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                let Some((stream, peer)) = self.next().map_err(NetworkError::here("accept connections"))? else {
                    continue;
                };
                let hall = &self.hall;
                if hall.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                    drop(Counted(&hall.connections));
                    tell(format!("{peer} is turned away: there are {CONNECTIONS_MAX} connections already"));
                    continue;
                }
                let work = move || {
                    let _counted = Counted(&hall.connections);
                    if let Err(error) = serve_one(hall, stream, peer, stop, tell) {
                        tell(error.to_string());
                    }
                };
                if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
                    tell(format!("{peer} is turned away: no thread for it: {error}"));
                }
            }
            Ok(())
        })
    }

    /// The next connection; `None`: none came for a while.
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
            // It went before it was taken; or there are too many open files just now.
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
    hall: &Hall,
    mut stream: TcpStream,
    peer: SocketAddr,
    stop: &AtomicBool,
    tell: &(dyn Fn(String) + Sync),
) -> Result<(), NetworkError> {
    let name = peer.to_string();
    stream.set_nodelay(true).map_err(NetworkError::here("set up a connection"))?;
    let fresh = Fresh::draw().map_err(NetworkError::here("draw random bytes"))?;
    let hello = Hello { role: Role::FlowsFar, wanted: &[Role::FlowsNear, Role::Flow], token: &hall.token };
    let role = match accept(&mut stream, &name, hello, &fresh) {
        // Somebody looked whether the port is open.
        Err(HelloError::Gone { .. }) => return Ok(()),
        met => met?,
    };
    stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set up a connection"))?;
    let mut peer = Peer { stream, name };
    if role == Role::Flow {
        let Join { session, number } = peer.receive()?;
        let flows = hall.sessions().get(&session).cloned();
        // One that comes too late finds nobody; its other end learns it from the closed connection.
        return match flows.map(|flows| flows.send((number, peer.stream))) {
            Some(Ok(())) => Ok(()),
            _ => Err(NetworkError::Unexpected { peer: peer.name, what: "a flow of no session".to_owned() }),
        };
    }
    hosted::serve(hall, peer, stop, tell)
}
