//! The near side of flows: asks a far side for them, and gathers what both ends say.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::child::Program;
use super::error::NetworkError;
use super::flow::FlowWork;
use super::kernel::Counting;
use super::line::{Line, Pending, pending};
use super::message::{Ask, Join, Tell};
use super::movers::Movers;
use super::outcome::Outcome;
use super::spec::{NetworkSpec, Protocol};
use super::{DRAINING_MAX, OPENING_MAX, SILENCE_MAX, udp};
use crate::content::Content;
use crate::load::Reading;
use crate::peer::{self, Fresh, Hello, Peer, Role, Timed as _, Token};

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How often it is looked what has come.
const TICK: Duration = Duration::from_millis(20);

/// A far side to have flows with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Far {
    /// The name of the system that it stands beside.
    pub system: String,
    /// `HOST:PORT`.
    pub address: String,
    /// `HOST:PORT` of the `iperf3 -s` beside it, for those who compare; nobody else looks at it.
    pub iperf3: String,
    /// What both sides have been given.
    pub token: Token,
    /// For flows that have processes of their own.
    pub program: Program,
}

/// Flows that are ready to start.
#[derive(Debug)]
pub struct Session {
    system: String,
    spec: NetworkSpec,
    far: Peer<TcpStream>,
    remote: SocketAddr,
    movers: Movers,
}

impl Far {
    /// Whether the far side is there, and both sides have the same token.
    ///
    /// # Errors
    /// Why not.
    pub fn greet(&self) -> Result<(), NetworkError> {
        self.meet(self.connect()?, Role::FlowsNear).map(drop)
    }

    /// To the first of its addresses that answers.
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

    /// To one of them.
    fn connect_to(&self, remote: SocketAddr) -> Result<TcpStream, NetworkError> {
        TcpStream::connect_timeout(&remote, CONNECT_MAX)
            .map_err(|source| NetworkError::Connect { peer: self.address.clone(), source })
    }

    /// Greets in a role.
    fn meet(&self, mut stream: TcpStream, role: Role) -> Result<TcpStream, NetworkError> {
        stream.set_nodelay(true).map_err(NetworkError::here("set up a connection"))?;
        let fresh = Fresh::draw().map_err(NetworkError::here("draw random bytes"))?;
        let hello = Hello { role, wanted: &[Role::FlowsFar], token: &self.token };
        peer::connect(&mut stream, &self.address, hello, &fresh)?;
        Ok(stream)
    }
}

impl Session {
    /// Agrees with the far side, opens all flows, and waits until both sides can begin.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn prepare(far: &Far, spec: &NetworkSpec, content: &Arc<Content>) -> Result<Self, NetworkError> {
        spec.check()?;
        let stream = far.meet(far.connect()?, Role::FlowsNear)?;
        let remote = stream.peer_addr().map_err(NetworkError::here("look up an address"))?;
        stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set up a connection"))?;
        let mut talk = Peer { stream, name: far.address.clone() };
        talk.send(&Ask::Plan(spec.clone()))?;
        let (session, ports) = match talk.receive()? {
            Tell::Prepared { session, ports } => (session, ports),
            other => return Err(unexpected(&talk, other)),
        };
        let lines = match spec.protocol {
            Protocol::Tcp => spec.all_flows().map(|(number, _)| tcp(far, remote, session, number)).collect(),
            Protocol::Udp => datagrams(far, spec, &talk, session, &ports),
        };
        // When something went wrong on the way the far side may know it better.
        let lines: Vec<Line> = lines.map_err(|error| match pending(&talk.stream) {
            Pending::Something => talk.receive().map_or(error, |told| unexpected(&talk, told)),
            Pending::Nothing | Pending::Gone => error,
        })?;
        let works = spec.all_flows().map(|(number, to)| FlowWork::of(spec, session, number, to));
        let movers = Movers::hire(works.zip(lines).collect(), spec.processes, content, &far.program)?;
        movers.wait_ready(OPENING_MAX)?;
        talk.stream.set_patience(Some(OPENING_MAX)).map_err(NetworkError::here("set up a connection"))?;
        match talk.receive()? {
            Tell::Ready => {}
            other => return Err(unexpected(&talk, other)),
        }
        talk.stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set up a connection"))?;
        Ok(Self { system: far.system.clone(), spec: spec.clone(), far: talk, remote, movers })
    }

    /// Lets the flows begin, and waits for their end. `watch` is called many times a second with what has arrived so far on both sides, and
    /// says whether to go on.
    ///
    /// # Errors
    /// [`NetworkError`]; flows that broke are told in the outcome.
    pub fn run(mut self, mut watch: impl FnMut(Reading) -> bool) -> Result<Outcome, NetworkError> {
        let counting = Counting::begin(self.remote.ip());
        self.far.send(&Ask::Start)?;
        self.movers.start();
        let limit = Duration::from_secs(u64::from(self.spec.seconds)) + DRAINING_MAX + SILENCE_MAX;
        let begun = Instant::now();
        let (mut heard, mut there, mut finished) = (begun, Reading::default(), None);
        while finished.is_none() || !self.movers.have_ended(Duration::ZERO) {
            self.movers.have_ended(TICK);
            // As long as it counts it says so each second; its own end comes when its flows have ended.
            match pending(&self.far.stream) {
                Pending::Something => {
                    heard = Instant::now();
                    match self.far.receive()? {
                        Tell::Progress(reading) => there = reading,
                        Tell::Finished { side, ends } => finished = Some((side, ends)),
                        other => return Err(unexpected(&self.far, other)),
                    }
                }
                Pending::Gone if finished.is_none() => {
                    return Err(peer::FrameError::Closed { peer: self.far.name.clone() }.into());
                }
                Pending::Nothing | Pending::Gone => {}
            }
            let peer = || self.far.name.clone();
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
        let Self { system, far: mut talk, movers, .. } = self;
        let (ends, lines) = movers.finish();
        let near = (counting.end(), ends);
        // Whether it hears this or not, it closes.
        let _ = talk.send(&Ask::Enough);
        drop(lines);
        Ok(Outcome::of(&system, &talk.name, near, finished.unwrap_or_default()))
    }
}

fn unexpected(talk: &Peer<TcpStream>, told: Tell) -> NetworkError {
    let peer = talk.name.clone();
    match told {
        Tell::Refused(why) => NetworkError::Refused { peer, why },
        other => NetworkError::Unexpected { peer, what: format!("{other:?}") },
    }
}

fn tcp(far: &Far, remote: SocketAddr, session: u64, number: u32) -> Result<Line, NetworkError> {
    let mut stream = far.meet(far.connect_to(remote)?, Role::Flow)?;
    peer::send(&mut stream, &far.address, &Join { session, number })?;
    Ok(Line::Tcp(stream))
}

fn datagrams(
    far: &Far,
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
        return Err(NetworkError::Unexpected { peer: far.address.clone(), what });
    }
    let mut lines = Vec::new();
    for (number, port) in numbers.into_iter().zip(ports) {
        let socket = UdpSocket::bind(SocketAddr::new(local.ip(), 0)).map_err(here())?;
        udp::make_room(&socket);
        socket.connect(SocketAddr::new(remote.ip(), *port)).map_err(here())?;
        // The first says what the others would: a way that is closed is closed to all.
        if !udp::open_near(&socket, session, number, CONNECT_MAX).map_err(here())? {
            return Err(NetworkError::NoDatagrams { peer: far.address.clone(), port: *port });
        }
        lines.push(Line::Udp(socket));
    }
    Ok(lines)
}
