//! A disk server with its connections and threads.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cluster::Time;
use link::{Bulk, IncomingHeader, LinkError, PeerIdentity, Role};
use parking_lot::{Condvar, Mutex, RwLock};
use types::NodeId;

use crate::manager_choice::ManagerChoice;
use crate::{DiskServer, DiskSettings, DiskWorld, StoreAt};
use node::BulkBytes;
use node::links::{Buffer, Links, Peer, Received, Receiver};
use node::sending::Sending;
use node::ticker::{Clock, TICK, Ticker};
use node::{FromDisk, ManagerAddress, Message, PeerMessage};

/// Threads for disk work on behalf of other nodes.
const WORKERS: usize = 8;
/// How often the server reports on its stores.
const REPORT: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

/// Takes the addresses of all managers whenever one has told them. It must not wait.
pub type OnManagers = Box<dyn Fn(Vec<ManagerAddress>) + Send + Sync>;

/// A queue of jobs for several threads.
#[derive(Default)]
struct Jobs {
    queue: Mutex<(VecDeque<Job>, bool)>,
    work: Condvar,
}

impl Jobs {
    fn push(&self, job: Job) {
        self.queue.lock().0.push_back(job);
        self.work.notify_one();
    }

    fn run(&self) {
        loop {
            let mut queue = self.queue.lock();
            let job = loop {
                if let Some(job) = queue.0.pop_front() {
                    break job;
                }
                if queue.1 {
                    return;
                }
                self.work.wait(&mut queue);
            };
            drop(queue);
            job();
        }
    }

    fn stop(&self) {
        self.queue.lock().1 = true;
        self.work.notify_all();
    }
}

/// A running disk server.
pub struct DiskNode {
    server: Arc<DiskServer>,
    ticker: Mutex<Option<Ticker>>,
    outside: Arc<Outside>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Outside {
    sending: Sending,
    clock: Clock,
    jobs: Jobs,
    /// Messages between stores of this server, in order.
    own: Jobs,
    server: RwLock<Option<Arc<DiskServer>>>,
    choice: Mutex<ManagerChoice>,
    on_managers: RwLock<Option<OnManagers>>,
}

impl Outside {
    fn links(&self) -> &Arc<Links> {
        &self.sending.links
    }

    fn manager(&self) -> Option<NodeId> {
        self.choice.lock().present()
    }

    /// Greets the manager that is followed from now on. The greeting reads from the disks, so no thread waits for it that renews the lease or receives.
    fn greet(&self) {
        if let Some(server) = self.server.read().clone() {
            self.jobs.push(Box::new(move || server.manager_connected()));
        }
    }

    /// Looks whether another manager must be followed, and whether one is missing.
    fn look_at_managers(&self) {
        let now = self.clock.now();
        let (next, is_served) = {
            let mut choice = self.choice.lock();
            (choice.tick(now), choice.is_served(now))
        };
        self.links().set_served(is_served);
        if let Some(next) = next {
            tracing::warn!(manager = %next, "the manager has granted nothing for a while; another one is asked");
            self.greet();
        }
    }
}

impl DiskWorld for Outside {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn to_manager(&self, message: FromDisk) {
        if let Some(manager) = self.manager() {
            self.sending.tell(manager, &Message::FromDisk(message), None);
        }
    }

    fn to_node(&self, node: NodeId, message: PeerMessage, bulk: Option<Arc<BulkBytes>>) {
        if node != self.links().node() {
            self.sending.tell(node, &Message::PeerMessage(message), bulk);
            return;
        }
        let Some(server) = self.server.read().clone() else { return };
        let generation = server.generation();
        self.own.push(Box::new(move || {
            server.receive_own(generation, message, bulk);
        }));
    }

    fn keep(&self, node: NodeId, address: &str) {
        self.links().keep(node, address);
    }

    fn forget(&self, node: NodeId) {
        let links = self.links();
        let peer = links.peer(node);
        links.forget(node);
        if peer.is_none_or(|peer| !peer.identity().name.roles.contain(Role::Manager)) {
            links.expel(node, "the manager says that it is not a disk server of this cluster any more");
        }
    }

    fn keep_managers(&self, managers: Vec<ManagerAddress>) {
        if let Some(on_managers) = &*self.on_managers.read() {
            on_managers(managers);
        }
    }

    fn cut_others(&self) {
        for peer in self.links().connected() {
            if !peer.name.roles.contain(Role::Manager)
                && let Some(peer) = self.links().peer(peer.name.node)
            {
                peer.cut("a new session with the manager begins");
            }
        }
    }

    fn run(&self, job: Job) {
        self.jobs.push(job);
    }
}

struct Inbox(Arc<Outside>);

impl Inbox {
    fn server(&self) -> Option<Arc<DiskServer>> {
        self.0.server.read().clone()
    }
}

impl Receiver for Inbox {
    fn buffer(&self, _from: NodeId, arriving: &IncomingHeader<'_>) -> Option<Buffer> {
        self.server().map(|server| server.room_for(arriving.header.bulk_len as usize))
    }

    /// A certificate proves a node's identity, not its membership. The manager names the present disk servers. A node that has just joined may come
    /// before the manager has named it; it keeps dialing.
    fn admit(&self, peer: &PeerIdentity) -> Result<(), String> {
        let node = peer.name.node;
        if peer.name.roles.contain(Role::Manager) || self.server().is_some_and(|server| server.knows(node)) {
            return Ok(());
        }
        Err(format!("the manager has not told node {} that node {node} is in the cluster", self.0.links().node()))
    }

    fn connected(&self, node: NodeId, peer: &Peer) {
        if peer.identity().name.roles.contain(Role::Manager) {
            let is_followed = self.0.choice.lock().connected(self.0.clock.now(), node);
            if is_followed {
                self.0.greet();
            }
        } else if let Some(server) = self.server() {
            server.node_connected(node);
        }
    }

    fn received(&self, node: NodeId, received: Received) {
        // A disk server answers no requests of nodes.
        let Received::OneWay { message, bulk } = received else { return };
        let bulk = match bulk {
            Bulk::Here { mut buffer, length } => {
                buffer.truncate(length);
                Some(Arc::new(buffer))
            }
            Bulk::None | Bulk::Dropped { .. } => None,
        };
        let Some(server) = self.server() else { return };
        match link::decode::<Message>(&message) {
            Ok(Message::FromManager(message)) => {
                let heard = self.0.choice.lock().hear(self.0.clock.now(), node, message);
                if heard.must_greet {
                    self.0.greet();
                }
                heard.messages.into_iter().for_each(|message| server.receive(message));
            }
            Ok(Message::PeerMessage(message)) => server.receive_of_node(node, message, bulk),
            Ok(_) => tracing::warn!(%node, "a node sends a message that a disk server must not get"),
            Err(error) => tracing::warn!(%node, %error, "a node sends an invalid message"),
        }
    }

    fn ended(&self, node: NodeId, why: &LinkError) {
        tracing::info!(%node, %why, "a node is not connected any more");
        let next = self.0.choice.lock().ended(self.0.clock.now(), node);
        if next.is_some() {
            self.0.greet();
        }
    }
}

impl DiskNode {
    /// Starts a disk server. Give [`DiskNode::receiver`] to `links`. The caller makes `links` keep the managers.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(settings: DiskSettings, stores: Vec<StoreAt>, links: &Arc<Links>) -> io::Result<Self> {
        let outside = Arc::new(Outside {
            sending: Sending::new(links),
            clock: Clock::start(),
            jobs: Jobs::default(),
            own: Jobs::default(),
            server: RwLock::new(None),
            choice: Mutex::default(),
            on_managers: RwLock::new(None),
        });
        let server = DiskServer::new(settings, stores, Arc::clone(&outside) as Arc<dyn DiskWorld>);
        *outside.server.write() = Some(Arc::clone(&server));
        let mut threads = Vec::new();
        for number in 0..=WORKERS {
            let (name, outside) = (if number == 0 { "own" } else { "piece" }, Arc::clone(&outside));
            let run = move || if number == 0 { outside.own.run() } else { outside.jobs.run() };
            threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(run)?);
        }
        let (ticking, looking) = (Arc::clone(&server), Arc::clone(&outside));
        let mut since = Duration::ZERO;
        let ticker = Ticker::start("disk server", move || {
            looking.look_at_managers();
            ticking.tick();
            since += TICK;
            if since >= REPORT {
                since = Duration::ZERO;
                ticking.report();
            }
        })?;
        Ok(Self { server, ticker: Mutex::new(Some(ticker)), outside, threads: Mutex::new(threads) })
    }

    /// The server itself.
    #[must_use]
    pub fn server(&self) -> &Arc<DiskServer> {
        &self.server
    }

    /// Has the addresses of managers handed to `on_managers`, each time that a manager tells them.
    pub fn on_managers(&self, on_managers: OnManagers) {
        *self.outside.on_managers.write() = Some(on_managers);
    }

    /// The receiver for messages of other nodes.
    #[must_use]
    pub fn receiver(&self) -> Arc<dyn Receiver> {
        Arc::new(Inbox(Arc::clone(&self.outside)))
    }

    /// Stops the periodic work. The caller closes the connections first.
    pub fn stop(&self) {
        drop(self.ticker.lock().take());
        self.server.stop_looks();
        self.outside.jobs.stop();
        self.outside.own.stop();
        *self.outside.server.write() = None;
        *self.outside.on_managers.write() = None;
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the disk server had panicked");
            }
        }
    }
}
