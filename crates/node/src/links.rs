//! Keeps connections between this node and others up: listens, dials who is to be kept, dials again when a connection is lost.
//!
//! Two nodes have one connection at a time, whoever dialed it, and a [`Receiver`] sees one story of each node: `connected`, what it sends, `ended`,
//! and then perhaps `connected` again. If both dial at once, the one dialed by the node with the lower number stays; of two dialed by the same node,
//! the newer (it would not dial if it had not lost the older). Both sides go by this rule, so they agree without a word.
//!
//! Messages told to a node by one thread arrive in their order, as long as a connection lasts; with its end those that were under way may be lost, and
//! the receivers of both sides are told of it.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use link::{
    Arriving, CallError, Door, Expect, Handler, LinkError, Listener, LocalNode, Outgoing, PeerIdentity, Role, Room,
    SendError,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rand::Rng as _;
use types::NodeId;

use crate::bulk::BulkBytes;

/// What bulk is received into.
pub type Buffer = BulkBytes;
/// A connection.
pub type Peer = link::Peer<Buffer>;
/// What has come through one.
pub type Received = link::Received<Buffer>;
/// What is asked through one.
pub type Call = link::Call<Buffer>;
/// What was answered.
pub type Answer = link::Answer<Buffer>;

/// Pauses between tries to connect grow from this ..
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// .. to this.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A connection that has lasted so long was a good one: the next try comes soon.
const LASTED: Duration = Duration::from_secs(2);
/// Address space of the stack of a thread that dials and then reads. What it does not touch costs nothing.
const STACK_BYTES: usize = 512 << 10;

/// Who is told what comes. All of it is called on the reading thread of a connection: as long as it takes nothing else is read from that node, and
/// whoever waits there for an answer of the same node waits for ever.
pub trait Receiver: Send + Sync + 'static {
    /// Room for the bulk behind a message. `None`: it is read away.
    fn buffer(&self, _from: NodeId, arriving: &Arriving<'_>) -> Option<Buffer> {
        Some(BulkBytes::new(arriving.header.bulk_len as usize))
    }

    /// Whether a node may connect; if not, it is told the reason.
    ///
    /// # Errors
    /// The reason.
    fn admit(&self, _peer: &PeerIdentity) -> Result<(), String> {
        Ok(())
    }

    /// A node is connected.
    fn connected(&self, node: NodeId, peer: &Peer);

    /// It has sent something.
    fn received(&self, node: NodeId, received: Received);

    /// It is connected no more. What was under way in either direction may be lost.
    fn ended(&self, node: NodeId, why: &LinkError);
}

/// What the keepers of connections settle between themselves, without the roles: whether a node is a member, its certificate, its stores. Asked on a
/// reading thread, too; an answer may take as long as a change of the namespace does.
pub trait RegistrationHandler: Send + Sync + 'static {
    /// Whether a node may connect; if not, it is told the reason.
    ///
    /// # Errors
    /// The reason.
    fn admit(&self, peer: &PeerIdentity) -> Result<(), String>;

    /// The answer to a request; `None`: there is none.
    fn answer(&self, from: &PeerIdentity, request: &[u8]) -> Option<Vec<u8>>;
}

/// A request for a [`RegistrationHandler`] begins with this. No message of the roles does: they are enums, and no number of a variant is written so.
pub const REGISTRATION: [u8; 5] = [0xff; 5];

/// What the other side of a connection is told that [`Links::forget`] ends.
const NOT_NEEDED: &str = "it is not needed any more";

/// Nothing was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotSent {
    /// There is no connection.
    #[error("node {0} is not connected")]
    NotConnected(NodeId),
    /// The connection does not take it.
    #[error("node {node}: {error}")]
    Send {
        /// For whom it was.
        node: NodeId,
        /// Why.
        error: SendError,
    },
}

/// Whom to keep a connection with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Kept {
    /// This node, wherever it is.
    Node(NodeId),
    /// The manager at this address, whichever it is.
    Manager(String),
}

/// What is known of somebody who is kept.
struct Keeping {
    address: String,
    /// Who was found there.
    node: Option<NodeId>,
    /// Tells the thread of an earlier `keep` from that of a later one.
    number: u64,
}

struct Current {
    peer: Peer,
    dialed_here: bool,
    /// Counts connections: the newer has the higher.
    arrival: u64,
}

#[derive(Default)]
struct State {
    receiver: Option<Arc<dyn Receiver>>,
    registration: Option<Arc<dyn RegistrationHandler>>,
    listener: Option<(Arc<Listener>, JoinHandle<()>)>,
    current: HashMap<NodeId, Current>,
    kept: HashMap<Kept, Keeping>,
    counted: u64,
    stopping: bool,
}

impl State {
    fn count(&mut self) -> u64 {
        self.counted += 1;
        self.counted
    }

    /// The keeping of this number, if it is still wanted.
    fn keeping(&mut self, kept: &Kept, number: u64) -> Option<&mut Keeping> {
        self.kept.get_mut(kept).filter(|keeping| keeping.number == number)
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
    /// Those of `us`: none yet. Nobody is dialed before [`Links::start`].
    #[must_use]
    pub fn new(us: LocalNode) -> Arc<Self> {
        Arc::new(Self { us, state: Mutex::new(State::default()), changed: Condvar::new() })
    }

    /// Who this node is.
    #[must_use]
    pub fn us(&self) -> &LocalNode {
        &self.us
    }

    /// This node's number.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.us.credentials.name().node
    }

    /// Begins: takes connections in at `listener`, lets nodes join if there is a `door`, dials who is kept, and tells `receiver` what comes. A manager
    /// has a `registration`.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(
        self: &Arc<Self>,
        listener: &Arc<Listener>,
        door: Option<Arc<Door>>,
        registration: Option<Arc<dyn RegistrationHandler>>,
        receiver: Arc<dyn Receiver>,
    ) -> io::Result<()> {
        let (links, its) = (Arc::clone(self), Arc::clone(listener));
        let serve = move || {
            let side = Arc::new(Side { links: Arc::clone(&links), dialed_for: None });
            its.serve(&links.us, &side, door.as_ref());
        };
        let mut state = self.state.lock();
        // It takes nobody in before there is a receiver.
        let thread = std::thread::Builder::new().name("nodes".into()).spawn(serve)?;
        state.receiver = Some(receiver);
        state.registration = registration;
        state.listener = Some((Arc::clone(listener), thread));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// From now on there is to be a connection with `node`, which is at `address` (`host:port`). Said again, it is the address that counts from now on.
    pub fn keep(self: &Arc<Self>, node: NodeId, address: &str) {
        if node != self.node() {
            self.keep_this(Kept::Node(node), address, Some(node));
        }
    }

    /// From now on there is to be a connection with the manager at `address` (`host:port`), whatever its number is.
    pub fn keep_manager(self: &Arc<Self>, address: &str) {
        self.keep_this(Kept::Manager(address.to_owned()), address, None);
    }

    fn keep_this(self: &Arc<Self>, kept: Kept, address: &str, node: Option<NodeId>) {
        let mut state = self.state.lock();
        if state.stopping {
            return;
        }
        if let Some(keeping) = state.kept.get_mut(&kept) {
            address.clone_into(&mut keeping.address);
            return;
        }
        let number = state.count();
        state.kept.insert(kept.clone(), Keeping { address: address.to_owned(), node, number });
        drop(state);
        let (links, of) = (Arc::clone(self), kept.clone());
        let thread = std::thread::Builder::new().name("dial".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || links.dial_on(&of, number)) {
            // The next `keep` tries again.
            tracing::error!(address, %error, "no thread to connect to a node");
            self.state.lock().kept.remove(&kept);
        }
    }

    /// From now on nothing is done to be connected with `node`. A connection that was dialed here is closed.
    pub fn forget(&self, node: NodeId) {
        let mut state = self.state.lock();
        state.kept.remove(&Kept::Node(node));
        if let Some(current) = state.current.get(&node).filter(|current| current.dialed_here) {
            current.peer.close(NOT_NEEDED);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The connection with `node`, if there is one.
    #[must_use]
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        let state = self.state.lock();
        state.current.get(&node).map(|current| current.peer.clone()).filter(|peer| peer.ended().is_none())
    }

    /// Whether a node is connected, and has not closed the connection at its side either, which nobody may have been told yet.
    #[must_use]
    pub fn is_up(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| !peer.has_hung_up())
    }

    /// All that are connected, by number.
    #[must_use]
    pub fn connected(&self) -> Vec<PeerIdentity> {
        let state = self.state.lock();
        let mut peers: Vec<PeerIdentity> = state.current.values().map(|one| one.peer.identity().clone()).collect();
        peers.sort_by_key(|peer| peer.name.node);
        peers
    }

    /// Sends a message that has no answer. Whether it arrives is not told; those of one thread arrive in their order.
    ///
    /// # Errors
    /// When the node is not connected, or with [`Room::Try`] there is no room.
    pub fn tell(&self, node: NodeId, outgoing: Outgoing, room: Room) -> Result<(), NotSent> {
        let peer = self.peer(node).ok_or(NotSent::NotConnected(node))?;
        peer.tell(outgoing, room).map_err(|error| NotSent::Send { node, error })
    }

    /// Sends a request; `on_answer` is called once, on a reading thread (so it must not wait), with the answer or why there is none. It is not called
    /// when this fails.
    ///
    /// # Errors
    /// When the node is not connected, or with [`Room::Try`] there is no room.
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

    /// Ends all connections after what is queued on them, takes and makes no others. Waits up to `patience` for their ends.
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

    /// The thread that dials one node, and reads what comes from it.
    fn dial_on(self: Arc<Self>, kept: &Kept, number: u64) {
        let mut pause = PAUSE_FIRST;
        let mut said = String::new();
        let side = Side { links: Arc::clone(&self), dialed_for: Some((kept.clone(), number)) };
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
                    said.clear();
                }
                // By now the other side may have dialed.
                Err(error) if self.is_connected(kept, number) => {
                    tracing::debug!(address, %error, "connected meanwhile")
                }
                Err(error) => {
                    let text = error.to_string();
                    if text == said {
                        tracing::debug!(address, "still: {text}");
                    } else {
                        tracing::warn!(address, "cannot be reached, tried again and again: {text}");
                        said = text;
                    }
                }
            }
            pause = if began.elapsed() >= LASTED { PAUSE_FIRST } else { (pause * 2).min(PAUSE_MAX) };
            // Many nodes that lose one do not all come back at the same moment.
            let pause = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            let until = Instant::now() + pause;
            let mut state = self.state.lock();
            while state.keeping(kept, number).is_some() && !self.changed.wait_until(&mut state, until).timed_out() {}
        }
    }

    fn is_connected(&self, kept: &Kept, number: u64) -> bool {
        let mut state = self.state.lock();
        let node = state.keeping(kept, number).and_then(|keeping| keeping.node);
        state.is_connected(node)
    }

    /// Waits until a connection is needed, and says where to; `None`: not any more.
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

    /// Whether the connection that there is stays, and one dialed `dialed_here` does not take its place.
    fn outranks(&self, current: &Current, dialed_here: bool) -> bool {
        let node = current.peer.identity().name.node;
        // Whose dialing counts is whoever has the lower number.
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

/// What [`link`] is told to call: for connections that were dialed here, or for those that came.
struct Side {
    links: Arc<Links>,
    /// What it was dialed here for.
    dialed_for: Option<(Kept, u64)>,
}

impl Handler for Side {
    type Buffer = Buffer;

    fn buffer(&self, from: &PeerIdentity, arriving: &Arriving<'_>) -> Option<Buffer> {
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
            // Whoever says that it is not needed any more closes what there is by then, and this was not. No other one has to go for it, either.
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
            // Whoever waits for answers of it is told at once, and may want to send something.
            MutexGuard::unlocked(&mut state, || old.cut("another connection between the two nodes replaces it"));
            // Its own thread says its end; until then its messages are still delivered, and this one's are not.
            while Links::is_current(&state, &old) {
                links.changed.wait(&mut state);
            }
            if peer.ended().is_some() {
                return;
            }
        }
        state.current.insert(node, Current { peer: peer.clone(), dialed_here, arrival });
        let receiver = state.receiver.clone();
        drop(state);
        if let Some(receiver) = receiver {
            receiver.connected(node, peer);
        }
        links.changed.notify_all();
    }

    fn received(&self, from: &Peer, received: Received) {
        let state = self.links.state.lock();
        // What comes through a connection that was not taken is not looked at; who asks is told that there is no answer.
        if !Links::is_current(&state, from) {
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
