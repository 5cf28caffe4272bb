//! Accepts connections, up to the limit, and starts a thread for each.

use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use service::network;
use wire::{ErrorNumber, HandshakeReply, StreamId};

use crate::connection;
use crate::front_end::FrontEnd;
use crate::meter::Ended;

/// Address space for the stack of a connection's thread. Untouched pages cost nothing.
const STACK_BYTES: usize = 256 << 10;
/// A refused connection stays open this long, so that the client reads the reason first.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// An idle connection that was ended is gone within this time.
const ITS_END: Duration = Duration::from_secs(2);
/// Maximum number of refused connections that stay open.
const REFUSED_MAX: usize = 32;

/// The accepting thread and the open connections.
pub(crate) struct Listener {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    open: Mutex<HashMap<u64, Arc<TcpStream>>>,
    closed: Condvar,
}

impl Listener {
    /// Starts accepting on `listener`.
    pub(crate) fn start(listener: TcpListener, front: Arc<FrontEnd>) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { open: Mutex::new(HashMap::new()), closed: Condvar::new() });
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("listener".into())
            .stack_size(STACK_BYTES)
            .spawn(move || accept_all(&listener, &front, &inner))?;
        Ok(Self { shared, address, thread: Mutex::new(Some(thread)) })
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.shared.open.lock().len()
    }

    /// Whether the thread has ended without a stop.
    pub(crate) fn ended(&self) -> bool {
        self.thread.lock().as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Stops accepting, lets the connections finish the requests that they have read, and cuts the rest at
    /// `deadline`. Returns how many were cut. The service must already be stopping.
    pub(crate) fn stop(&self, deadline: Instant) -> usize {
        // Wakes the accepting thread, which then sees that the service is stopping.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the listener had panicked");
        }
        let mut open = self.shared.open.lock();
        for socket in open.values() {
            let _ = socket.shutdown(Shutdown::Read);
        }
        while !open.is_empty() {
            if self.shared.closed.wait_until(&mut open, deadline).timed_out() {
                break;
            }
        }
        let cut = open.len();
        for socket in open.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let last = Instant::now() + Duration::from_secs(1);
        while !open.is_empty() && !self.shared.closed.wait_until(&mut open, last).timed_out() {}
        cut
    }
}

fn accept_all(listener: &TcpListener, front: &Arc<FrontEnd>, shared: &Arc<Shared>) {
    let mut number = 0u64;
    let mut refused: Vec<(Instant, TcpStream)> = Vec::new();
    loop {
        let accepted = listener.accept();
        if front.service.is_stopping() {
            return;
        }
        refused.retain(|(until, _)| Instant::now() < *until);
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Probably out of file descriptors: other connections must close some first.
                if let Some(held_back) = front.service.alarms().admit(Instant::now()) {
                    tracing::error!(%error, held_back, "cannot accept connections");
                }
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        if !front.connection_shares.take(peer.ip()) && !take_from_idle(peer.ip(), front, shared) {
            front.complaints.bad_input(&peer, &"refused: its share of the connections is taken");
            front.meter.ended(Ended::Refused);
            refuse(&socket, front);
            if refused.len() < REFUSED_MAX {
                refused.push((Instant::now() + REFUSED_FOR, socket));
            }
            continue;
        }
        number += 1;
        if let Err(error) = take_in(socket, peer, number, front, shared) {
            tracing::error!(%peer, %error, "cannot serve a connection");
        }
    }
}

/// Ends the longest idle connection without an open file, and takes its place. Unless all connections are in use, it
/// must be of the same machine. A stock client reconnects when necessary.
fn take_from_idle(peer: IpAddr, front: &FrontEnd, shared: &Shared) -> bool {
    let anybody = front.connection_shares.all_taken();
    let idle = {
        let sessions = front.sessions.lock();
        let fitting = sessions.values().filter(|session| anybody || network(session.peer.ip()) == network(peer));
        let idle = fitting.filter(|session| !session.open.has_open_files());
        let idle = idle.filter_map(|session| Some((session.outgoing.idle_since()?, session)));
        idle.min_by_key(|(since, _)| *since).map(|(_, session)| Arc::clone(session))
    };
    let Some(session) = idle.filter(|session| session.outgoing.cut_if_idle()) else { return false };
    front.meter.ended(Ended::MadeRoom);
    if let Some(held_back) = front.service.alarms().admit(Instant::now()) {
        tracing::info!(client = %session, held_back, "the connections are taken: the longest idle one is closed for a new one");
    }
    let deadline = Instant::now() + ITS_END;
    let mut open = shared.open.lock();
    loop {
        if front.connection_shares.take(peer) {
            return true;
        }
        if shared.closed.wait_until(&mut open, deadline).timed_out() {
            return front.connection_shares.take(peer);
        }
    }
}

/// Sends the answer to the handshake, and then the reason.
fn refuse(socket: &TcpStream, front: &FrontEnd) {
    let mut bytes = HandshakeReply::data_server(front.protocol_version()).to_bytes().to_vec();
    let text = format!(
        "This server has {} connections, and your machine has its share of those that are left; please try again later",
        front.connection_shares.most()
    );
    wire::reply::error(&mut bytes, StreamId::default(), ErrorNumber::OVERLOADED, &text);
    let _ = socket.set_write_timeout(Some(Duration::from_millis(100)));
    let _ = (&*socket).write_all(&bytes);
    let _ = socket.shutdown(Shutdown::Write);
}

fn take_in(
    socket: TcpStream,
    peer: SocketAddr,
    number: u64,
    front: &Arc<FrontEnd>,
    shared: &Arc<Shared>,
) -> std::io::Result<()> {
    let share = Share { peer: peer.ip(), front: Arc::clone(front) };
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(front.times().send))?;
    let socket = Arc::new(socket);
    shared.open.lock().insert(number, Arc::clone(&socket));
    front.connections.fetch_add(1, Ordering::Relaxed);
    let gone = Gone { number, shared: Arc::clone(shared) };
    let front = Arc::clone(front);
    std::thread::Builder::new().name(format!("conn-{number}")).stack_size(STACK_BYTES).spawn(move || {
        // Dropped last, at the end of the thread or by a panic, or if the thread cannot be started.
        let (_gone, _share) = (gone, share);
        let front = front;
        connection::serve(&front, socket, peer);
    })?;
    Ok(())
}

/// Returns the connection's share when dropped.
struct Share {
    peer: IpAddr,
    front: Arc<FrontEnd>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.front.connection_shares.give_back(self.peer);
    }
}

/// Removes the connection from the list when dropped.
struct Gone {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.shared.open.lock().remove(&self.number);
        self.shared.closed.notify_all();
    }
}
