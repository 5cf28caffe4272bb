//! The coordinator's decisions: which peers are present, how far their clocks are apart, which agent gets which
//! share, when all start, which peer is lost, and the results of the phases. It takes messages and times, and
//! returns messages and events. It has no sockets.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::clock::RoundTrips;
use super::events::{Event, Input, Job, Local, Output};
use super::gather::SampleCollection;
use super::message::{AgentMessage, CoordinatorMessage, Task, check_settings};
use super::round::Round;
use super::view::{Line, View};
use super::{Kind, PeerId};
use crate::load::Reading;
use crate::result::{MachineSettings, ServerRecord};
use crate::sampling::{Sample, Settings};

/// A peer that is silent for this time is lost.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How often clocks are requested. The request is also a sign of life.
const PING_EACH: Duration = Duration::from_secs(1);
/// The number of clock requests, one after the other, when a peer joins.
const FIRST_PINGS: u64 = 8;
/// The number of unanswered requests that are remembered.
const OPEN_PINGS_MAX: usize = 16;
/// The most samples of all agents, and of all servers, in one phase. Beyond that, samples become longer.
const SAMPLES_MAX: usize = 200_000;
/// The same for all phases of a campaign together, because their records stay in memory to its end.
const SAMPLES_OF_ALL: usize = 2_000_000;
/// The number of names of lost peers that are kept.
const GONE_MAX: usize = 4096;

#[derive(Debug)]
struct Peer {
    name: String,
    kind: Kind,
    heard: Duration,
    trips: RoundTrips,
    asked: BTreeMap<u64, Duration>,
    pings: u64,
    pinged: Duration,
    last: Reading,
    sample: Option<Sample>,
    settings: Settings,
}

/// The coordinator's decisions. See the module.
#[derive(Debug)]
pub struct Machine {
    planned: usize,
    peers: BTreeMap<PeerId, Peer>,
    /// Peers that have gone and not returned, with the reason.
    gone: BTreeMap<String, String>,
    /// The agent of each share in this trial; `None`: the agent is lost.
    shares: Vec<Option<PeerId>>,
    runs: u64,
    questions: u64,
    round: Option<Round>,
    /// The round's start, until the servers have been asked.
    starts: Option<Duration>,
    gathering: Option<SampleCollection>,
    closing: bool,
    samples_max: usize,
    local: Option<Local>,
}

impl Machine {
    /// Makes a machine for this number of agents and phases.
    #[must_use]
    pub fn new(planned: usize, phases: usize) -> Self {
        Self {
            planned,
            peers: BTreeMap::new(),
            gone: BTreeMap::new(),
            shares: Vec::new(),
            runs: 0,
            questions: 0,
            round: None,
            starts: None,
            gathering: None,
            closing: false,
            samples_max: (SAMPLES_OF_ALL / phases.max(1)).min(SAMPLES_MAX),
            local: None,
        }
    }

    /// Handles an input at `now`, and appends the results to `out`. The caller sends a `Tick` ten times a second.
    pub fn handle(&mut self, now: Duration, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Joined { peer, name, kind } => self.join(now, peer, &name, kind, out),
            Input::Told { peer, tell } => {
                if let Err(why) = self.told(now, peer, *tell, out) {
                    out.push(Output::Send(peer, CoordinatorMessage::Leave { why: format!("it {why}") }));
                    self.lose(peer, why, out);
                }
            }
            Input::Gone { peer, why } => self.lose(peer, &why, out),
            Input::Muster => {
                let mut agents: Vec<_> = self.peers.iter().filter(|(_, peer)| peer.kind == Kind::Agent).collect();
                // Sorted by name, so that the same machine gets the same share in each trial.
                agents.sort_by_key(|(_, peer)| &peer.name);
                self.shares = agents.into_iter().map(|(id, _)| Some(*id)).collect();
            }
            Input::Begin(job) => self.begin(now, &job, out),
            Input::Gather => self.gather(out),
            Input::Gathered => match &mut self.gathering {
                Some(gathering) => gathering.end(now, |peer, ask| out.push(Output::Send(peer, ask))),
                None => out.push(Output::Event(Event::Servers(Vec::new()))),
            },
            Input::Local(local) => self.local = Some(*local),
            Input::Stop => {
                if let Some(round) = &mut self.round {
                    round.stop(now, "stopped", |peer, ask| out.push(Output::Send(peer, ask)));
                }
            }
            Input::Leave(why) => {
                for peer in std::mem::take(&mut self.peers).into_keys() {
                    out.extend([
                        Output::Send(peer, CoordinatorMessage::Leave { why: why.clone() }),
                        Output::Close(peer),
                    ]);
                }
            }
            Input::Tick => self.tick(now, out),
        }
        self.go_on(now, out);
    }

    fn join(&mut self, now: Duration, id: PeerId, name: &str, kind: Kind, out: &mut Vec<Output>) {
        let agents = self.agents();
        if kind == Kind::Agent && agents >= self.planned {
            let why = format!("all {agents} agents that --agents asks for are present already");
            out.extend([Output::Send(id, CoordinatorMessage::Leave { why }), Output::Close(id)]);
            return;
        }
        let is_free = |name: &str| !self.peers.values().any(|peer| peer.name == name);
        let numbered = (2_usize..).map(|number| format!("{name} ({number})"));
        let Some(name) = std::iter::once(name.to_owned()).chain(numbered).find(|name| is_free(name)) else { return };
        self.gone.remove(&name);
        let is_agent = kind == Kind::Agent;
        let peer = Peer {
            name: name.clone(),
            kind,
            heard: now,
            trips: RoundTrips::default(),
            asked: BTreeMap::new(),
            pings: 0,
            pinged: now,
            last: Reading::default(),
            sample: None,
            settings: Settings::new(),
        };
        let peer = self.peers.entry(id).or_insert(peer);
        peer.ping(id, now, out);
        out.push(Output::Event(Event::Joined { name, is_agent, agents: self.agents() }));
    }

    fn told(
        &mut self,
        now: Duration,
        id: PeerId,
        tell: AgentMessage,
        out: &mut Vec<Output>,
    ) -> Result<(), &'static str> {
        // A lost peer may not know it yet.
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(()) };
        peer.heard = now;
        tell.check()?;
        match (&peer.kind, tell) {
            (_, AgentMessage::Clock { number, at_us }) => {
                if let Some(sent) = peer.asked.remove(&number) {
                    peer.trips.add(sent, Duration::from_micros(at_us), now);
                    if peer.pings < FIRST_PINGS {
                        peer.ping(id, now, out);
                    }
                }
                Ok(())
            }
            (Kind::Watcher { .. }, AgentMessage::Watched { number, sample }) => {
                if let Some(gathering) = &mut self.gathering {
                    gathering.add(id, number, sample.clone());
                }
                peer.sample = Some(sample);
                Ok(())
            }
            (_, AgentMessage::Settings { settings }) => {
                let before = peer.settings.clone();
                peer.settings.extend(settings);
                check_settings(&peer.settings)?;
                if peer.settings != before {
                    let system = peer.kind.system().map(str::to_owned);
                    let settings = MachineSettings { name: peer.name.clone(), system, settings: peer.settings.clone() };
                    out.push(Output::Event(Event::Settings(settings)));
                }
                Ok(())
            }
            (Kind::Watcher { .. }, _) => Err("reported work, although it only watches"),
            (Kind::Agent, AgentMessage::Watched { .. }) => Err("reported a watched server, although it is an agent"),
            (Kind::Agent, tell) => {
                match &tell {
                    AgentMessage::Second { roles, sample, .. } => {
                        peer.last = roles.iter().map(|(_, reading)| *reading).sum();
                        peer.sample = Some(sample.clone());
                    }
                    AgentMessage::Done { .. } => peer.last = Reading::default(),
                    _ => {}
                }
                match &mut self.round {
                    Some(round) => round.told(id, tell, now),
                    // The phase was called off, and this message is late.
                    None => Ok(()),
                }
            }
        }
    }

    fn lose(&mut self, id: PeerId, why: &str, out: &mut Vec<Output>) {
        let Some(peer) = self.peers.remove(&id) else { return };
        out.push(Output::Close(id));
        for share in &mut self.shares {
            if *share == Some(id) {
                *share = None;
            }
        }
        if let Some(round) = &mut self.round {
            round.lost(id, why);
        }
        if peer.kind == Kind::Agent && self.gone.len() < GONE_MAX {
            self.gone.insert(peer.name.clone(), why.to_owned());
        }
        out.push(Output::Event(Event::Lost { name: peer.name, why: why.to_owned() }));
    }

    fn begin(&mut self, now: Duration, job: &Job, out: &mut Vec<Output>) {
        self.runs += 1;
        let parts = job.phase.workload().parts();
        let of = self.shares.len();
        // Agents that should have shares and are absent.
        let planned = self.planned.min(parts as usize).saturating_sub(of);
        let mut missing = planned > 0;
        let mut shares = Vec::new();
        let is_whole = self.shares.iter().all(Option::is_some);
        let phase = if is_whole { job.phase.clone() } else { job.phase.of_fewer() };
        for (number, share) in self.shares.iter().enumerate() {
            let parts = part_of(parts, number, of);
            if parts.is_empty() {
                continue;
            }
            let Some((id, peer)) = share.and_then(|id| Some((id, self.peers.get(&id)?))) else {
                missing = true;
                continue;
            };
            let task = Task {
                run: self.runs,
                phase: phase.clone(),
                parts,
                home: job.home.clone(),
                copies: job.copies.clone(),
                peers: job.peers.clone(),
                client_processes: job.client_processes.clone(),
                seed: job.seed,
                limit_s: job.limit.map(|limit| limit.as_secs_f64()),
            };
            shares.push((id, peer.name.clone(), task));
        }
        let gone = self.gone.iter().map(|(name, why)| format!("{name} ({why})"));
        let missing = if missing { gone.collect() } else { Vec::new() };
        let samples_max = (self.samples_max / shares.len().max(1)).clamp(2, 3600);
        let ask = |peer, ask| out.push(Output::Send(peer, ask));
        self.round = Some(Round::begin(self.runs, now, shares, missing, samples_max, ask));
        self.starts = None;
        self.closing = false;
    }

    fn gather(&mut self, out: &mut Vec<Output>) {
        self.questions += 2;
        let servers: Vec<(PeerId, ServerRecord)> =
            self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.server()?))).collect();
        let samples_max = (self.samples_max / servers.len().max(1)).clamp(2, 3600);
        let ask = |peer, ask| out.push(Output::Send(peer, ask));
        self.gathering = Some(SampleCollection::begin(self.questions, servers.into_iter(), samples_max, ask));
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Output>) {
        let silent = |peer: &Peer| now.saturating_sub(peer.heard) >= SILENCE_MAX;
        let mut lost: Vec<(PeerId, &str)> =
            self.peers.iter().filter(|(_, peer)| silent(peer)).map(|(id, _)| (*id, "silent for 10 s")).collect();
        lost.extend(self.round.iter().flat_map(|round| round.slow(now)));
        for (id, why) in lost {
            out.push(Output::Send(id, CoordinatorMessage::Leave { why: format!("it {why}") }));
            self.lose(id, why, out);
        }
        for (id, peer) in &mut self.peers {
            if now.saturating_sub(peer.pinged) >= PING_EACH {
                peer.ping(*id, now, out);
            }
        }
    }

    /// Does everything that the present state allows.
    fn go_on(&mut self, now: Duration, out: &mut Vec<Output>) {
        if let Some(round) = &mut self.round {
            let (peers, ask) = (&self.peers, |peer, ask| out.push(Output::Send(peer, ask)));
            if let Some(at) = round.start(now, |id| peers.get(&id)?.trips.best(), ask) {
                self.starts = Some(at);
            }
        }
        if self.starts.is_some_and(|at| now >= at) {
            self.starts = None;
            self.gather(out);
        }
        let is_over = self
            .round
            .as_ref()
            .is_some_and(|round| !self.closing && round.is_over(|peer, ask| out.push(Output::Send(peer, ask))));
        if is_over {
            self.closing = true;
            self.starts = None;
            if let Some(gathering) = &mut self.gathering {
                gathering.end(now, |peer, ask| out.push(Output::Send(peer, ask)));
            }
        }
        let peers = &self.peers;
        let is_told =
            self.gathering.as_ref().is_none_or(|gathering| gathering.is_over(now, |id| peers.contains_key(&id)));
        if is_told && self.closing {
            self.closing = false;
            let servers = self.gathering.take().map(SampleCollection::into_records).unwrap_or_default();
            let outcome = self.round.take().map(|round| round.into_outcome(servers));
            out.extend(outcome.map(|outcome| Output::Event(Event::Finished(Box::new(outcome)))));
        } else if is_told
            && self.round.is_none()
            && let Some(gathering) = self.gathering.take()
        {
            out.push(Output::Event(Event::Servers(gathering.into_records())));
        }
    }

    /// Returns the number of present agents.
    #[must_use]
    pub fn agents(&self) -> usize {
        self.peers.values().filter(|peer| peer.kind == Kind::Agent).count()
    }

    /// Returns the state for display.
    #[must_use]
    pub fn view(&self, now: Duration) -> View {
        let started = self.round.as_ref().and_then(Round::started).filter(|start| now >= *start);
        let line = |peer: &Peer| {
            let last = if started.is_some() { peer.last } else { Reading::default() };
            Line::new(&peer.name, peer.kind.system(), last, peer.sample.as_ref())
        };
        let of =
            |is_agent: bool| self.peers.values().filter(move |peer| (peer.kind == Kind::Agent) == is_agent).map(line);
        let sorted = |is_agent: bool| {
            let mut lines: Vec<Line> = of(is_agent).collect();
            lines.sort_by(|one, other| one.name.cmp(&other.name));
            lines
        };
        let local = self.local.as_ref();
        let this = local.map(|local| Line::new("this machine", None, local.last, Some(&local.sample)));
        View {
            planned: self.planned,
            elapsed_s: match (started, local) {
                (Some(start), _) => now.saturating_sub(start).as_secs_f64(),
                (None, Some(local)) => local.elapsed.as_secs_f64(),
                (None, None) => 0.0,
            },
            done: self.round.as_ref().map(Round::done).or(local.map(|local| local.done)).unwrap_or_default(),
            agents: sorted(true).into_iter().chain(this).collect(),
            servers: sorted(false),
            gone: self.gone.iter().map(|(name, why)| format!("{name} ({why})")).collect(),
        }
    }
}

impl Peer {
    fn ping(&mut self, id: PeerId, now: Duration, out: &mut Vec<Output>) {
        self.pings += 1;
        self.pinged = now;
        if self.asked.len() >= OPEN_PINGS_MAX {
            self.asked.pop_first();
        }
        self.asked.insert(self.pings, now);
        out.push(Output::Send(id, CoordinatorMessage::Clock { number: self.pings }));
    }

    fn server(&self) -> Option<ServerRecord> {
        let Kind::Watcher { system, processes } = &self.kind else { return None };
        let (system, processes) = (system.clone(), processes.clone());
        Some(ServerRecord { system, name: self.name.clone(), processes, is_whole: false, samples: Vec::new() })
    }
}

/// Share `number` of `of` shares of `parts`. Each share consists of adjacent parts.
fn part_of(parts: u32, number: usize, of: usize) -> Range<u32> {
    let cut = |number: usize| {
        let cut = u64::from(parts) * number as u64 / of.max(1) as u64;
        u32::try_from(cut).unwrap_or(parts)
    };
    cut(number)..cut(number + 1)
}
