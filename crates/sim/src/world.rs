//! The world: time, network, what goes wrong, and the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{Life, Time};
use disk::{CrashFaults, DiskOp, SimDisk};
use namespace::Actor;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{BodyId, BootId, GroupId, NsPath, PieceId, SessionId, Timestamp};

use crate::client::Client;
use crate::events::{Event, Events, Fault, Mend};
use crate::manager::{Decision, Env, Manager, store_of};
use crate::message::{Addr, Message};
use crate::model::{self, Model, Violation};
use crate::server::Server;
use crate::settings::{Counts, Settings};

const TICK: Duration = Duration::from_millis(100);
/// How long after all is mended everybody has to have come to an end.
const CALM: Duration = Duration::from_secs(150);
/// Of what is wrong in the end so much is told.
const SHOWN_MAX: usize = 6;
/// A connection on which nothing comes any more is given up after that.
const SILENCE: Duration = Duration::from_secs(2);

/// A machine: what is left of it when its process has ended.
struct Machine<P> {
    disk: SimDisk,
    process: Option<P>,
    life: u64,
    boot: u128,
    /// Its clock less true time at the start, and how fast it runs.
    ahead: Duration,
    rate: f64,
}

impl<P> Machine<P> {
    fn new(seed: u64, rng: &mut SmallRng, drift_ppm: u32) -> Self {
        let drift = f64::from(drift_ppm) / 1e6;
        let ahead = Duration::from_millis(rng.random_range(0..100_000));
        Self {
            disk: SimDisk::new(seed),
            process: None,
            life: 0,
            boot: 1,
            ahead,
            rate: 1.0 + drift * rng.random_range(-1.0..=1.0),
        }
    }

    fn clock(&self, now: Duration) -> Time {
        Time(self.ahead + now.mul_f64(self.rate))
    }
}

/// A server's connection with the manager.
#[derive(Clone, Copy, Default)]
struct Link {
    /// The runs of both between which it is.
    between: Option<(u64, u64)>,
    /// Something was lost on it then.
    lost: Option<Duration>,
}

struct World {
    settings: Settings,
    now: Duration,
    rng: SmallRng,
    events: Events,
    counts: Counts,
    model: Model,
    manager: Machine<Manager>,
    servers: Vec<Machine<Server>>,
    clients: Vec<Machine<Client>>,
    /// The servers' connections with the manager.
    links: Vec<Link>,
    /// What is wanted of each store.
    decided: Vec<Decision>,
    /// Those that were to be emptied at some time.
    has_drained: Vec<bool>,
    /// Who cannot reach whom.
    cut: BTreeSet<(Addr, Addr)>,
    /// When what was sent last on a way arrives: what is sent later on the same connection does so later.
    arrives: BTreeMap<(Addr, Addr), Duration>,
    /// When the disk of a server's piece is free.
    disk_free: BTreeMap<(usize, PieceId), Duration>,
    is_calm: bool,
    trouble: Option<String>,
}

/// Runs a simulation to its end.
///
/// # Errors
/// What must not be, and with which seed it happens again.
pub fn run(settings: &Settings) -> Result<Counts, Box<Violation>> {
    let mut world = World::new(settings);
    world.begin();
    while let Some((at, event)) = world.events.next() {
        world.now = at;
        world.counts.events += 1;
        if matches!(event, Event::End) {
            world.finish();
            break;
        }
        world.happen(event);
        if world.model.violation.is_some() || world.trouble.is_some() {
            break;
        }
    }
    let what = world.model.violation.take().or(world.trouble.take());
    match what {
        None => Ok(world.counts),
        Some(what) => {
            Err(Box::new(Violation { seed: settings.seed, at_s: format!("{:.6}", world.now.as_secs_f64()), what }))
        }
    }
}

impl World {
    fn new(settings: &Settings) -> Self {
        let mut rng = SmallRng::seed_from_u64(settings.seed);
        let drift = settings.drift_ppm;
        let manager = Machine::new(settings.seed, &mut rng, drift);
        let servers = (0..settings.servers)
            .map(|at| Machine::new(settings.seed ^ (at as u64 + 1) << 32, &mut rng, drift))
            .collect();
        let clients = (0..settings.clients).map(|at| {
            let mut machine = Machine::new(0, &mut rng, drift);
            machine.process = Some(Client::new(at));
            machine
        });
        let clients = clients.collect();
        Self {
            settings: *settings,
            now: Duration::ZERO,
            events: Events::default(),
            counts: Counts::default(),
            model: Model::default(),
            manager,
            servers,
            clients,
            links: vec![Link::default(); settings.servers],
            decided: vec![Decision::Use; settings.servers],
            has_drained: vec![false; settings.servers],
            cut: BTreeSet::new(),
            arrives: BTreeMap::new(),
            disk_free: BTreeMap::new(),
            is_calm: false,
            trouble: None,
            rng,
        }
    }

    fn begin(&mut self) {
        self.start(Addr::Manager);
        (0..self.servers.len()).for_each(|at| self.start(Addr::Server(at)));
        for at in 0..self.clients.len() {
            // When the servers are known.
            self.events.plan(self.now + 10 * TICK, Event::Tick { at: Addr::Client(at), run: 0 });
        }
        for fault in [Fault::Server, Fault::Manager, Fault::Partition, Fault::Disk, Fault::Decision] {
            self.plan_fault(fault);
        }
        self.events.plan(self.settings.duration, Event::Calm);
        self.events.plan(self.settings.duration + CALM, Event::End);
    }

    fn every(&self, fault: Fault) -> Option<Duration> {
        let faults = &self.settings.faults;
        match fault {
            Fault::Server => faults.server_every,
            Fault::Manager => faults.manager_every,
            Fault::Partition => faults.partition_every,
            Fault::Disk => faults.disk_error_every,
            Fault::Decision => faults.decision_every,
        }
    }

    fn plan_fault(&mut self, fault: Fault) {
        if let Some(every) = self.every(fault) {
            let wait = every.mul_f64(self.rng.random_range(0.1..2.0));
            self.events.plan(self.now + wait, Event::Fault(fault));
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.settings.is_told {
            println(&format!("{:>12.6} {}", self.now.as_secs_f64(), what()));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, connection, message } => {
                if self.connection(from, to) == connection && self.is_up(to) {
                    self.counts.delivered += 1;
                    self.tell(|| format!("{from:?} -> {to:?}: {message:?}"));
                    self.receive(from, to, message);
                } else {
                    self.counts.lost += 1;
                }
            }
            Event::Tick { at, run } => {
                if self.run_of(at) == run && self.is_up(at) {
                    self.tick(at);
                    self.events.plan(self.now + TICK, Event::Tick { at, run });
                }
            }
            Event::Disk { server, run, piece } => {
                if self.run_of(Addr::Server(server)) == run && self.is_up(Addr::Server(server)) {
                    self.with(Addr::Server(server), |world, env| {
                        if let Some(process) = &mut world.servers[server].process {
                            process.disk(piece, env);
                        }
                    });
                }
            }
            Event::Fault(fault) if !self.is_calm => {
                self.fault(fault);
                self.plan_fault(fault);
            }
            Event::Fault(_) => {}
            Event::Mend(Mend::Start(at)) => {
                if !self.is_up(at) {
                    self.start(at);
                }
            }
            Event::Mend(Mend::Renew(at)) => self.stop(at, false),
            Event::Mend(Mend::Path(from, to)) => {
                self.tell(|| format!("{from:?} reaches {to:?} again"));
                self.cut.remove(&(from, to));
            }
            Event::Calm => self.calm(),
            Event::End => {}
        }
    }

    fn run_of(&self, at: Addr) -> u64 {
        match at {
            Addr::Manager => self.manager.life,
            Addr::Server(at) => self.servers[at].life,
            Addr::Client(_) => 0,
        }
    }

    /// A connection lasts as long as both processes. That on which a server is told something by another one ends with its session.
    fn connection(&self, from: Addr, to: Addr) -> (u64, u64, SessionId) {
        let session = match (from, to) {
            (Addr::Server(_), Addr::Server(at)) => {
                self.servers[at].process.as_ref().map_or(SessionId(0), Server::last_session)
            }
            _ => SessionId(0),
        };
        (self.run_of(from), self.run_of(to), session)
    }

    fn is_up(&self, at: Addr) -> bool {
        match at {
            Addr::Manager => self.manager.process.is_some(),
            Addr::Server(at) => self.servers[at].process.is_some(),
            Addr::Client(_) => true,
        }
    }

    /// Lets a node do something, and sends what it says.
    fn with(&mut self, at: Addr, work: impl FnOnce(&mut Self, &mut Env<'_>)) {
        let now = match at {
            Addr::Manager => self.manager.clock(self.now),
            Addr::Server(at) => self.servers[at].clock(self.now),
            Addr::Client(at) => self.clients[at].clock(self.now),
        };
        let mut out = Vec::new();
        let (mut counts, mut rng) = (self.counts, self.rng.clone());
        let wall = self.wall();
        work(self, &mut Env { now, wall, out: &mut out, counts: &mut counts, rng: &mut rng });
        // Until the manager knows it may send clients to somebody who is not there any more.
        self.model.losses += counts.booted - self.counts.booted;
        (self.counts, self.rng) = (counts, rng);
        for (to, message) in out {
            self.send(at, to, message);
        }
        if let Addr::Server(server) = at {
            self.plan_disk(server);
        }
    }

    fn plan_disk(&mut self, server: usize) {
        let due =
            self.servers[server].process.as_mut().map(|process| std::mem::take(&mut process.due)).unwrap_or_default();
        let run = self.servers[server].life;
        for piece in due {
            let took = match self.rng.random_range(0..50) {
                0 => Duration::from_millis(self.rng.random_range(1..200)),
                _ => Duration::from_micros(self.rng.random_range(20..400)),
            };
            let free = self.disk_free.entry((server, piece)).or_default();
            *free = (*free).max(self.now) + took;
            let at = *free;
            self.events.plan(at, Event::Disk { server, run, piece });
        }
    }

    fn send(&mut self, from: Addr, to: Addr, message: Message) {
        let faults = self.settings.faults;
        // That a client is gone its server notices by itself.
        if self.cut.contains(&(from, to)) && !matches!(message, Message::Gone { .. }) {
            self.counts.lost += 1;
            if let (Addr::Manager, Addr::Server(server)) | (Addr::Server(server), Addr::Manager) = (from, to) {
                self.links[server].lost.get_or_insert(self.now);
            }
            return;
        }
        let is = |rng: &mut SmallRng, permille: u32| !self.is_calm && rng.random_ratio(permille.min(1000), 1000);
        let late = is(&mut self.rng, faults.late_permille);
        let is_of_machines = message.is_of_machines();
        // What else is said comes once and in order, or not at all: that much a connection does. Machines ask again on new ones.
        let twice = is_of_machines && is(&mut self.rng, faults.repeats_permille);
        let took = if late {
            Duration::from_millis(self.rng.random_range(1..1500))
        } else {
            Duration::from_micros(self.rng.random_range(30..500))
        };
        let connection = self.connection(from, to);
        // Of the machines what is very late comes after what was sent after it, as from a connection before.
        let at = if late && is_of_machines {
            self.now + took
        } else {
            let last = self.arrives.entry((from, to)).or_default();
            *last = (*last).max(self.now + took);
            *last
        };
        if twice {
            let again = at + Duration::from_micros(self.rng.random_range(0..200_000));
            self.events.plan(again, Event::Deliver { from, to, connection, message: message.clone() });
        }
        self.events.plan(at, Event::Deliver { from, to, connection, message });
    }

    fn receive(&mut self, from: Addr, to: Addr, message: Message) {
        self.with(to, |world, env| match to {
            Addr::Manager => {
                if let Some(manager) = &mut world.manager.process {
                    manager.receive(from, message, env);
                }
            }
            Addr::Server(at) => {
                if let Some(server) = &mut world.servers[at].process {
                    server.receive(from, message, env);
                }
            }
            Addr::Client(at) => {
                if let Some(client) = &mut world.clients[at].process {
                    client.receive(message, &mut world.model, env);
                }
            }
        });
    }

    fn wall(&self) -> Timestamp {
        Timestamp(1_000_000_000_000_000_000 + i64::try_from(self.now.as_nanos()).unwrap_or(0))
    }

    /// Connections between servers and the manager end with a process, or when nothing comes any more, and are made anew.
    fn look_at_links(&mut self) {
        for server in 0..self.servers.len() {
            let (here, there) = (Addr::Server(server), Addr::Manager);
            let runs = (self.manager.life, self.servers[server].life);
            let is_cut = self.cut.contains(&(here, there)) || self.cut.contains(&(there, here));
            let link = self.links[server];
            let is_silent = link.lost.is_some_and(|since| !is_cut || self.now.saturating_sub(since) >= SILENCE);
            if link.between.is_some_and(|between| between != runs || is_silent || !self.is_up(here)) {
                self.links[server] = Link::default();
                if let Some(manager) = &mut self.manager.process {
                    manager.disconnected(server);
                }
            }
            if self.links[server].between.is_none() && !is_cut && self.is_up(here) {
                self.links[server] = Link { between: Some(runs), lost: None };
                if let Some(manager) = &mut self.manager.process {
                    manager.connected(server);
                }
                self.with(here, |world, env| {
                    if let Some(process) = &mut world.servers[server].process {
                        process.connected(env);
                    }
                });
            }
        }
    }

    fn tick(&mut self, at: Addr) {
        if at == Addr::Manager {
            self.look_at_links();
        }
        let is_calm = self.is_calm;
        self.with(at, |world, env| match at {
            Addr::Manager => {
                if let Some(manager) = &mut world.manager.process {
                    manager.tick(env);
                }
            }
            Addr::Server(at) => {
                if let Some(server) = &mut world.servers[at].process {
                    server.tick(env);
                }
            }
            Addr::Client(at) => {
                if let Some(client) = &mut world.clients[at].process {
                    client.tick(&mut world.model, is_calm, env);
                }
            }
        });
    }

    fn start(&mut self, at: Addr) {
        self.tell(|| format!("{at:?} starts"));
        let started = match at {
            Addr::Manager => {
                self.manager.life += 1;
                let now = self.manager.clock(self.now);
                let with = (now, self.wall(), self.rng.random());
                Manager::start(&self.manager.disk, with, &self.settings)
                    .map(|process| self.manager.process = Some(process))
            }
            Addr::Server(at) => {
                let machine = &mut self.servers[at];
                machine.life += 1;
                let (life, boot) = (Life(machine.life), BootId(machine.boot));
                Server::start(at, &machine.disk, life, boot, &self.settings)
                    .map(|process| machine.process = Some(process))
            }
            Addr::Client(_) => Ok(()),
        };
        if let Err(why) = started {
            self.trouble.get_or_insert(why);
        }
        self.events.plan(self.now + TICK, Event::Tick { at, run: self.run_of(at) });
    }

    /// Ends a process, or a machine: what is on its disk then.
    fn stop(&mut self, at: Addr, power: bool) {
        if !self.is_up(at) {
            return;
        }
        self.tell(|| format!("{at:?} {}", if power { "loses its power" } else { "is killed" }));
        fn after(disk: &SimDisk, power: bool, rng: &mut SmallRng) -> SimDisk {
            let faults = if rng.random_ratio(1, 3) { CrashFaults::all_lost() } else { CrashFaults::mixed() };
            if power { disk.crash(rng, faults).0 } else { disk.kill() }
        }
        match at {
            Addr::Manager => {
                self.manager.process = None;
                self.manager.disk = after(&self.manager.disk, power, &mut self.rng);
                self.manager.boot += u128::from(power);
            }
            Addr::Server(at) => {
                let machine = &mut self.servers[at];
                machine.process = None;
                machine.disk = after(&machine.disk, power, &mut self.rng);
                machine.boot += u128::from(power);
                self.disk_free.retain(|(server, _), _| *server != at);
            }
            Addr::Client(_) => {}
        }
        if power {
            self.counts.power_failures += 1;
            self.model.losses += 1;
        } else {
            self.counts.kills += 1;
        }
        let wait = match self.rng.random_range(0..3) {
            0 => Duration::from_millis(self.rng.random_range(10..300)),
            1 => Duration::from_secs_f64(self.rng.random_range(0.3..3.0)),
            _ => Duration::from_secs_f64(self.rng.random_range(3.0..15.0)),
        };
        self.events.plan(self.now + wait, Event::Mend(Mend::Start(at)));
    }

    fn fault(&mut self, fault: Fault) {
        let server = self.rng.random_range(0..self.servers.len());
        let power = self.rng.random_ratio(self.settings.faults.power_percent.min(100), 100);
        match fault {
            Fault::Server => self.stop(Addr::Server(server), power),
            Fault::Manager => self.stop(Addr::Manager, power),
            Fault::Partition => self.partition(),
            Fault::Disk if self.is_up(Addr::Server(server)) => {
                let op = [DiskOp::Write, DiskOp::Sync, DiskOp::Read][self.rng.random_range(0..3)];
                let nth = self.rng.random_range(0..20);
                self.tell(|| format!("the disk of server {server} is going to fail: {op:?}"));
                self.servers[server].disk.fail_next(op, nth, std::io::ErrorKind::Other);
                self.counts.disk_errors += 1;
                self.model.losses += 1;
                // Somebody looks after it.
                let wait = Duration::from_secs_f64(self.rng.random_range(2.0..6.0));
                self.events.plan(self.now + wait, Event::Mend(Mend::Renew(Addr::Server(server))));
            }
            Fault::Disk => {}
            Fault::Decision => self.decide(server),
        }
    }

    /// An administrator decides something about a store. There are always as many that can be used as files are to have copies.
    fn decide(&mut self, server: usize) {
        let count = |wanted: Decision| self.decided.iter().filter(|decided| **decided == wanted).count();
        let decision = match (self.decided[server], self.rng.random_range(0..4)) {
            (Decision::GiveUp, _) => return,
            (Decision::Use, 0) if count(Decision::OnlyRead) == 0 => Decision::OnlyRead,
            (Decision::Use, 1) if count(Decision::GiveUp) == 0 => Decision::GiveUp,
            (Decision::Use, _) if count(Decision::Drain) == 0 => Decision::Drain,
            (Decision::Use, _) => return,
            (Decision::Drain | Decision::OnlyRead, _) => Decision::Use,
        };
        self.with(Addr::Manager, |world, env| {
            let Some(manager) = &mut world.manager.process else { return };
            if manager.decide(store_of(server), decision, env) {
                world.tell(|| format!("store {} is to be: {decision:?}", store_of(server)));
                world.decided[server] = decision;
                world.has_drained[server] |= decision == Decision::Drain;
                env.counts.drained += u64::from(decision == Decision::Drain);
                env.counts.lost_stores += u64::from(decision == Decision::GiveUp);
            }
        });
    }

    fn partition(&mut self) {
        let all: Vec<Addr> = std::iter::once(Addr::Manager)
            .chain((0..self.servers.len()).map(Addr::Server))
            .chain((0..self.clients.len()).map(Addr::Client))
            .collect();
        let one = all[self.rng.random_range(0..=self.servers.len())];
        let whole = self.rng.random_ratio(1, 2);
        let length = Duration::from_secs_f64(self.rng.random_range(0.1..12.0));
        let mut ways = Vec::new();
        for other in all.into_iter().filter(|other| *other != one) {
            // All others, or some of them; both ways, or one.
            if whole || self.rng.random_ratio(1, 3) {
                match self.rng.random_range(0..3) {
                    0 => ways.push((one, other)),
                    1 => ways.push((other, one)),
                    _ => ways.extend([(one, other), (other, one)]),
                }
            }
        }
        self.counts.partitions += 1;
        for (from, to) in ways {
            self.tell(|| format!("{from:?} does not reach {to:?}"));
            self.cut.insert((from, to));
            self.events.plan(self.now + length, Event::Mend(Mend::Path(from, to)));
        }
    }

    fn calm(&mut self) {
        self.tell(|| "all is mended".to_owned());
        self.is_calm = true;
        self.cut.clear();
        for at in std::iter::once(Addr::Manager).chain((0..self.servers.len()).map(Addr::Server)) {
            // A disk that had failed is another one after a start.
            if let Addr::Server(server) = at
                && self.settings.faults.disk_error_every.is_some()
                && self.is_up(at)
            {
                self.servers[server].process = None;
                self.servers[server].disk = self.servers[server].disk.kill();
                self.disk_free.retain(|(of, _), _| *of != server);
            }
            if !self.is_up(at) {
                self.start(at);
            }
        }
    }

    /// When all is mended, everybody has come to an end, and everything is there.
    fn finish(&mut self) {
        let mut wrong = Vec::new();
        for (at, machine) in self.clients.iter().enumerate() {
            if let Some(client) = machine.process.as_ref().filter(|client| !client.is_idle()) {
                wrong.push(format!("client {at} has not come to its end: {}", client.describe(&self.model)));
            }
        }
        let files: Vec<usize> =
            (0..self.model.files.len()).filter(|file| self.model.files[*file].life == model::Life::Closed).collect();
        for file in files {
            if let Err(why) = self.is_whole(file) {
                wrong.push(why);
            }
        }
        let looked = self.vanished().into_iter().chain(self.leftovers()).chain(self.emptied());
        wrong.extend(looked.filter_map(Result::err));
        if let Some(manager) = &self.manager.process {
            let snapshot = manager.kv.snapshot();
            let checked =
                namespace::check(&*snapshot, &mut |finding| wrong.push(format!("{}: {}", finding.key, finding.what)));
            if let Err(error) = checked {
                wrong.push(error.to_string());
            }
        }
        if !wrong.is_empty() {
            let first = wrong[..wrong.len().min(SHOWN_MAX)].join("; ");
            self.trouble = Some(format!("{} things are wrong in the end; {first}", wrong.len()));
        }
    }

    /// What is kept of files whose clients were gone, or were told that something may be lost.
    fn vanished(&self) -> Vec<Result<(), String>> {
        let is_vanished =
            |file: &usize| matches!(self.model.files[*file].life, model::Life::Vanished | model::Life::GivenUp);
        (0..self.model.files.len()).filter(is_vanished).map(|file| self.is_kept(file)).collect()
    }

    fn is_kept(&self, file: usize) -> Result<(), String> {
        let path = &self.model.files[file].path;
        let manager = self.manager.process.as_ref().ok_or("there is no manager")?;
        let name = NsPath::parse(path.as_bytes()).map_err(|error| error.to_string())?;
        // It may never have been made.
        let Ok(inode) = manager.ns.read(|read| namespace::stat(read, &Actor::admin(), &name)) else { return Ok(()) };
        let content = *inode.content().ok_or("it is no file")?;
        if let namespace::FileState::Open(_) | namespace::FileState::Updating(_) = content.state {
            return Err(format!("{path} is {:?} still", content.state));
        }
        let holders = manager.ns.read(|read| namespace::holders(read, content.group, content.body));
        let holders = holders.map_err(|error| error.to_string())?;
        if holders.is_empty() {
            // It stays owed: there is nobody to copy it from.
            return self.model.kept(file, &[]);
        }
        self.are_copies_made(path, content.group, content.body)?;
        for (server, machine) in self.servers.iter().enumerate() {
            let Some(process) = machine.process.as_ref().filter(|_| holders.contains(&store_of(server))) else {
                continue;
            };
            let kept = process.content(PieceId::first(content.body)).map_err(|code| format!("{path}: {code:?}"))?;
            if kept.len() as u64 != content.len {
                return Err(format!("{path}: server {server} keeps {} bytes, of {}", kept.len(), content.len));
            }
            self.model.kept(file, &kept)?;
        }
        Ok(())
    }

    /// No group counts on a store that was given up or emptied, and nothing is left on one that was emptied.
    fn emptied(&self) -> Vec<Result<(), String>> {
        let Some(manager) = &self.manager.process else { return Vec::new() };
        let groups = match manager.ns.read(|read| namespace::groups(read, None, usize::MAX)) {
            Ok(groups) => groups,
            Err(error) => return vec![Err(error.to_string())],
        };
        let mut found = Vec::new();
        for (server, decided) in self.decided.iter().enumerate() {
            let store = store_of(server);
            if !matches!(decided, Decision::Drain | Decision::GiveUp) {
                continue;
            }
            let counts_on_it = groups.iter().filter(|group| group.members.iter().any(|member| member.store == store));
            found.extend(counts_on_it.map(|group| {
                let why = manager.what_needs(group.group);
                Err(format!("group {} counts on store {store} ({decided:?}): {why}", group.group))
            }));
            let pieces = self.servers[server].process.as_ref().map(Server::pieces);
            match pieces {
                Some(Ok(pieces)) if *decided == Decision::Drain && !pieces.is_empty() => {
                    found.push(Err(format!("store {store} was emptied, and has {} pieces", pieces.len())));
                }
                Some(Err(why)) => found.push(Err(why)),
                _ => {}
            }
        }
        found
    }

    /// What was removed is deleted everywhere, and nothing lies about that nobody knows of.
    fn leftovers(&self) -> Vec<Result<(), String>> {
        let Some(manager) = &self.manager.process else { return Vec::new() };
        let known = manager.ns.read(|read| {
            let mut known: BTreeSet<BodyId> =
                namespace::writers(read, None, usize::MAX)?.into_iter().map(|writer| writer.body).collect();
            for group in namespace::groups(read, None, usize::MAX)? {
                known.extend(
                    namespace::bodies(read, group.group, None, usize::MAX)?.into_iter().map(|record| record.body),
                );
            }
            Ok((known, namespace::due_deletions(read, None, usize::MAX)?))
        });
        let (known, due) = match known {
            Ok(known) => known,
            Err(error) => return vec![Err(error.to_string())],
        };
        let mut found: Vec<_> = due.iter().map(|due| Err(format!("{due:?} is not done"))).collect();
        for (server, process) in
            self.servers.iter().enumerate().filter_map(|(at, server)| Some((at, server.process.as_ref()?)))
        {
            // Nobody tells a store that was given up what to do. And on one that is used again before it was empty something may lie that no group
            // counts on any more.
            if self.decided[server] == Decision::GiveUp
                || self.has_drained[server] && self.decided[server] != Decision::Drain
            {
                continue;
            }
            match process.pieces() {
                Ok(pieces) => {
                    // A manager that has lost its power may know nothing of what was opened shortly before: such pieces are an audit's affair.
                    let strange =
                        pieces.into_iter().filter(|piece| self.manager.boot == 1 && !known.contains(&piece.body));
                    found.extend(
                        strange.map(|piece| Err(format!("server {server} has piece {piece}, which nobody knows"))),
                    );
                }
                Err(why) => found.push(Err(why)),
            }
        }
        found
    }

    /// Whether no copy of a content is owed any more.
    fn are_copies_made(&self, path: &str, group: GroupId, body: BodyId) -> Result<(), String> {
        let manager = self.manager.process.as_ref().ok_or("there is no manager")?;
        let owed = manager.ns.read(|read| namespace::owed_of(read, group, body));
        let owed = owed.map_err(|error| format!("{path}: {error}"))?;
        match owed.first() {
            Some(store) => Err(format!("{path} is still owed to store {store}")),
            None => Ok(()),
        }
    }

    fn is_whole(&mut self, file: usize) -> Result<(), String> {
        let path = self.model.files[file].path.clone();
        let whole = self.model.whole(file);
        let manager = self.manager.process.as_ref().ok_or("there is no manager")?;
        let at = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let name = NsPath::parse(path.as_bytes()).map_err(|error| at(&error))?;
        let inode =
            manager.ns.read(|read| namespace::stat(read, &Actor::admin(), &name)).map_err(|error| at(&error))?;
        let content = *inode.content().ok_or_else(|| at(&"it is no file"))?;
        let sums = content.sums.map(|sums| sums.crc32c);
        if content.state != namespace::FileState::Complete || (content.len, sums) != (whole.len, Some(whole.crc32c)) {
            let right = self.model.content(file);
            let differ = |server: &Server| {
                let read = server.content(PieceId::first(content.body)).ok()?;
                let first = read.iter().zip(right).position(|(one, other)| one != other)?;
                let last = read.iter().zip(right).rposition(|(one, other)| one != other)?;
                Some((first, last))
            };
            let where_: Vec<_> = self.servers.iter().map(|machine| machine.process.as_ref().and_then(differ)).collect();
            return Err(format!(
                "{path} is {content:?}, and was closed with {whole:?}; bytes that differ on each server: {where_:?}"
            ));
        }
        let (group, body) = (content.group, content.body);
        self.are_copies_made(&path, group, body)?;
        let manager = self.manager.process.as_ref().ok_or("there is no manager")?;
        let holders = manager.ns.read(|read| namespace::holders(read, group, body)).map_err(|error| at(&error))?;
        if holders.is_empty() {
            return Err(format!("nobody holds {path}"));
        }
        for (server, machine) in self.servers.iter().enumerate() {
            if !holders.contains(&store_of(server)) {
                continue;
            }
            let process = machine.process.as_ref().ok_or_else(|| format!("server {server} is not there"))?;
            process.holds(PieceId::first(body), whole).map_err(|why| format!("{path}: {why}"))?;
            let read = process.content(PieceId::first(body)).map_err(|code| format!("{path}: {code:?}"))?;
            if &*read != self.model.content(file) {
                return Err(format!("{path}: server {server} has other bytes"));
            }
        }
        Ok(())
    }
}

#[allow(clippy::print_stdout)] // the story that was asked for
fn println(line: &str) {
    println!("{line}");
}
