//! The coordinator: the machine and its connections, on a thread of its own. So agents hear from it whatever the
//! rest of the program does.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::clock::SteadyClock;
use super::connection::{CoordinatorListener, Incoming};
use super::message::{AgentMessage, CoordinatorMessage};
use super::{Event, Input, Job, Kind, Local, Machine, Outcome, Output, PeerId, View};
use crate::load::Reading;
use crate::peer::{Peer, Token};
use crate::result::{MachineSettings, ServerRecord};
use crate::sampling::{Observer, Sample};

/// How often the machine gets a tick.
const TICK: Duration = Duration::from_millis(100);
/// How often the wait for a phase checks whether to continue.
const LOOK: Duration = Duration::from_millis(250);
const SECOND: Duration = Duration::from_secs(1);
/// How long a peer may take to close its side after it was told to leave.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// The most unhandled messages. After that, senders wait.
const QUEUE_MAX: usize = 4096;

/// Why there is no coordinator.
#[derive(Debug, thiserror::Error)]
pub enum CoordinateError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// Without a token, anyone could join.
    #[error("{0} is reachable from other machines, and without a token anyone could join; give --token-file")]
    Open(SocketAddr),
    /// The system cannot start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// All agents are lost.
    #[error("all agents are lost; start some again, and repeat the command to continue this run")]
    NobodyLeft,
    /// The coordinator's own thread has ended.
    #[error("the coordinator has ended")]
    Ended,
}

/// The settings of a coordinator.
#[derive(Debug)]
pub struct Setting {
    /// The address for agents, `HOST:PORT` (port 0 takes a free one), and their token; `None`: no agent can join.
    pub listen: Option<(String, Token)>,
    /// The systems of the campaign, with the processes of those whose servers run on this machine.
    pub systems: Vec<(String, Vec<String>)>,
    /// The planned number of agents; 0: this machine works itself, and servers are watched.
    pub agents: usize,
    /// The approximate number of phases. It limits what is kept of each.
    pub phases: usize,
    /// The planned number of watchers, without those on this machine.
    pub watchers: usize,
}

/// The coordinator. See the module. Dropping it tells all agents to leave.
#[derive(Debug)]
pub struct Coordinator {
    planned: usize,
    /// The planned number of watchers, including those on this machine.
    watchers: usize,
    address: Option<SocketAddr>,
    wishes: SyncSender<Incoming>,
    results: Mutex<Receiver<Event>>,
    view: Arc<Mutex<View>>,
    /// Settings that were reported since the last call of [`Coordinator::settings`].
    settings: Arc<Mutex<Vec<MachineSettings>>>,
    closed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A report of the coordinator.
#[derive(PartialEq, Debug)]
pub enum CoordinatorEvent {
    /// An event of the machine.
    Event(Event),
    /// A peer was refused.
    Refused(String),
}

impl Coordinator {
    /// Starts to listen. The coordinator's own thread calls `hear` when peers come and go.
    ///
    /// # Errors
    /// [`CoordinateError`].
    pub fn start(
        setting: Setting,
        hear: impl FnMut(&CoordinatorEvent) + Send + 'static,
    ) -> Result<Self, CoordinateError> {
        let (wishes, incoming) = sync_channel(QUEUE_MAX);
        let (tell, results) = channel();
        let view = Arc::new(Mutex::new(View { planned: setting.agents, ..View::default() }));
        let closed = Arc::new(AtomicBool::new(false));
        let (clock, settings) = (SteadyClock::new(), Arc::default());
        let mut coordinator = Self {
            planned: setting.agents,
            watchers: setting.watchers + setting.systems.iter().filter(|(_, here)| !here.is_empty()).count(),
            address: None,
            wishes,
            results: Mutex::new(results),
            view: Arc::clone(&view),
            settings: Arc::clone(&settings),
            closed,
            threads: Vec::new(),
        };
        let door = setting.listen.map(|(address, token)| {
            let listener = listen(&address, &token)?;
            let systems = setting.systems.iter().map(|(name, _)| name.clone()).collect();
            let (to, closed) = (coordinator.wishes.clone(), Arc::clone(&coordinator.closed));
            Ok(CoordinatorListener { listener, token: Arc::new(token), systems: Arc::new(systems), clock, to, closed })
        });
        let door = door.transpose()?;
        let failed = CoordinateError::Thread;
        let mut driver = Driver {
            machine: Machine::new(setting.agents, setting.phases),
            clock,
            peers: BTreeMap::new(),
            leaving: Vec::new(),
            here: BTreeMap::new(),
            results: tell,
            hear: Box::new(hear),
            view,
            settings,
        };
        driver.watch_here(setting.systems);
        let drive = move || driver.run(&incoming);
        coordinator.threads.push(thread::Builder::new().name("coordinator".into()).spawn(drive).map_err(failed)?);
        if let Some(door) = door {
            coordinator.address = door.listener.local_addr().ok();
            coordinator.threads.push(thread::Builder::new().name("door".into()).spawn(|| door.keep()).map_err(failed)?);
        }
        Ok(coordinator)
    }

    /// Returns the address for agents, if they can join.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the planned number of agents.
    #[must_use]
    pub fn planned(&self) -> usize {
        self.planned
    }

    /// Returns the present state for display. It can be read at any time.
    #[must_use]
    pub fn view(&self) -> Arc<Mutex<View>> {
        Arc::clone(&self.view)
    }

    /// Returns what the machines have reported about themselves since the last call.
    #[must_use]
    pub fn settings(&self) -> Vec<MachineSettings> {
        std::mem::take(&mut *self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wish(&self, input: Input) -> Result<(), CoordinateError> {
        self.wishes.send(Incoming::NextStep(input)).map_err(|_| CoordinateError::Ended)
    }

    /// Returns an event, if one comes within a quarter of a second.
    fn next(&self) -> Result<Option<Event>, CoordinateError> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        match results.recv_timeout(LOOK) {
            Ok(result) => Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(CoordinateError::Ended),
        }
    }

    /// Waits until all peers are present. Calls `watch` several times a second, which returns whether to continue.
    /// Returns whether all came.
    pub fn wait(&self, watch: &mut dyn FnMut() -> bool) -> bool {
        let all_are_there = || {
            let view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
            view.agents.len() >= self.planned && view.servers.len() >= self.watchers
        };
        while !all_are_there() {
            if !watch() {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// Returns the number of present agents.
    #[must_use]
    pub fn agents(&self) -> usize {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).agents.len()
    }

    /// Starts a trial. The agents that are present now get shares of it.
    ///
    /// # Errors
    /// [`CoordinateError`].
    pub fn muster(&self) -> Result<(), CoordinateError> {
        if self.agents() == 0 {
            return Err(CoordinateError::NobodyLeft);
        }
        self.wish(Input::Muster)
    }

    /// Does a phase. Calls `watch` several times a second. If it returns `false`, the phase is stopped.
    ///
    /// # Errors
    /// [`CoordinateError`].
    pub fn run(&self, job: Job, watch: &mut dyn FnMut(&View) -> bool) -> Result<Outcome, CoordinateError> {
        self.wish(Input::Begin(Box::new(job)))?;
        let mut goes_on = true;
        loop {
            if let Some(Event::Finished(outcome)) = self.next()? {
                return Ok(*outcome);
            }
            let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if !watch(&view) && goes_on {
                goes_on = false;
                self.wish(Input::Stop)?;
            }
        }
    }

    /// This machine begins to work itself, while servers are watched.
    ///
    /// # Errors
    /// [`CoordinateError`].
    pub fn gather(&self) -> Result<(), CoordinateError> {
        self.wish(Input::Gather)
    }

    /// Shows one second of that work: the total, and the work of this second.
    pub fn show(&self, done: Reading, last: Reading, elapsed: Duration, sample: &Sample) {
        // If the receiver is gone, the next call reports that.
        let _ = self.wish(Input::Local(Box::new(Local { done, last, elapsed, sample: sample.clone() })));
    }

    /// That work has ended. Returns what the servers did meanwhile.
    ///
    /// # Errors
    /// [`CoordinateError`].
    pub fn gathered(&self) -> Result<Vec<ServerRecord>, CoordinateError> {
        self.wish(Input::Gathered)?;
        loop {
            if let Some(Event::Servers(servers)) = self.next()? {
                return Ok(servers);
            }
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.wish(Input::Leave("the campaign is over".to_owned()));
        self.closed.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Its panic message has been printed.
            let _ = thread.join();
        }
    }
}

/// Drives the machine.
struct Driver {
    machine: Machine,
    clock: SteadyClock,
    peers: BTreeMap<PeerId, Peer<TcpStream>>,
    /// Peers that were told to leave and have not closed their side yet.
    leaving: Vec<(Instant, Peer<TcpStream>)>,
    /// The servers on this machine.
    here: BTreeMap<PeerId, LocalServer>,
    results: Sender<Event>,
    hear: Box<dyn FnMut(&CoordinatorEvent) + Send>,
    view: Arc<Mutex<View>>,
    settings: Arc<Mutex<Vec<MachineSettings>>>,
}

/// A server on this machine. It is treated like one that a watcher reports.
struct LocalServer {
    observer: Observer,
    next: Instant,
}

fn listen(address: &str, token: &Token) -> Result<TcpListener, CoordinateError> {
    let failed = |source| CoordinateError::Listen { address: address.to_owned(), source };
    let addresses: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
    if let Some(outside) = addresses.iter().find(|address| token.is_open() && !address.ip().is_loopback()) {
        return Err(CoordinateError::Open(*outside));
    }
    let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

impl Driver {
    fn watch_here(&mut self, systems: Vec<(String, Vec<String>)>) {
        // Connections are numbered from 1 upwards, these from the top downwards.
        let ids = (0..=PeerId::MAX).rev();
        for (peer, (system, processes)) in ids.zip(systems.into_iter().filter(|(_, processes)| !processes.is_empty())) {
            let observer = Observer::new(processes.clone());
            self.here.insert(peer, LocalServer { observer, next: Instant::now() + SECOND });
            let kind = Kind::Watcher { system, processes };
            self.handle(self.clock.now(), Input::Joined { peer, name: "this machine".to_owned(), kind });
        }
    }

    /// Reports the activity of the servers on this machine when a second has passed.
    fn look_here(&mut self) {
        let mut seen = Vec::new();
        for (peer, here) in &mut self.here {
            if Instant::now() >= here.next {
                here.next += SECOND;
                seen.push((*peer, AgentMessage::Watched { number: None, sample: here.observer.sample() }));
            }
        }
        for (peer, tell) in seen {
            self.handle(self.clock.now(), Input::Told { peer, tell: Box::new(tell) });
        }
    }

    fn run(mut self, incoming: &Receiver<Incoming>) {
        let (mut next, mut leaves) = (Instant::now(), false);
        while !leaves {
            match incoming.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Incoming::Joined(peer, stream, introduction)) => {
                    self.peers.insert(peer, stream);
                    let (name, kind) = (introduction.name, introduction.kind);
                    self.handle(self.clock.now(), Input::Joined { peer, name, kind });
                }
                Ok(Incoming::Told(peer, tell, at)) => self.handle(at, Input::Told { peer, tell }),
                Ok(Incoming::Gone(peer, why)) => {
                    self.handle(self.clock.now(), Input::Gone { peer, why });
                    if let Some(gone) = self.peers.remove(&peer) {
                        let _ = gone.stream.shutdown(Shutdown::Both);
                    }
                }
                Ok(Incoming::Refused(why)) => (self.hear)(&CoordinatorEvent::Refused(why)),
                Ok(Incoming::NextStep(input)) => {
                    leaves = matches!(input, Input::Leave(_));
                    self.handle(self.clock.now(), input);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Ticks must come, however many messages arrive.
            if Instant::now() >= next {
                next = Instant::now() + TICK;
                self.see_off();
                self.look_here();
                let now = self.clock.now();
                self.handle(now, Input::Tick);
                *self.view.lock().unwrap_or_else(PoisonError::into_inner) = self.machine.view(now);
            }
        }
    }

    fn handle(&mut self, now: Duration, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.machine.handle(now, input, &mut out);
            for output in out {
                match output {
                    Output::Send(peer, CoordinatorMessage::Sample { number }) if self.here.contains_key(&peer) => {
                        let sample = self.here.get_mut(&peer).map(|here| here.observer.sample()).unwrap_or_default();
                        let tell = Box::new(AgentMessage::Watched { number: Some(number), sample });
                        inputs.push_back(Input::Told { peer, tell });
                    }
                    Output::Send(id, ask) => {
                        if let Some(peer) = self.peers.get_mut(&id)
                            && let Err(error) = peer.send(&ask)
                        {
                            self.peers.remove(&id).map(|peer| peer.stream.shutdown(Shutdown::Both));
                            inputs.push_back(Input::Gone { peer: id, why: error.to_string() });
                        }
                    }
                    Output::Close(id) => {
                        if let Some(peer) = self.peers.remove(&id) {
                            let _ = peer.stream.shutdown(Shutdown::Write);
                            self.leaving.push((Instant::now(), peer));
                        }
                    }
                    Output::Event(event) => self.tell(now, event),
                }
            }
        }
    }

    fn tell(&mut self, now: Duration, event: Event) {
        if matches!(event, Event::Finished(_) | Event::Servers(_)) {
            // There is no receiver while the coordinator is being dropped.
            let _ = self.results.send(event);
            return;
        }
        if let Event::Settings(machine) = event {
            let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
            settings.retain(|other| other.name != machine.name);
            settings.push(machine);
            return;
        }
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = self.machine.view(now);
        (self.hear)(&CoordinatorEvent::Event(event));
    }

    /// Closes connections whose other side does not.
    fn see_off(&mut self) {
        self.leaving.retain(|(since, peer)| {
            let stays = since.elapsed() < LEAVE_MAX;
            if !stays {
                let _ = peer.stream.shutdown(Shutdown::Both);
            }
            stays
        });
    }
}
