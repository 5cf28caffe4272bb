//! A session on the far side: from the plan to what came of it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rand::TryRngCore as _;

use super::error::NetworkError;
use super::far::Hall;
use super::flow::FlowWork;
use super::kernel::Counting;
use super::line::{Line, Pending, pending};
use super::message::{Ask, Tell};
use super::movers::Movers;
use super::spec::{NetworkSpec, Protocol};
use super::{DRAINING_MAX, OPENING_MAX, SILENCE_MAX, udp};
use crate::content::Content;
use crate::peer::{FrameError, Peer, Timed as _};

/// How often it is said what has come.
const PROGRESS: Duration = Duration::from_secs(1);
/// How often it is looked whether all have ended.
const TICK: Duration = Duration::from_millis(20);

/// Serves one who has proved to know the token.
pub(super) fn serve(
    hall: &Hall,
    mut near: Peer<TcpStream>,
    stop: &AtomicBool,
    tell: &(dyn Fn(String) + Sync),
) -> Result<(), NetworkError> {
    let spec = match near.receive() {
        Ok(Ask::Plan(spec)) => spec,
        Ok(other) => return Err(unexpected(&near, &other)),
        // It only looked whether it is welcome.
        Err(FrameError::Closed { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let served = spec.check().map_err(NetworkError::from).and_then(|()| {
        let session = rand::rngs::OsRng.try_next_u64().map_err(|error| std::io::Error::other(error.to_string()));
        let session = session.map_err(NetworkError::here("draw random bytes"))?;
        let flows = hall.open(session).ok_or_else(|| NetworkError::Unexpected {
            peer: near.name.clone(),
            what: "a number that is taken".to_owned(),
        })?;
        let opened = Opened { hall, session };
        tell(format!("{} asks for {}", near.name, spec.words()));
        opened.serve(&mut near, &spec, &flows, stop)
    });
    if let Err(error) = &served {
        // It learns why, if it is still there.
        let _ = near.send(&Tell::Refused(error.to_string()));
    }
    served
}

fn unexpected(near: &Peer<TcpStream>, ask: &Ask) -> NetworkError {
    NetworkError::Unexpected { peer: near.name.clone(), what: format!("{ask:?}") }
}

/// A session that flows can join as long as this is there.
struct Opened<'a> {
    hall: &'a Hall,
    session: u64,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.hall.close(self.session);
    }
}

impl Opened<'_> {
    fn serve(
        &self,
        near: &mut Peer<TcpStream>,
        spec: &NetworkSpec,
        flows: &Receiver<(u32, TcpStream)>,
        stop: &AtomicBool,
    ) -> Result<(), NetworkError> {
        let here = "look up an address";
        let (local, remote) = (
            near.stream.local_addr().map_err(NetworkError::here(here))?,
            near.stream.peer_addr().map_err(NetworkError::here(here))?,
        );
        let sockets = self.sockets(spec, local)?;
        let port = |socket: &UdpSocket| socket.local_addr().map(|address| address.port());
        let ports: Result<_, _> = sockets.iter().map(port).collect();
        let ports = ports.map_err(NetworkError::here(here))?;
        near.send(&Tell::Prepared { session: self.session, ports })?;
        let lines = match spec.protocol {
            Protocol::Tcp => Self::gather(spec, flows, stop)?,
            Protocol::Udp => self.meet(spec, sockets, remote, near)?,
        };
        let works = spec.all_flows().map(|(number, to)| FlowWork::of(spec, self.session, number, !to));
        let content = Arc::new(Content::new(self.session));
        let movers = Movers::hire(works.zip(lines).collect(), spec.processes, &content, &self.hall.program)?;
        movers.wait_ready(OPENING_MAX)?;
        near.send(&Tell::Ready)?;
        near.stream.set_patience(Some(OPENING_MAX)).map_err(NetworkError::here("set a connection's time"))?;
        match near.receive()? {
            Ask::Start => {}
            other => return Err(unexpected(near, &other)),
        }
        let counting = Counting::begin(remote.ip());
        movers.start();
        watch(near, spec, &movers, stop)?;
        let (ends, lines) = movers.finish();
        near.send(&Tell::Finished { side: counting.end(), ends })?;
        // Connections stay until the other side has asked its kernel about them.
        near.stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set a connection's time"))?;
        let enough = near.receive::<Ask>();
        drop(lines);
        // One that went without a word was stopped: its flows may have ended before that was seen.
        Ok(enough.map(drop)?)
    }

    /// One for each flow of UDP.
    fn sockets(&self, spec: &NetworkSpec, local: SocketAddr) -> Result<Vec<UdpSocket>, NetworkError> {
        if spec.protocol != Protocol::Udp {
            return Ok(Vec::new());
        }
        let any = SocketAddr::new(local.ip(), 0);
        let one = |_| UdpSocket::bind(any).inspect(udp::make_room).map_err(NetworkError::here(format!("bind {any}")));
        spec.all_flows().map(one).collect()
    }

    /// Waits for all flows of TCP; they come in any order.
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

    /// Waits for the first datagram of each flow of UDP, of all at once.
    fn meet(
        &self,
        spec: &NetworkSpec,
        sockets: Vec<UdpSocket>,
        near: SocketAddr,
        peer: &Peer<TcpStream>,
    ) -> Result<Vec<Line>, NetworkError> {
        let numbers: Vec<u32> = spec.all_flows().map(|(number, _)| number).collect();
        let met = std::thread::scope(|scope| {
            let meet = |(number, socket): (&u32, &UdpSocket)| -> std::io::Result<bool> {
                udp::open_far(socket, near, self.session, *number, OPENING_MAX)
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

/// Says each second what has come, until all flows have ended. The near side's going ends them.
fn watch(
    near: &mut Peer<TcpStream>,
    spec: &NetworkSpec,
    movers: &Movers,
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
            return Err(NetworkError::Endless { peer: near.name.clone(), seconds: DRAINING_MAX.as_secs() });
        }
        if pending(&near.stream) == Pending::Gone {
            return Err(FrameError::Closed { peer: near.name.clone() }.into());
        }
        if elapsed >= next {
            next += PROGRESS;
            near.send(&Tell::Progress(movers.received()))?;
        }
    }
    Ok(())
}
