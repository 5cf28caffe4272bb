//! The coordinator's listener. It accepts peers that have the token and the same program, and passes on their
//! messages.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use super::clock::SteadyClock;
use super::message::{AgentMessage, CoordinatorMessage};
use super::{PROGRAM, PeerId, PeerIntroduction};
use crate::peer::{self, FrameError, Fresh, Hello, Peer, Role, Token};

/// The most connections, including those that have not identified themselves yet.
const CONNECTIONS_MAX: usize = 4096;
/// How long a peer with the token may take to introduce itself.
const INTRODUCTION_MAX: Duration = Duration::from_secs(10);
/// How long a message to a peer may wait for room.
const SEND_MAX: Duration = Duration::from_secs(2);
/// How often the listener checks whether it must close.
const LOOK: Duration = Duration::from_millis(50);
/// The most characters of a name.
const NAME_MAX: usize = 64;

/// An event from the listener.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A peer was accepted.
    Joined(PeerId, Peer<TcpStream>, PeerIntroduction),
    /// A message from a peer, and when it came.
    Told(PeerId, Box<AgentMessage>, Duration),
    /// A peer is gone.
    Gone(PeerId, String),
    /// A peer was refused.
    Refused(String),
    /// A request from this side.
    NextStep(super::Input),
}

/// The coordinator's listener. See the module.
pub(super) struct CoordinatorListener {
    pub(super) listener: TcpListener,
    pub(super) token: Arc<Token>,
    /// The systems of the campaign.
    pub(super) systems: Arc<Vec<String>>,
    pub(super) clock: SteadyClock,
    pub(super) to: SyncSender<Incoming>,
    pub(super) closed: Arc<AtomicBool>,
}

impl CoordinatorListener {
    /// Accepts peers until it is closed.
    pub(super) fn keep(self) {
        let (next, open) = (AtomicU64::new(1), Arc::new(AtomicUsize::new(0)));
        while !self.closed.load(Ordering::Relaxed) {
            let Ok((stream, address)) = self.listener.accept() else {
                // No peer is waiting, or too many files are open for now.
                thread::sleep(LOOK);
                continue;
            };
            if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                continue;
            }
            let counted = CountedConnection::new(&open);
            let (id, token, clock) = (next.fetch_add(1, Ordering::Relaxed), Arc::clone(&self.token), self.clock);
            let (to, name, systems) = (self.to.clone(), address.to_string(), Arc::clone(&self.systems));
            let listen = move || {
                let _counted = counted;
                match let_in(stream, name, &token, &systems) {
                    Ok((peer, reader, introduction)) => hear(id, peer, reader, introduction, &clock, &to),
                    // The receiver is gone only when everything is over.
                    Err(why) => drop(to.send(Incoming::Refused(why))),
                }
            };
            // If there is no memory for a thread, the connection is dropped, and the agent tries again.
            let _ = thread::Builder::new().name("agent".into()).stack_size(256 << 10).spawn(listen);
        }
    }
}

/// A connection that counts as long as its thread lives.
struct CountedConnection(Arc<AtomicUsize>);

impl CountedConnection {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

type OnAdmitted = (Peer<TcpStream>, Peer<TcpStream>, PeerIntroduction);

/// Greets a peer. Returns the reason if it is refused.
fn let_in(mut stream: TcpStream, address: String, token: &Token, systems: &[String]) -> Result<OnAdmitted, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let io = |error: io::Error| format!("{address}: {error}");
    stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).map_err(io)?;
    let hello = Hello { role: Role::Coordinator, wanted: &[Role::Agent], token };
    let fresh = Fresh::draw().map_err(io)?;
    peer::accept(&mut stream, &address, hello, &fresh).map_err(|error| text(&error))?;
    stream.set_read_timeout(Some(INTRODUCTION_MAX)).map_err(io)?;
    let reader = stream.try_clone().map_err(io)?;
    let mut reader = Peer { stream: reader, name: address.clone() };
    let mut writer = Peer { stream, name: address };
    let introduction: PeerIntroduction = reader.receive().map_err(|error| text(&error))?;
    let is_name = introduction.name.chars().count() <= NAME_MAX
        && !introduction.name.is_empty()
        && introduction.name.chars().all(|c| !c.is_control());
    let why = if introduction.program != PROGRAM {
        format!(
            "its version is {:.80}, and this is {PROGRAM}; use the same version on all machines",
            introduction.program.escape_debug()
        )
    } else if !is_name {
        format!("a name has 1 to {NAME_MAX} characters, and no control characters")
    } else if let Some(system) =
        introduction.kind.system().filter(|system| !systems.iter().any(|known| known == system))
    {
        format!("the campaign has no system `{:.80}`; its systems are {}", system.escape_debug(), systems.join(", "))
    } else {
        reader
            .stream
            .set_read_timeout(None)
            .and_then(|()| writer.stream.set_write_timeout(Some(SEND_MAX)))
            .map_err(|error| error.to_string())?;
        return Ok((writer, reader, introduction));
    };
    // The peer may already be gone.
    let _ = writer.send(&CoordinatorMessage::Leave { why: why.clone() });
    Err(format!("{} was refused: {why}", writer.name))
}

/// Passes on the messages of an accepted peer until it is gone.
fn hear(
    id: PeerId,
    writer: Peer<TcpStream>,
    mut reader: Peer<TcpStream>,
    introduction: PeerIntroduction,
    clock: &SteadyClock,
    to: &SyncSender<Incoming>,
) {
    reader.name.clone_from(&introduction.name);
    let mut word = to.send(Incoming::Joined(id, writer, introduction));
    while word.is_ok() {
        let told: Result<AgentMessage, FrameError> = reader.receive();
        word = match told {
            Ok(tell) => to.send(Incoming::Told(id, Box::new(tell), clock.now())),
            Err(error) => {
                let why = match &error {
                    FrameError::Closed { .. } | FrameError::CutOff { .. } | FrameError::Io { .. } => {
                        "connection lost".to_owned()
                    }
                    other => other.to_string(),
                };
                // The receiver closes the connection. Closing it here would give a concurrent sender an error that
                // explains nothing.
                let _ = to.send(Incoming::Gone(id, why));
                return;
            }
        };
    }
}
