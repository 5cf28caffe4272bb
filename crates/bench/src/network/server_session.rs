//! A session on the server of a network test, from the plan to the result.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rand::TryRngCore as _;

use super::error::NetworkError;
use super::flow::FlowWork;
use super::kernel::Counting;
use super::line::{Line, Pending, pending};
use super::message::{ClientMessage, ServerMessage};
use super::movers::FlowThreads;
use super::server::WaitingSessions;
use super::spec::{NetworkSpec, Protocol};
use super::{DRAINING_MAX, OPENING_MAX, SILENCE_MAX, udp};
use crate::content::Content;
use crate::peer::{FrameError, Peer, Timed as _};

/// How often the server reports the received bytes.
const PROGRESS: Duration = Duration::from_secs(1);
/// How often it checks whether all flows have ended.
const TICK: Duration = Duration::from_millis(20);

/// Serves a client that has proved to know the token.
pub(super) fn serve(
    sessions: &WaitingSessions,
    mut client: Peer<TcpStream>,
    stop: &AtomicBool,
    tell: &(dyn Fn(String) + Sync),
) -> Result<(), NetworkError> {
    let spec = match client.receive() {
        Ok(ClientMessage::Plan(spec)) => spec,
        Ok(other) => return Err(unexpected(&client, &other)),
        // The client only checked whether it would be accepted.
        Err(FrameError::Closed { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let served = spec.check().map_err(NetworkError::from).and_then(|()| {
        let session = rand::rngs::OsRng.try_next_u64().map_err(|error| std::io::Error::other(error.to_string()));
        let session = session.map_err(NetworkError::here("draw random bytes"))?;
        let flows = sessions.open(session).ok_or_else(|| NetworkError::Unexpected {
            peer: client.name.clone(),
            what: "a number that is taken".to_owned(),
        })?;
        let opened = OpenSession { sessions, session };
        tell(format!("{} asks for {}", client.name, spec.words()));
        opened.serve(&mut client, &spec, &flows, stop)
    });
    if let Err(error) = &served {
        // The client learns the reason, if it is still there.
        let _ = client.send(&ServerMessage::Refused(error.to_string()));
    }
    served
}

fn unexpected(client: &Peer<TcpStream>, ask: &ClientMessage) -> NetworkError {
    NetworkError::Unexpected { peer: client.name.clone(), what: format!("{ask:?}") }
}

/// A session that flows can join as long as this exists.
struct OpenSession<'a> {
    sessions: &'a WaitingSessions,
    session: u64,
}

impl Drop for OpenSession<'_> {
    fn drop(&mut self) {
        self.sessions.close(self.session);
    }
}

impl OpenSession<'_> {
    fn serve(
        &self,
        client: &mut Peer<TcpStream>,
        spec: &NetworkSpec,
        flows: &Receiver<(u32, TcpStream)>,
        stop: &AtomicBool,
    ) -> Result<(), NetworkError> {
        let here = "look up an address";
        let (local, remote) = (
            client.stream.local_addr().map_err(NetworkError::here(here))?,
            client.stream.peer_addr().map_err(NetworkError::here(here))?,
        );
        let sockets = self.sockets(spec, local)?;
        let port = |socket: &UdpSocket| socket.local_addr().map(|address| address.port());
        let ports: Result<_, _> = sockets.iter().map(port).collect();
        let ports = ports.map_err(NetworkError::here(here))?;
        client.send(&ServerMessage::Prepared { session: self.session, ports })?;
        let lines = match spec.protocol {
            Protocol::Tcp => Self::gather(spec, flows, stop)?,
            Protocol::Udp => self.meet(spec, sockets, remote, client)?,
        };
        let works = spec.all_flows().map(|(number, to)| FlowWork::of(spec, self.session, number, !to));
        let content = Arc::new(Content::new(self.session));
        let movers = FlowThreads::hire(works.zip(lines).collect(), spec.processes, &content, &self.sessions.program)?;
        movers.wait_ready(OPENING_MAX)?;
        client.send(&ServerMessage::Ready)?;
        client.stream.set_patience(Some(OPENING_MAX)).map_err(NetworkError::here("set a connection's time"))?;
        match client.receive()? {
            ClientMessage::Start => {}
            other => return Err(unexpected(client, &other)),
        }
        let counting = Counting::begin(remote.ip());
        movers.start();
        watch(client, spec, &movers, stop)?;
        let (ends, lines) = movers.finish();
        client.send(&ServerMessage::Finished { side: counting.end(), ends })?;
        // The connections stay open until the client has asked its kernel about them.
        client.stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set a connection's time"))?;
        let enough = client.receive::<ClientMessage>();
        drop(lines);
        // A client that closed without a message was stopped. Its flows may have ended before the server noticed.
        Ok(enough.map(drop)?)
    }

    /// One socket for each UDP flow.
    fn sockets(&self, spec: &NetworkSpec, local: SocketAddr) -> Result<Vec<UdpSocket>, NetworkError> {
        if spec.protocol != Protocol::Udp {
            return Ok(Vec::new());
        }
        let any = SocketAddr::new(local.ip(), 0);
        let one = |_| UdpSocket::bind(any).inspect(udp::make_room).map_err(NetworkError::here(format!("bind {any}")));
        spec.all_flows().map(one).collect()
    }

    /// Waits for all TCP flows, which come in any order.
    fn gather(
        spec: &NetworkSpec,
        flows: &Receiver<(u32, TcpStream)>,
        stop: &AtomicBool,
    ) -> Result<Vec<Line>, NetworkError> {
        let all = spec.all_flows().count();
        let end = Instant::now() + OPENING_MAX;
        let mut lines = BTreeMap::new();
        while lines.len() < all {
            if stop.load(Ordering::Relaxed) {
                return Err(NetworkError::Stopped);
            }
            match flows.recv_timeout(Duration::from_millis(200)) {
                Ok((number, stream)) if (number as usize) < all => {
                    lines.insert(number, Line::Tcp(stream));
                }
                Ok(_) => {}
                Err(_) if Instant::now() < end => {}
                Err(_) => {
                    return Err(NetworkError::NotOpened {
                        open: lines.len(),
                        flows: all,
                        seconds: OPENING_MAX.as_secs(),
                    });
                }
            }
        }
        Ok(lines.into_values().collect())
    }

    /// Waits for the first datagram of each UDP flow, of all flows at once.
    fn meet(
        &self,
        spec: &NetworkSpec,
        sockets: Vec<UdpSocket>,
        client: SocketAddr,
        peer: &Peer<TcpStream>,
    ) -> Result<Vec<Line>, NetworkError> {
        let numbers: Vec<u32> = spec.all_flows().map(|(number, _)| number).collect();
        let met = std::thread::scope(|scope| {
            let meet = |(number, socket): (&u32, &UdpSocket)| -> std::io::Result<bool> {
                udp::open_at_server(socket, client, self.session, *number, OPENING_MAX)
            };
            let threads: Vec<_> = numbers.iter().zip(&sockets).map(|one| scope.spawn(move || meet(one))).collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        for (met, socket) in met.into_iter().zip(&sockets) {
            let met = met.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            if !met.map_err(NetworkError::here("open a flow of UDP"))? {
                let port = socket.local_addr().map_or(0, |address| address.port());
                return Err(NetworkError::NoDatagrams { peer: peer.name.clone(), port });
            }
        }
        Ok(sockets.into_iter().map(Line::Udp).collect())
    }
}

/// Reports the received bytes each second until all flows have ended. They also end when the client is gone.
fn watch(
    client: &mut Peer<TcpStream>,
    spec: &NetworkSpec,
    movers: &FlowThreads,
    stop: &AtomicBool,
) -> Result<(), NetworkError> {
    let limit = Duration::from_secs(u64::from(spec.seconds)) + DRAINING_MAX;
    let (begun, mut next) = (Instant::now(), PROGRESS);
    while !movers.have_ended(TICK) {
        let elapsed = begun.elapsed();
        if stop.load(Ordering::Relaxed) {
            return Err(NetworkError::Stopped);
        }
        if elapsed >= limit {
            return Err(NetworkError::Endless { peer: client.name.clone(), seconds: DRAINING_MAX.as_secs() });
        }
        if pending(&client.stream) == Pending::Gone {
            return Err(FrameError::Closed { peer: client.name.clone() }.into());
        }
        if elapsed >= next {
            next += PROGRESS;
            client.send(&ServerMessage::Progress(movers.received()))?;
        }
    }
    Ok(())
}
