//! A simulated world of agents with different clocks, and a network with delays.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::campaign::Phase;
use crate::coordinate::message::{AgentMessage, CoordinatorMessage, RoleDone, TrialFolder};
use crate::coordinate::{Event, Input, Job, Kind, Machine, Outcome, Output, PeerId};
use crate::load::{Reading, Tally};
use crate::result::{Caches, ServerRecord};
use crate::sampling::{CpuShares, InterfaceRates, Sample};
use crate::target::{Durability, IoOptions, Window};
use crate::workload::{Access, StreamSpec};

pub(super) const TICK: Duration = Duration::from_millis(100);
pub(super) const START: Duration = Duration::from_secs(1_700_000_000);
/// Bytes that each part moves in a second.
pub(super) const RATE: u64 = 1000;

/// A phase of streams, which can be divided.
pub(super) fn phase(streams: u32) -> Phase {
    Phase::Stream(StreamSpec {
        access: Access::Write,
        streams,
        files: 1,
        file_bytes: 1 << 20,
        block_bytes: 4096,
        chunks: 1,
        io_options: IoOptions { direct: false, durability: Durability::Close, window: Window::Fixed(1) },
        rate: None,
        write_percent: 50,
        verify: true,
        generation: 0,
        oldest_generation: 0,
        seed: 1,
    })
}

pub(super) fn job(streams: u32) -> Job {
    let home = TrialFolder { places: vec!["/mnt".into()], folder: "weir-bench-1".into() };
    Job {
        phase: phase(streams),
        home: Some(home),
        copies: None,
        peers: vec![],
        client_processes: vec![],
        seed: 1,
        limit: None,
    }
}

/// A machine's report of a second, of a realistic size.
pub(super) fn sample() -> Sample {
    let interface = InterfaceRates { received: 1.25e9, sent: 1.5e6, lost: 0.0, speed: Some(1.25e9) };
    Sample {
        seconds: 1.0,
        processors: 4,
        cpu: CpuShares { user: 0.25, system: 0.125, idle: 0.625, ..CpuShares::default() },
        interfaces: ["lo", "eth0", "eth1"].map(|name| (name.to_owned(), interface)).into(),
        disks: ["sda", "sdb"].map(|name| (name.to_owned(), crate::sampling::DiskRates::default())).into(),
        processes: [(17, 0.5)].into(),
        ..Sample::default()
    }
}

/// The properties of an agent.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) ahead_us: i64,
    /// The delay in one direction.
    pub(super) delay: Duration,
    /// How long it works.
    pub(super) seconds: u32,
    /// When it dies, and whether its connection closes or it only falls silent.
    pub(super) dies: Option<(Duration, bool)>,
    pub(super) refuses: bool,
    pub(super) watches: bool,
    pub(super) task: Option<Task>,
    pub(super) watched: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    run: u64,
    parts: Range<u32>,
    start: Option<Duration>,
    told: u32,
    stopped: bool,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            ahead_us: 0,
            delay: Duration::from_millis(2),
            seconds: 3,
            dies: None,
            refuses: false,
            watches: false,
            task: None,
            watched: START,
        }
    }
}

pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) now: Duration,
    pub(super) agents: BTreeMap<PeerId, Agent>,
    /// Messages on their way to the machine.
    post: BTreeMap<(Duration, u64), (PeerId, AgentMessage)>,
    sent: u64,
    pub(super) events: Vec<Event>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) servers: Vec<ServerRecord>,
    /// When each agent started, in true time.
    pub(super) starts: Vec<Duration>,
}

impl World {
    pub(super) fn new(planned: usize) -> Self {
        Self {
            machine: Machine::new(planned, 1),
            now: START,
            agents: BTreeMap::new(),
            post: BTreeMap::new(),
            sent: 0,
            events: Vec::new(),
            outcomes: Vec::new(),
            servers: Vec::new(),
            starts: Vec::new(),
        }
    }

    pub(super) fn join(&mut self, peer: PeerId, agent: Agent) {
        let kind =
            if agent.watches { Kind::Watcher { system: "s".into(), processes: Vec::new() } } else { Kind::Agent };
        self.agents.insert(peer, agent);
        self.input(Input::Joined { peer, name: format!("n{peer}"), kind });
    }

    pub(super) fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.machine.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Send(peer, ask) => self.hear(peer, ask),
                Output::Close(peer) => drop(self.agents.remove(&peer)),
                Output::Event(Event::Finished(outcome)) => self.outcomes.push(*outcome),
                Output::Event(Event::Servers(servers)) => self.servers = servers,
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn hear(&mut self, peer: PeerId, ask: CoordinatorMessage) {
        let Some(agent) = self.agents.get_mut(&peer) else { return };
        if agent.dies.is_some_and(|(at, _)| self.now >= at) {
            return;
        }
        let arrives = self.now + agent.delay;
        match ask {
            CoordinatorMessage::Clock { number } => {
                let at_us = u64::try_from(arrives.as_micros()).unwrap().saturating_add_signed(agent.ahead_us);
                self.post(peer, arrives, AgentMessage::Clock { number, at_us });
            }
            CoordinatorMessage::Prepare(task) => {
                agent.task = Some(Task { run: task.run, parts: task.parts, start: None, told: 0, stopped: false });
                let tell = if agent.refuses {
                    AgentMessage::Refused { run: task.run, why: "no such place".into() }
                } else {
                    AgentMessage::Prepared { run: task.run, caches: Caches::Kept }
                };
                self.post(peer, arrives, tell);
            }
            CoordinatorMessage::Start { run, at_us } => {
                let at = Duration::from_micros(at_us.saturating_add_signed(-agent.ahead_us));
                if let Some(task) = agent.task.as_mut().filter(|task| task.run == run) {
                    task.start = Some(at.max(arrives));
                    self.starts.push(at.max(arrives));
                }
            }
            CoordinatorMessage::Stop { run } => {
                if let Some(task) = agent.task.as_mut().filter(|task| task.run == run) {
                    task.stopped = true;
                }
            }
            CoordinatorMessage::Sample { number } => {
                let seconds = (arrives - agent.watched).as_secs_f64();
                agent.watched = arrives;
                let sample = Sample { seconds, ..sample() };
                self.post(peer, arrives, AgentMessage::Watched { number: Some(number), sample });
            }
            CoordinatorMessage::Leave { .. } => {}
        }
    }

    pub(super) fn post(&mut self, peer: PeerId, at: Duration, tell: AgentMessage) {
        self.sent += 1;
        let delay = self.agents.get(&peer).map_or(Duration::ZERO, |agent| agent.delay);
        self.post.insert((at + delay, self.sent), (peer, tell));
    }

    /// One tick: agents work, and messages arrive.
    pub(super) fn step(&mut self) {
        let now = self.now + TICK;
        while let Some(entry) = self.post.first_entry().filter(|entry| entry.key().0 <= now) {
            self.now = self.now.max(entry.key().0);
            let (peer, tell) = entry.remove();
            self.input(Input::Told { peer, tell: Box::new(tell) });
        }
        self.now = now;
        let ids: Vec<PeerId> = self.agents.keys().copied().collect();
        for peer in ids {
            let Some(agent) = self.agents.get_mut(&peer) else { continue };
            match agent.dies {
                Some((at, true)) if now >= at => {
                    self.agents.remove(&peer);
                    self.input(Input::Gone { peer, why: "connection lost".into() });
                    continue;
                }
                Some((at, false)) if now >= at => continue,
                _ => {}
            }
            if agent.watches && now >= agent.watched + Duration::from_secs(1) {
                let seconds = (now - agent.watched).as_secs_f64();
                agent.watched = now;
                self.post(peer, now, AgentMessage::Watched { number: None, sample: Sample { seconds, ..sample() } });
                continue;
            }
            let tells = agent.work(now);
            for tell in tells {
                self.post(peer, now, tell);
            }
        }
        self.input(Input::Tick);
    }

    /// Runs until a phase has ended, and returns its result.
    pub(super) fn phase(&mut self, job: Job) -> Outcome {
        self.input(Input::Begin(Box::new(job)));
        let end = self.now + Duration::from_secs(1000);
        while self.outcomes.is_empty() {
            assert!(self.now < end, "it hangs");
            self.step();
        }
        self.outcomes.remove(0)
    }

    pub(super) fn steps(&mut self, seconds: u64) {
        (0..seconds * 10).for_each(|_| self.step());
    }
}

impl Agent {
    /// From now on it only answers clock requests.
    pub(super) fn hang(&mut self) {
        self.task = None;
    }

    fn work(&mut self, now: Duration) -> Vec<AgentMessage> {
        let Some(task) = &mut self.task else { return Vec::new() };
        let Some(start) = task.start else {
            if task.stopped {
                self.task = None;
            }
            return Vec::new();
        };
        let bytes = RATE * u64::from(task.parts.end - task.parts.start);
        let reading = Reading { operations: 1, bytes, failures: 0 };
        let mut tells = Vec::new();
        while task.told < self.seconds && !task.stopped && now >= start + Duration::from_secs(u64::from(task.told) + 1)
        {
            let roles = vec![(String::new(), reading)];
            tells.push(AgentMessage::Second { run: task.run, number: task.told, roles, sample: sample() });
            task.told += 1;
        }
        if task.told == self.seconds || task.stopped {
            let told = u64::from(task.told);
            let mut tally = Tally { operations: told, bytes: told * bytes, ..Tally::default() };
            tally.latency.add(Duration::from_millis(1));
            let done = RoleDone {
                role: String::new(),
                wall_s: f64::from(task.told),
                tally,
                rest: Reading::default(),
                idle_workers: Vec::new(),
            };
            tells.push(AgentMessage::Done {
                run: task.run,
                roles: vec![done],
                cpu_s: 0.5,
                system_s: 0.25,
                sample: sample(),
            });
            self.task = None;
        }
        tells
    }
}
