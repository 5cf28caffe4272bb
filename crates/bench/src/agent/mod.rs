//! An agent. It connects to a coordinator, does the shares of work that it gets, and reports the results.
//! Alternatively it watches a server and reports what that does. It ends when the coordinator says so or is gone.
//!
//! It takes typed work only: a phase of a campaign, in a folder of the campaign's directory whose name says that it
//! belongs to a bench. A coordinator cannot make it run a command or open a file elsewhere, unless the person who
//! starts the agent allows that ([`Allowed`]).

mod allowed;
mod watch;
mod work;

use std::io;
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use client::Settings;

use crate::coordinate::message::{AgentMessage, CoordinatorMessage, TrialFolder};
use crate::coordinate::{Kind, PROGRAM, PeerIntroduction, SILENCE_MAX, SteadyClock};
use crate::network::Program;
use crate::peer::{self, FrameError, Fresh, Hello, HelloError, Peer, Role, Token};
use crate::sampling::machine_settings;
use crate::workload::KnownFiles;

pub use allowed::Allowed;

/// How long the agent tries to reach a coordinator. The agents may be started first.
const CALL_FOR: Duration = Duration::from_secs(120);
const CALL_AGAIN: Duration = Duration::from_millis(500);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How often the agent checks whether it must end.
const LOOK: Duration = Duration::from_millis(100);
/// How long the agent waits for its work to stop before it leaves. Work that hangs in the kernel cannot be stopped.
const END_MAX: Duration = Duration::from_secs(30);
const QUEUE_MAX: usize = 64;

/// The settings of an agent.
#[derive(Debug)]
pub struct Setting {
    /// The coordinator's address, `HOST:PORT`.
    pub join: String,
    /// The token of the measurement.
    pub token: Token,
    /// The name of the agent.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// For connections to systems. The agent sets its `stop`.
    pub settings: Settings,
    /// What a campaign may use of this machine.
    pub allowed: Allowed,
    /// Starts a process for each flow that needs one.
    pub program: Program,
    /// The agent ends when this is set.
    pub stop: Arc<AtomicBool>,
}

/// Why an agent ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentEnd {
    /// The coordinator said so, with a reason.
    Told(String),
    /// It was stopped on its own machine.
    Stopped,
}

/// Why an agent could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The coordinator cannot be reached.
    #[error("cannot call the coordinator at {join}: {source}")]
    Call {
        /// The address.
        join: String,
        /// The reason.
        source: io::Error,
    },
    /// The handshake failed.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The coordinator refuses the agent.
    #[error("the coordinator at {join} refuses this agent: {why}")]
    Refused {
        /// The address.
        join: String,
        /// The reason.
        why: String,
    },
    /// The connection is lost.
    #[error("the coordinator is gone: {0}; all work was stopped")]
    Lost(String),
    /// A message could not be sent.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// The connection to the coordinator, shared by all threads of an agent.
#[derive(Clone)]
struct Line {
    writer: Arc<Mutex<Peer<TcpStream>>>,
    clock: SteadyClock,
    /// Set when everything must end.
    ends: Arc<AtomicBool>,
}

impl Line {
    fn tell(&self, tell: &AgentMessage) -> Result<(), FrameError> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).send(tell)
    }

    /// The same. If it fails, everything ends.
    fn tell_or_end(&self, tell: &AgentMessage) {
        if self.tell(tell).is_err() {
            self.ends.store(true, Ordering::Relaxed);
        }
    }
}

/// Joins, and works until the coordinator tells it to leave. Calls `joined` when the coordinator has accepted it.
///
/// # Errors
/// [`AgentError`].
pub fn run(setting: &Setting, joined: &mut dyn FnMut()) -> Result<AgentEnd, AgentError> {
    let clock = SteadyClock::new();
    let Some(mut stream) = call(setting)? else { return Ok(AgentEnd::Stopped) };
    let failed = |source| AgentError::Call { join: setting.join.clone(), source };
    stream.set_nodelay(true).map_err(failed)?;
    let hello = Hello { role: Role::Agent, wanted: &[Role::Coordinator], token: &setting.token };
    peer::connect(&mut stream, &setting.join, hello, &Fresh::draw().map_err(failed)?)?;
    stream.set_write_timeout(Some(SILENCE_MAX)).map_err(failed)?;
    let reader = Peer { stream: stream.try_clone().map_err(failed)?, name: "the coordinator".to_owned() };
    let mut writer = Peer { stream, name: "the coordinator".to_owned() };
    let introduction =
        PeerIntroduction { program: PROGRAM.to_owned(), name: setting.name.clone(), kind: setting.kind.clone() };
    writer.send(&introduction)?;
    let line = Line { writer: Arc::new(Mutex::new(writer)), clock, ends: Arc::default() };
    let (to, asks) = sync_channel(QUEUE_MAX);
    let hearing = {
        let line = line.clone();
        thread::Builder::new().name("coordinator".into()).spawn(move || hear(reader, &line, &to)).map_err(failed)?
    };
    let mut agent = Agent { setting, line, job: None, known: None, watch: None };
    let ended = agent.serve(&asks, joined);
    agent.end();
    // A coordinator that has told the agent to leave waits for this.
    let _ = agent.line.writer.lock().unwrap_or_else(PoisonError::into_inner).stream.shutdown(Shutdown::Both);
    // This thread ends with the connection.
    drop(asks);
    let _ = hearing.join();
    ended
}

/// Connects; `None`: the agent was stopped.
fn call(setting: &Setting) -> Result<Option<TcpStream>, AgentError> {
    let end = Instant::now() + CALL_FOR;
    while !setting.stop.load(Ordering::Relaxed) {
        let connect = || {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in setting.join.to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, CONNECT_MAX) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        match connect() {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < end => {
                thread::sleep(CALL_AGAIN);
            }
            Err(source) => return Err(AgentError::Call { join: setting.join.clone(), source }),
        }
    }
    Ok(None)
}

/// A message or event from the coordinator.
enum FromCoordinator {
    Message(CoordinatorMessage),
    Alive,
    Gone(String),
}

/// Answers clock requests at once, and passes on everything else.
fn hear(mut reader: Peer<TcpStream>, line: &Line, to: &SyncSender<FromCoordinator>) {
    loop {
        let heard = match reader.receive() {
            Ok(CoordinatorMessage::Clock { number }) => {
                let at_us = u64::try_from(line.clock.now().as_micros()).unwrap_or(u64::MAX);
                line.tell_or_end(&AgentMessage::Clock { number, at_us });
                FromCoordinator::Alive
            }
            Ok(ask) => FromCoordinator::Message(ask),
            Err(error) => FromCoordinator::Gone(error.to_string()),
        };
        let is_over = matches!(heard, FromCoordinator::Gone(_));
        if to.send(heard).is_err() || is_over {
            return;
        }
    }
}

/// Work under way.
struct Job {
    run: u64,
    /// The start time on this machine's clock. Dropping it calls the work off.
    start: SyncSender<Duration>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

struct Agent<'a> {
    setting: &'a Setting,
    line: Line,
    job: Option<Job>,
    /// What is known of the files in a folder, for the phases of one trial.
    known: Option<(TrialFolder, Arc<KnownFiles>)>,
    watch: Option<watch::WatchThread>,
}

impl Agent<'_> {
    fn serve(&mut self, asks: &Receiver<FromCoordinator>, joined: &mut dyn FnMut()) -> Result<AgentEnd, AgentError> {
        let (mut heard, mut is_in) = (Instant::now(), false);
        loop {
            if self.setting.stop.load(Ordering::Relaxed) {
                return Ok(AgentEnd::Stopped);
            }
            if self.line.ends.load(Ordering::Relaxed) {
                return Err(AgentError::Lost("messages cannot be sent to it".to_owned()));
            }
            let message = match asks.recv_timeout(LOOK) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) if heard.elapsed() >= SILENCE_MAX => {
                    return Err(AgentError::Lost(format!("silent for {} s", SILENCE_MAX.as_secs())));
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(AgentError::Lost("the connection broke".to_owned())),
            };
            heard = Instant::now();
            match message {
                FromCoordinator::Alive => {
                    if !is_in {
                        is_in = true;
                        joined();
                        self.line.tell_or_end(&AgentMessage::Settings { settings: machine_settings(&[]) });
                        self.begin_to_watch();
                    }
                }
                FromCoordinator::Gone(why) => return Err(AgentError::Lost(why)),
                FromCoordinator::Message(CoordinatorMessage::Leave { why }) if is_in => return Ok(AgentEnd::Told(why)),
                FromCoordinator::Message(CoordinatorMessage::Leave { why }) => {
                    return Err(AgentError::Refused { join: self.setting.join.clone(), why });
                }
                FromCoordinator::Message(ask) => self.ask(ask),
            }
        }
    }

    fn ask(&mut self, ask: CoordinatorMessage) {
        match ask {
            CoordinatorMessage::Prepare(task) => {
                self.end_job(END_MAX);
                self.prepare(*task);
            }
            CoordinatorMessage::Start { run, at_us } => {
                if let Some(job) = self.job.as_ref().filter(|job| job.run == run) {
                    // A job that was called off no longer listens.
                    let _ = job.start.try_send(Duration::from_micros(at_us));
                }
            }
            CoordinatorMessage::Stop { run } => {
                if let Some(job) = self.job.as_ref().filter(|job| job.run == run) {
                    job.stop.store(true, Ordering::Relaxed);
                }
            }
            CoordinatorMessage::Sample { number } => {
                if let Some(watch) = &self.watch {
                    watch.tell_now(number);
                }
            }
            CoordinatorMessage::Clock { .. } | CoordinatorMessage::Leave { .. } => {}
        }
    }

    fn prepare(&mut self, task: crate::coordinate::message::Task) {
        let (run, stop) = (task.run, Arc::new(AtomicBool::new(false)));
        let (start, starts) = sync_channel(1);
        let mut settings = self.setting.settings.clone();
        let (ends, stops) = (Arc::clone(&self.line.ends), Arc::clone(&stop));
        settings.stop = client::Stop::when(move || ends.load(Ordering::Relaxed) || stops.load(Ordering::Relaxed));
        let (line, stops) = (self.line.clone(), Arc::clone(&stop));
        let known = self.known(task.home.as_ref());
        let here = work::AgentResources {
            allowed: self.setting.allowed.clone(),
            token: self.setting.token.clone(),
            program: self.setting.program.clone(),
        };
        let work = move || work::work(&task, &here, known, &settings, &line, &starts, &stops);
        match thread::Builder::new().name("work".into()).spawn(work) {
            Ok(thread) => self.job = Some(Job { run, start, stop, thread }),
            Err(error) => self.line.tell_or_end(&AgentMessage::Refused { run, why: format!("no thread: {error}") }),
        }
    }

    /// Returns what earlier phases learnt of the files in `home`, if it belongs to the same trial.
    fn known(&mut self, home: Option<&TrialFolder>) -> Arc<KnownFiles> {
        let before = self.known.take().filter(|(before, _)| Some(before) == home);
        let known = before.map_or_else(Arc::default, |(_, known)| known);
        self.known = home.map(|home| (home.clone(), Arc::clone(&known)));
        known
    }

    /// Ends the work under way, and waits for that for at most `max`.
    fn end_job(&mut self, max: Duration) {
        let Some(job) = self.job.take() else { return };
        job.stop.store(true, Ordering::Relaxed);
        let end = Instant::now() + max;
        while !job.thread.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn begin_to_watch(&mut self) {
        if let Kind::Watcher { processes, .. } = &self.setting.kind {
            self.watch = watch::WatchThread::begin(processes.clone(), self.line.clone());
        }
    }

    fn end(&mut self) {
        self.line.ends.store(true, Ordering::Relaxed);
        self.end_job(END_MAX);
        self.watch = None;
    }
}
