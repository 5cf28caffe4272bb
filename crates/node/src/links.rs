//! Keeps this node's connections with other nodes up. It listens, dials the nodes that it must keep, and dials again when a connection is lost.
//!
//! Two nodes have one connection at a time, whichever of them dialed it. A [`Receiver`] sees one story of each node: `connected`, the messages,
//! `ended`, and then perhaps `connected` again. If both nodes dial at once, the connection dialed by the node with the lower number stays. If one
//! node dials twice, the newer connection stays: the node would not dial if it had not lost the older one. Both sides follow this rule, so they agree
//! without a message.
//!
//! Messages from one thread to a node arrive in their order, as long as a connection lasts. When it ends, messages in transit may be lost, and the
//! receivers on both sides learn of the end.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use link::{
    CallError, CloseCause, Expect, Handler, IncomingHeader, LinkError, Listener, LocalNode, OtherServices, Outgoing,
    PeerIdentity, Role, Room, SendError,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rand::Rng as _;
use types::NodeId;

use crate::bulk::BulkBytes;
use crate::redial::{Failure, Need, Redial};

/// The buffer for bulk bytes.
pub type Buffer = BulkBytes;
/// A connection.
pub type Peer = link::Peer<Buffer>;
/// A message received on a connection.
pub type Received = link::Received<Buffer>;
/// A request received on a connection.
pub type Call = link::Call<Buffer>;
/// The answer to a request.
pub type Answer = link::Answer<Buffer>;

/// The stack size of a thread that dials and then reads. Untouched pages cost nothing.
const STACK_BYTES: usize = 512 << 10;

/// Handles the messages of other nodes. All methods run on the reading thread of a connection, so nothing else is read from that node until they
/// return. A method must not wait for an answer of the same node: it would wait for ever.
pub trait Receiver: Send + Sync + 'static {
    /// A buffer for the bulk bytes of a message. With `None` the bytes are read and dropped.
    fn buffer(&self, _from: NodeId, arriving: &IncomingHeader<'_>) -> Option<Buffer> {
        Some(BulkBytes::new(arriving.header.bulk_len as usize))
    }

    /// Admits a node or refuses it. A refused node is told the reason.
    ///
    /// # Errors
    /// The reason.
    fn admit(&self, _peer: &PeerIdentity) -> Result<(), String> {
        Ok(())
    }

    /// A node has connected.
    fn connected(&self, node: NodeId, peer: &Peer);

    /// A node has sent a message.
    fn received(&self, node: NodeId, received: Received);

    /// A connection has ended. Messages in either direction may be lost.
    fn ended(&self, node: NodeId, why: &LinkError);
}

/// Handles what nodes settle before other messages: membership, certificates and stores. The methods may run on a reading thread. An answer may take
/// as long as a change of the namespace.
pub trait RegistrationHandler: Send + Sync + 'static {
    /// Admits a node or refuses it. A refused node is told the reason.
    ///
    /// # Errors
    /// The reason.
    fn admit(&self, peer: &PeerIdentity) -> Result<(), String>;

    /// The answer to a request; `None` for no answer.
    fn answer(&self, from: &PeerIdentity, request: &[u8]) -> Option<Vec<u8>>;
}

/// The first bytes of a request for a [`RegistrationHandler`]. No other message begins with them: other messages are enums, and no variant number has
/// this encoding.
pub const REGISTRATION: [u8; 5] = [0xff; 5];

/// The reason that the other side gets when [`Links::forget`] closes a connection.
const NOT_NEEDED: &str = "it is not needed any more";

/// Why a message was not sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotSent {
    /// The node is not connected.
    #[error("node {0} is not connected")]
    NotConnected(NodeId),
    /// The connection does not accept the message.
    #[error("node {node}: {error}")]
    Send {
        /// The destination.
        node: NodeId,
        /// The reason.
        error: SendError,
    },
}

/// A node with which to keep a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Kept {
    /// This node, at any address.
    Node(NodeId),
    /// The manager at this address, whatever its number.
    Manager(String),
}

/// The state of a kept connection.
struct KeptConnection {
    address: String,
    /// The node found at the address.
    node: Option<NodeId>,
    /// Separates the thread of an earlier `keep` from that of a later one.
    number: u64,
}

struct Current {
    peer: Peer,
    dialed_here: bool,
    /// The connection's number; newer ones have higher numbers.
    arrival: u64,
    /// The node does not belong here any more.
    is_expelled: bool,
}

#[derive(Default)]
struct State {
    receiver: Option<Arc<dyn Receiver>>,
    registration: Option<Arc<dyn RegistrationHandler>>,
    listener: Option<(Arc<Listener>, JoinHandle<()>)>,
    current: HashMap<NodeId, Current>,
    kept: HashMap<Kept, KeptConnection>,
    counted: u64,
    stopping: bool,
    /// A manager serves this node, so that it needs no other.
    is_served: bool,
}

impl State {
    fn count(&mut self) -> u64 {
        self.counted += 1;
        self.counted
    }

    /// The state of this kept connection, if it is still wanted.
    fn keeping(&mut self, kept: &Kept, number: u64) -> Option<&mut KeptConnection> {
        self.kept.get_mut(kept).filter(|keeping| keeping.number == number)
    }

    fn need(&self, kept: &Kept) -> Need {
        match kept {
            Kept::Node(_) => Need::Node,
            Kept::Manager(_) if self.is_served => Need::SpareManager,
            Kept::Manager(_) => Need::Manager,
        }
    }

    fn is_connected(&self, node: Option<NodeId>) -> bool {
        node.is_some_and(|node| self.current.contains_key(&node))
    }
}

/// The connections of a node.
pub struct Links {
    us: LocalNode,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Links(of {})", self.us.credentials.name())
    }
}

impl Links {
    /// Makes the connections of `us`, none at first. No node is dialed before [`Links::start`].
    #[must_use]
    pub fn new(us: LocalNode) -> Arc<Self> {
        Arc::new(Self { us, state: Mutex::new(State::default()), changed: Condvar::new() })
    }

    /// This node's identity.
    #[must_use]
    pub fn us(&self) -> &LocalNode {
        &self.us
    }

    /// This node's number.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.us.credentials.name().node
    }

    /// Starts: accepts connections at `listener`, dials the kept nodes, and passes messages to `receiver`. `others` are also
    /// served. A manager has a `registration`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        self: &Arc<Self>,
        listener: &Arc<Listener>,
        others: OtherServices,
        registration: Option<Arc<dyn RegistrationHandler>>,
        receiver: Arc<dyn Receiver>,
    ) -> io::Result<()> {
        let (links, its) = (Arc::clone(self), Arc::clone(listener));
        let serve = move || {
            let side = Arc::new(LinkCallbacks { links: Arc::clone(&links), dialed_for: None });
            its.serve(&links.us, &side, &others);
        };
        let mut state = self.state.lock();
        // Accept no connection before the receiver exists.
        let thread = std::thread::Builder::new().name("nodes".into()).spawn(serve)?;
        state.receiver = Some(receiver);
        state.registration = registration;
        state.listener = Some((Arc::clone(listener), thread));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Keeps a connection with `node` at `address` (`host:port`). A later call replaces the address.
    pub fn keep(self: &Arc<Self>, node: NodeId, address: &str) {
        if node != self.node() {
            self.keep_this(Kept::Node(node), address, Some(node));
        }
    }

    /// Keeps a connection with the manager at `address` (`host:port`), whatever its number.
    pub fn keep_manager(self: &Arc<Self>, address: &str) {
        self.keep_this(Kept::Manager(address.to_owned()), address, None);
    }

    /// Keeps connections with the managers at these addresses (`host:port`), and with no others. For each may stand which manager is there: a node
    /// with which there is a connection is not dialed. Existing connections stay.
    pub fn keep_managers(self: &Arc<Self>, managers: &[(String, Option<NodeId>)]) {
        let is_wanted = |kept: &Kept| match kept {
            Kept::Node(_) => true,
            Kept::Manager(address) => managers.iter().any(|(wanted, _)| wanted == address),
        };
        self.state.lock().kept.retain(|kept, _| is_wanted(kept));
        self.changed.notify_all();
        for (address, node) in managers.iter().filter(|(_, node)| *node != Some(self.node())) {
            self.keep_this(Kept::Manager(address.clone()), address, *node);
        }
    }

    /// Says whether a manager serves this node. While none does, managers are dialed more often.
    pub fn set_served(&self, is_served: bool) {
        let before = std::mem::replace(&mut self.state.lock().is_served, is_served);
        if before != is_served {
            self.changed.notify_all();
        }
    }

    fn keep_this(self: &Arc<Self>, kept: Kept, address: &str, node: Option<NodeId>) {
        let mut state = self.state.lock();
        if state.stopping {
            return;
        }
        if let Some(keeping) = state.kept.get_mut(&kept) {
            address.clone_into(&mut keeping.address);
            keeping.node = node.or(keeping.node);
            return;
        }
        let number = state.count();
        state.kept.insert(kept.clone(), KeptConnection { address: address.to_owned(), node, number });
        drop(state);
        let (links, of) = (Arc::clone(self), kept.clone());
        let thread = std::thread::Builder::new().name("dial".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || links.dial_on(&of, number)) {
            // The next `keep` tries again.
            tracing::error!(address, %error, "no thread to connect to a node");
            self.state.lock().kept.remove(&kept);
        }
    }

    /// Stops keeping a connection with `node`. Closes a connection that this node dialed.
    pub fn forget(&self, node: NodeId) {
        let mut state = self.state.lock();
        state.kept.remove(&Kept::Node(node));
        if let Some(current) = state.current.get(&node).filter(|current| current.dialed_here) {
            current.peer.close(NOT_NEEDED);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The connection with `node`, if it is connected.
    #[must_use]
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        let state = self.state.lock();
        state.current.get(&node).map(|current| current.peer.clone()).filter(|peer| peer.ended().is_none())
    }

    /// Ends the connection with a node that does not belong here any more. What had arrived from it and was not handed on yet is dropped.
    pub fn expel(&self, node: NodeId, why: &str) {
        let peer = {
            let mut state = self.state.lock();
            let Some(current) = state.current.get_mut(&node) else { return };
            current.is_expelled = true;
            current.peer.clone()
        };
        peer.cut(why);
    }

    /// Ends the connections that were opened with a certificate that this node would not take any more, because it trusts other authorities now. Nodes
    /// that have a new certificate connect again. Returns these nodes.
    pub fn cut_strangers(&self) -> Vec<NodeId> {
        let trusted = self.us.credentials.authority();
        let mut others: Vec<Peer> = self.state.lock().current.values().map(|current| current.peer.clone()).collect();
        others.retain(|peer| !peer.identity().is_trusted_by(&trusted));
        others.iter().for_each(|peer| peer.cut("the cluster's authority was replaced, and this connection is older"));
        others.iter().map(|peer| peer.identity().name.node).collect()
    }

    /// Ends all connections after sending their queued messages. Those that are needed are opened again, with the node's present certificate.
    pub fn reopen(&self, reason: &str) {
        let state = self.state.lock();
        state.current.values().for_each(|current| current.peer.close(reason));
    }

    /// Whether a node is connected and has not closed its side. The receiver may not have learned of a close yet.
    #[must_use]
    pub fn is_up(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| !peer.has_hung_up())
    }

    /// All connected nodes, by number.
    #[must_use]
    pub fn connected(&self) -> Vec<PeerIdentity> {
        let state = self.state.lock();
        let mut peers: Vec<PeerIdentity> = state.current.values().map(|one| one.peer.identity().clone()).collect();
        peers.sort_by_key(|peer| peer.name.node);
        peers
    }

    /// Sends a message without an answer. Nobody reports whether it arrives. Messages of one thread arrive in their order.
    ///
    /// # Errors
    /// When the node is not connected, or there is no room with [`Room::Try`].
    pub fn tell(&self, node: NodeId, outgoing: Outgoing, room: Room) -> Result<(), NotSent> {
        let peer = self.peer(node).ok_or(NotSent::NotConnected(node))?;
        peer.tell(outgoing, room).map_err(|error| NotSent::Send { node, error })
    }

    /// Sends a request. Calls `on_answer` once with the answer or an error. The call comes on a reading thread, so it must not wait. If this function
    /// fails, it does not call `on_answer`.
    ///
    /// # Errors
    /// When the node is not connected, or there is no room with [`Room::Try`].
    pub fn request_then(
        &self,
        node: NodeId,
        call: Call,
        room: Room,
        on_answer: impl FnOnce(Result<Answer, CallError>) + Send + 'static,
    ) -> Result<(), NotSent> {
        let peer = self.peer(node).ok_or(NotSent::NotConnected(node))?;
        peer.request_then(call, room, on_answer).map_err(|error| NotSent::Send { node, error })
    }

    /// Closes all connections after sending their queued messages, and opens no others. Waits up to `patience` for the connections to end.
    pub fn stop(&self, reason: &str, patience: Duration) {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        state.stopping = true;
        state.kept.clear();
        let listener = state.listener.take();
        for current in state.current.values() {
            current.peer.close(reason);
        }
        drop(state);
        self.changed.notify_all();
        if let Some((listener, thread)) = listener {
            listener.stop();
            if thread.join().is_err() {
                tracing::error!("the thread that accepts nodes had panicked");
            }
        }
        let mut state = self.state.lock();
        while !state.current.is_empty() && !self.changed.wait_until(&mut state, until).timed_out() {}
        let left: Vec<Peer> = state.current.values().map(|current| current.peer.clone()).collect();
        state.receiver = None;
        state.registration = None;
        drop(state);
        left.iter().for_each(|peer| peer.cut(reason));
    }

    fn receiver(&self) -> Option<Arc<dyn Receiver>> {
        self.state.lock().receiver.clone()
    }

    /// The thread that dials one node and reads its messages.
    fn dial_on(self: Arc<Self>, kept: &Kept, number: u64) {
        let mut redial = Redial::default();
        let side = LinkCallbacks { links: Arc::clone(&self), dialed_for: Some((kept.clone(), number)) };
        while let Some(address) = self.wait_for_need(kept, number) {
            let began = Instant::now();
            match self.dial(kept, &address) {
                Ok(ready) => {
                    let node = ready.peer().identity().name.node;
                    match self.state.lock().keeping(kept, number) {
                        Some(keeping) => keeping.node = Some(node),
                        None => return,
                    }
                    ready.run(&side);
                    redial.was_connected();
                }
                // The other side may have dialed by now.
                Err(error) if self.is_connected(kept, number) => {
                    tracing::debug!(address, %error, "connected meanwhile")
                }
                Err(error) => {
                    let text = error.to_string();
                    match redial.failed(error.failure(), &text, began, Instant::now()) {
                        true => tracing::warn!(address, "cannot be reached, tried again and again: {text}"),
                        false => tracing::debug!(address, "still: {text}"),
                    }
                }
            }
            redial.over(began, Instant::now());
            // A random pause, so that many nodes that lose one do not all return at the same moment.
            let (since, part) = (Instant::now(), rand::rng().random_range(0.5..1.0));
            let mut state = self.state.lock();
            while state.keeping(kept, number).is_some() {
                // It may become urgent meanwhile.
                let until = since + redial.pause(state.need(kept)).mul_f64(part);
                if self.changed.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
        }
    }

    fn is_connected(&self, kept: &Kept, number: u64) -> bool {
        let mut state = self.state.lock();
        let node = state.keeping(kept, number).and_then(|keeping| keeping.node);
        state.is_connected(node)
    }

    /// Waits until a connection is needed and returns its address. `None` if it is not needed any more.
    fn wait_for_need(&self, kept: &Kept, number: u64) -> Option<String> {
        let mut state = self.state.lock();
        loop {
            let (address, node) = state.keeping(kept, number).map(|keeping| (keeping.address.clone(), keeping.node))?;
            if state.receiver.is_some() && !state.is_connected(node) {
                return Some(address);
            }
            self.changed.wait(&mut state);
        }
    }

    fn dial(&self, kept: &Kept, address: &str) -> Result<link::Ready<Buffer>, DialError> {
        let expect = match kept {
            Kept::Node(node) => Expect { node: Some(*node), role: None },
            Kept::Manager(_) => Expect { node: None, role: Some(Role::Manager) },
        };
        let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(DialError::Name)?.collect();
        let mut last = DialError::NoAddress;
        for address in addresses {
            match link::connect(&self.us, address, expect) {
                Ok(ready) => return Ok(ready),
                Err(error) => last = DialError::Link(error),
            }
        }
        Err(last)
    }

    fn is_current(state: &MutexGuard<'_, State>, peer: &Peer) -> bool {
        let current = state.current.get(&peer.identity().name.node);
        current.is_some_and(|current| current.peer.is_same_connection(peer))
    }

    /// Whether the current connection stays and is not replaced by a new one.
    fn outranks(&self, current: &Current, dialed_here: bool) -> bool {
        let node = current.peer.identity().name.node;
        // The connection that the node with the lower number dialed wins.
        current.dialed_here != dialed_here && current.dialed_here == (self.node() < node)
    }
}

#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("the name cannot be looked up: {0}")]
    Name(io::Error),
    #[error("the name has no address")]
    NoAddress,
    #[error(transparent)]
    Link(LinkError),
}

impl DialError {
    fn failure(&self) -> Failure {
        match self {
            Self::Link(LinkError { why: CloseCause::Refused(reason), .. }) if link::is_of_standby(reason) => {
                Failure::Standby
            }
            Self::Link(LinkError { why: CloseCause::Refused(_), .. }) => Failure::Refused,
            _ => Failure::Other,
        }
    }
}

/// The callbacks for [`link`]: for connections that this node dialed, and for those that it accepted.
struct LinkCallbacks {
    links: Arc<Links>,
    /// The kept connection for which it was dialed.
    dialed_for: Option<(Kept, u64)>,
}

impl Handler for LinkCallbacks {
    type Buffer = Buffer;

    fn buffer(&self, from: &PeerIdentity, arriving: &IncomingHeader<'_>) -> Option<Buffer> {
        self.links.receiver()?.buffer(from.name.node, arriving)
    }

    fn admit(&self, peer: &PeerIdentity) -> Result<(), String> {
        let node = peer.name.node;
        if node == self.links.node() {
            return Err(format!("this is node {node}, too: an identity is for one machine"));
        }
        let state = self.links.state.lock();
        let dialed_here = self.dialed_for.is_some();
        let stays = |current: &Current| current.peer.ended().is_none() && self.links.outranks(current, dialed_here);
        if state.current.get(&node).is_some_and(stays) {
            return Err(format!("node {} has a connection with node {node} already", self.links.node()));
        }
        let (receiver, registration) = (state.receiver.clone(), state.registration.clone());
        drop(state);
        if let Some(registration) = registration {
            registration.admit(peer)?;
        }
        receiver.ok_or("the node stops")?.admit(peer)
    }

    fn connected(&self, peer: &Peer) {
        let (links, node) = (&self.links, peer.identity().name.node);
        let dialed_here = self.dialed_for.is_some();
        let mut state = links.state.lock();
        let arrival = state.count();
        loop {
            if state.stopping {
                return peer.close("the node stops");
            }
            // `forget` closes the connection of its time, and this one came later. So it is refused here, and no other connection has to give way to
            // it.
            if self.dialed_for.as_ref().is_some_and(|(kept, number)| state.keeping(kept, *number).is_none()) {
                return peer.close(NOT_NEEDED);
            }
            let Some(current) = state.current.get(&node) else { break };
            let stays = links.outranks(current, dialed_here)
                || (current.dialed_here == dialed_here && current.arrival > arrival);
            if stays && current.peer.ended().is_none() {
                return peer.close("there is another connection between the two nodes");
            }
            let old = current.peer.clone();
            // Callers that wait for answers on the old connection are told at once, and may want to send something.
            MutexGuard::unlocked(&mut state, || old.cut("another connection between the two nodes replaces it"));
            // The old connection's thread reports its end. Until then its messages are still delivered, and those of this one are not.
            while Links::is_current(&state, &old) {
                links.changed.wait(&mut state);
            }
            if peer.ended().is_some() {
                return;
            }
        }
        state.current.insert(node, Current { peer: peer.clone(), dialed_here, arrival, is_expelled: false });
        let receiver = state.receiver.clone();
        drop(state);
        if let Some(receiver) = receiver {
            receiver.connected(node, peer);
        }
        links.changed.notify_all();
    }

    fn received(&self, from: &Peer, received: Received) {
        let state = self.links.state.lock();
        // Messages on a refused connection are ignored, and those of a node that does not belong here any more. A request gets an error. What had
        // arrived on a connection that has ended for another reason is good: its sender may count on it.
        let is_expelled = state.current.get(&from.identity().name.node).is_some_and(|current| current.is_expelled);
        if !Links::is_current(&state, from) || is_expelled {
            return;
        }
        let received = match received {
            Received::Request { message, responder, .. } if message.starts_with(&REGISTRATION) => {
                let request = &message[REGISTRATION.len()..];
                let registration = state.registration.clone();
                drop(state);
                if let Some(answer) =
                    registration.and_then(|registration| registration.answer(from.identity(), request))
                    && let Err(error) = responder.answer(Outgoing::new(answer))
                {
                    tracing::warn!(peer = %from.identity(), %error, "an answer could not be sent");
                }
                return;
            }
            other => other,
        };
        let receiver = state.receiver.clone();
        drop(state);
        if let Some(receiver) = receiver {
            receiver.received(from.identity().name.node, received);
        }
    }

    fn ended(&self, peer: &Peer, why: &LinkError) {
        let (links, node) = (&self.links, peer.identity().name.node);
        let state = links.state.lock();
        if !Links::is_current(&state, peer) {
            return;
        }
        let receiver = state.receiver.clone();
        drop(state);
        if let Some(receiver) = receiver {
            receiver.ended(node, why);
        }
        links.state.lock().current.remove(&node);
        links.changed.notify_all();
    }
}
