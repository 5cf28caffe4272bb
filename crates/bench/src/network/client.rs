//! The client of a network test. It asks a server for flows, and combines the results of both ends.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::child::Program;
use super::error::NetworkError;
use super::flow::FlowWork;
use super::kernel::Counting;
use super::line::{Line, Pending, pending};
use super::message::{ClientMessage, Join, ServerMessage};
use super::movers::FlowThreads;
use super::outcome::Outcome;
use super::spec::{NetworkSpec, Protocol};
use super::{DRAINING_MAX, OPENING_MAX, SILENCE_MAX, udp};
use crate::content::Content;
use crate::load::Reading;
use crate::peer::{self, Fresh, Hello, Peer, Role, Timed as _, Token};

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How often the client checks the received bytes.
const TICK: Duration = Duration::from_millis(20);

/// A network-test server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkServer {
    /// The name of its system.
    pub system: String,
    /// `HOST:PORT`.
    pub address: String,
    /// The `HOST:PORT` of the `iperf3 -s` beside it, for comparisons only.
    pub iperf3: String,
    /// The token that both sides share.
    pub token: Token,
    /// Starts a process for each flow that needs one.
    pub program: Program,
}

/// Flows that are ready to start.
#[derive(Debug)]
pub struct Session {
    system: String,
    spec: NetworkSpec,
    server: Peer<TcpStream>,
    remote: SocketAddr,
    movers: FlowThreads,
}

impl NetworkServer {
    /// Checks that the server is there, and that both sides have the same token.
    ///
    /// # Errors
    /// The reason why not.
    pub fn greet(&self) -> Result<(), NetworkError> {
        self.meet(self.connect()?, Role::NetworkClient).map(drop)
    }

    /// Connects to the first of its addresses that answers.
    fn connect(&self) -> Result<TcpStream, NetworkError> {
        let peer = || self.address.clone();
        let found = self.address.to_socket_addrs().map_err(|source| NetworkError::Address { peer: peer(), source })?;
        let mut failed = std::io::Error::other("the name has no address");
        for address in found {
            match TcpStream::connect_timeout(&address, CONNECT_MAX) {
                Ok(stream) => return Ok(stream),
                Err(source) => failed = source,
            }
        }
        Err(NetworkError::Connect { peer: peer(), source: failed })
    }

    /// Connects to one address.
    fn connect_to(&self, remote: SocketAddr) -> Result<TcpStream, NetworkError> {
        TcpStream::connect_timeout(&remote, CONNECT_MAX)
            .map_err(|source| NetworkError::Connect { peer: self.address.clone(), source })
    }

    /// Greets the server in a role.
    fn meet(&self, mut stream: TcpStream, role: Role) -> Result<TcpStream, NetworkError> {
        stream.set_nodelay(true).map_err(NetworkError::here("set up a connection"))?;
        let fresh = Fresh::draw().map_err(NetworkError::here("draw random bytes"))?;
        let hello = Hello { role, wanted: &[Role::NetworkServer], token: &self.token };
        peer::connect(&mut stream, &self.address, hello, &fresh)?;
        Ok(stream)
    }
}

impl Session {
    /// Agrees with the server, opens all flows, and waits until both sides are ready.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn prepare(server: &NetworkServer, spec: &NetworkSpec, content: &Arc<Content>) -> Result<Self, NetworkError> {
        spec.check()?;
        let stream = server.meet(server.connect()?, Role::NetworkClient)?;
        let remote = stream.peer_addr().map_err(NetworkError::here("look up an address"))?;
        stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set up a connection"))?;
        let mut talk = Peer { stream, name: server.address.clone() };
        talk.send(&ClientMessage::Plan(spec.clone()))?;
        let (session, ports) = match talk.receive()? {
            ServerMessage::Prepared { session, ports } => (session, ports),
            other => return Err(unexpected(&talk, other)),
        };
        let lines = match spec.protocol {
            Protocol::Tcp => spec.all_flows().map(|(number, _)| tcp(server, remote, session, number)).collect(),
            Protocol::Udp => datagrams(server, spec, &talk, session, &ports),
        };
        // If something went wrong, the server may know the reason better.
        let lines: Vec<Line> = lines.map_err(|error| match pending(&talk.stream) {
            Pending::Something => talk.receive().map_or(error, |told| unexpected(&talk, told)),
            Pending::Nothing | Pending::Gone => error,
        })?;
        let works = spec.all_flows().map(|(number, to)| FlowWork::of(spec, session, number, to));
        let movers = FlowThreads::hire(works.zip(lines).collect(), spec.processes, content, &server.program)?;
        movers.wait_ready(OPENING_MAX)?;
        talk.stream.set_patience(Some(OPENING_MAX)).map_err(NetworkError::here("set up a connection"))?;
        match talk.receive()? {
            ServerMessage::Ready => {}
            other => return Err(unexpected(&talk, other)),
        }
        talk.stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set up a connection"))?;
        Ok(Self { system: server.system.clone(), spec: spec.clone(), server: talk, remote, movers })
    }

    /// Starts the flows, and waits for their end. Calls `watch` many times a second with the bytes received so server
    /// on both sides. It returns whether to continue.
    ///
    /// # Errors
    /// [`NetworkError`]. Broken flows are reported in the outcome.
    pub fn run(mut self, mut watch: impl FnMut(Reading) -> bool) -> Result<Outcome, NetworkError> {
        let counting = Counting::begin(self.remote.ip());
        self.server.send(&ClientMessage::Start)?;
        self.movers.start();
        let limit = Duration::from_secs(u64::from(self.spec.seconds)) + DRAINING_MAX + SILENCE_MAX;
        let begun = Instant::now();
        let (mut heard, mut there, mut finished) = (begun, Reading::default(), None);
        while finished.is_none() || !self.movers.have_ended(Duration::ZERO) {
            self.movers.have_ended(TICK);
            // The server reports each second as long as it counts, and its end after its flows have ended.
            match pending(&self.server.stream) {
                Pending::Something => {
                    heard = Instant::now();
                    match self.server.receive()? {
                        ServerMessage::Progress(reading) => there = reading,
                        ServerMessage::Finished { side, ends } => finished = Some((side, ends)),
                        other => return Err(unexpected(&self.server, other)),
                    }
                }
                Pending::Gone if finished.is_none() => {
                    return Err(peer::FrameError::Closed { peer: self.server.name.clone() }.into());
                }
                Pending::Nothing | Pending::Gone => {}
            }
            let peer = || self.server.name.clone();
            if finished.is_none() && heard.elapsed() >= SILENCE_MAX {
                return Err(NetworkError::Silent { peer: peer(), seconds: SILENCE_MAX.as_secs() });
            }
            if begun.elapsed() >= limit {
                return Err(NetworkError::Endless { peer: peer(), seconds: (DRAINING_MAX + SILENCE_MAX).as_secs() });
            }
            if !watch([self.movers.received(), there].into_iter().sum()) {
                return Err(NetworkError::Stopped);
            }
        }
        let Self { system, server: mut talk, movers, .. } = self;
        let (ends, lines) = movers.finish();
        let client = (counting.end(), ends);
        // The server closes whether or not it gets this.
        let _ = talk.send(&ClientMessage::Enough);
        drop(lines);
        Ok(Outcome::of(&system, &talk.name, client, finished.unwrap_or_default()))
    }
}

fn unexpected(talk: &Peer<TcpStream>, told: ServerMessage) -> NetworkError {
    let peer = talk.name.clone();
    match told {
        ServerMessage::Refused(why) => NetworkError::Refused { peer, why },
        other => NetworkError::Unexpected { peer, what: format!("{other:?}") },
    }
}

fn tcp(server: &NetworkServer, remote: SocketAddr, session: u64, number: u32) -> Result<Line, NetworkError> {
    let mut stream = server.meet(server.connect_to(remote)?, Role::Flow)?;
    peer::send(&mut stream, &server.address, &Join { session, number })?;
    Ok(Line::Tcp(stream))
}

fn datagrams(
    server: &NetworkServer,
    spec: &NetworkSpec,
    talk: &Peer<TcpStream>,
    session: u64,
    ports: &[u16],
) -> Result<Vec<Line>, NetworkError> {
    let here = || NetworkError::here("open a flow of UDP");
    let (local, remote) = (talk.stream.local_addr().map_err(here())?, talk.stream.peer_addr().map_err(here())?);
    let numbers: Vec<u32> = spec.all_flows().map(|(number, _)| number).collect();
    if numbers.len() != ports.len() {
        let what = format!("{} ports for {} flows", ports.len(), numbers.len());
        return Err(NetworkError::Unexpected { peer: server.address.clone(), what });
    }
    let mut lines = Vec::new();
    for (number, port) in numbers.into_iter().zip(ports) {
        let socket = UdpSocket::bind(SocketAddr::new(local.ip(), 0)).map_err(here())?;
        udp::make_room(&socket);
        socket.connect(SocketAddr::new(remote.ip(), *port)).map_err(here())?;
        // The first flow finds a closed route; the others would find the same.
        if !udp::open_from_client(&socket, session, number, CONNECT_MAX).map_err(here())? {
            return Err(NetworkError::NoDatagrams { peer: server.address.clone(), port: *port });
        }
        lines.push(Line::Udp(socket));
    }
    Ok(lines)
}
