//! A manager with its connections.

use std::io;
use std::sync::Arc;

use cluster::Time;
use link::{IncomingHeader, LinkError, Role};
use namespace::{Namespace, NsError};
use parking_lot::Mutex;
use rand::Rng as _;
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use types::{NodeId, Timestamp};

use crate::{Manager, ManagerSettings, World};
use node::links::{Buffer, Links, Peer, Received, Receiver};
use node::sending::Sending;
use node::ticker::{Clock, Ticker, wall_clock};
use node::{FromManager, Message};

/// Why a manager did not start.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The namespace cannot be read.
    #[error("the namespace cannot be read: {0}")]
    Namespace(#[from] NsError),
    /// A thread could not be started.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// A running manager.
pub struct ManagerNode {
    manager: Arc<Manager>,
    ticker: Mutex<Option<Ticker>>,
}

/// Whether the manager may act as the one that has its database ([`World::has_lease`]).
pub type HasLease = Box<dyn Fn() -> bool + Send + Sync>;

/// What a manager can ask about its place as the one that has its database.
pub struct PlaceChecks {
    /// [`World::has_lease`].
    pub has_lease: HasLease,
    /// [`World::has_lost_place`].
    pub is_lost: Box<dyn Fn() -> bool + Send + Sync>,
}

struct Outside {
    sending: Sending,
    clock: Clock,
    place: PlaceChecks,
}

impl World for Outside {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn wall(&self) -> Timestamp {
        wall_clock()
    }

    fn random(&self) -> u64 {
        rand::rng().random()
    }

    fn secret(&self) -> Option<[u8; 32]> {
        let mut secret = [0; 32];
        OsRng.try_fill_bytes(&mut secret).ok().map(|()| secret)
    }

    fn has_lease(&self) -> bool {
        (self.place.has_lease)()
    }

    fn has_lost_place(&self) -> bool {
        (self.place.is_lost)()
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.sending.links.is_up(node)
    }

    fn send(&self, to: NodeId, message: FromManager) -> bool {
        self.sending.tell(to, &Message::FromManager(message), None)
    }

    fn cut(&self, node: NodeId, why: &str) {
        self.sending.links.expel(node, why);
    }
}

struct Inbox(Arc<Manager>);

impl Receiver for Inbox {
    /// No message to a manager has bulk bytes, so it needs no room for them.
    fn buffer(&self, _from: NodeId, _arriving: &IncomingHeader<'_>) -> Option<Buffer> {
        None
    }

    fn connected(&self, node: NodeId, peer: &Peer) {
        if peer.identity().name.roles.contain(Role::Disk) {
            self.0.connected(node, peer.identity().address.ip());
        }
    }

    fn received(&self, node: NodeId, received: Received) {
        // A manager answers no requests here.
        let Received::OneWay { message, .. } = received else { return };
        match link::decode::<Message>(&message) {
            Ok(Message::FromDisk(message)) => self.0.receive(node, message),
            Ok(_) => tracing::warn!(%node, "a node sends a message that a manager must not get"),
            Err(error) => tracing::warn!(%node, %error, "a node sends an invalid message"),
        }
    }

    fn ended(&self, node: NodeId, why: &LinkError) {
        tracing::info!(%node, %why, "a node is not connected any more");
        self.0.disconnected(node);
    }
}

impl ManagerNode {
    /// Starts a manager, as the node whose connections `links` are. Give [`ManagerNode::receiver`] to `links`.
    ///
    /// # Errors
    /// [`ManagerError`].
    pub fn start(
        namespace: Arc<Namespace>,
        settings: ManagerSettings,
        links: &Arc<Links>,
        place: PlaceChecks,
    ) -> Result<Self, ManagerError> {
        let outside = Outside { sending: Sending::new(links), clock: Clock::start(), place };
        let settings = ManagerSettings { node: links.node(), ..settings };
        let manager = Manager::start(namespace, settings, Box::new(outside))?;
        let ticking = Arc::clone(&manager);
        let ticker = Ticker::start("manager", move || ticking.tick())?;
        Ok(Self { manager, ticker: Mutex::new(Some(ticker)) })
    }

    /// The manager's decisions.
    #[must_use]
    pub fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// The receiver for messages of other nodes.
    #[must_use]
    pub fn receiver(&self) -> Arc<dyn Receiver> {
        Arc::new(Inbox(Arc::clone(&self.manager)))
    }

    /// Stops the periodic work. The caller closes the connections.
    pub fn stop(&self) {
        drop(self.ticker.lock().take());
    }
}
