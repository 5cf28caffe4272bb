//! The world: time, network, what goes wrong, and the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{Life, Time};
use disk::{CrashFaults, DiskOp, SimDisk};
use namespace::Actor;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{BootId, NsPath, PieceId};

use crate::client::Client;
use crate::events::{Event, Events, Fault, Mend};
use crate::manager::{Env, Manager, store_of};
use crate::message::{Addr, Message};
use crate::model::{self, Model, Violation};
use crate::server::Server;
use crate::settings::{Counts, Settings};

const TICK: Duration = Duration::from_millis(100);
/// How long after all is mended everybody has to have come to an end.
const CALM: Duration = Duration::from_secs(90);

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
        for fault in [Fault::Server, Fault::Manager, Fault::Partition, Fault::Disk] {
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

    /// A connection lasts as long as both processes.
    fn connection(&self, from: Addr, to: Addr) -> (u64, u64) {
        (self.run_of(from), self.run_of(to))
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
        work(self, &mut Env { now, out: &mut out, counts: &mut counts, rng: &mut rng });
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
        if self.cut.contains(&(from, to)) {
            self.counts.lost += 1;
            return;
        }
        let is = |rng: &mut SmallRng, permille: u32| !self.is_calm && rng.random_ratio(permille.min(1000), 1000);
        let late = is(&mut self.rng, faults.late_permille);
        // Clients' requests come once and in order, or not at all: that much a connection does. Nodes ask again on new ones.
        let is_clients = matches!(from, Addr::Client(_)) || matches!(to, Addr::Client(_));
        let twice = !is_clients && is(&mut self.rng, faults.repeats_permille);
        let took = if late {
            Duration::from_millis(self.rng.random_range(1..1500))
        } else {
            Duration::from_micros(self.rng.random_range(30..500))
        };
        let connection = self.connection(from, to);
        // Between nodes what is very late comes after what was sent after it, as from a connection before.
        let at = if late && !is_clients {
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

    fn tick(&mut self, at: Addr) {
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
                Manager::start(&self.manager.disk, now, &self.settings)
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
        }
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
        if let Some(manager) = &self.manager.process {
            let snapshot = manager.kv.snapshot();
            let checked =
                namespace::check(&*snapshot, &mut |finding| wrong.push(format!("{}: {}", finding.key, finding.what)));
            if let Err(error) = checked {
                wrong.push(error.to_string());
            }
        }
        if let Some(first) = wrong.first() {
            self.trouble = Some(format!("{} things are wrong in the end; {first}", wrong.len()));
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
        let holders = manager.ns.read(|read| namespace::holders(read, group, body)).map_err(|error| at(&error))?;
        let owed = manager.ns.read(|read| namespace::owed_of(read, group, body)).map_err(|error| at(&error))?;
        self.counts.owed += owed.len() as u64;
        // A store does not begin a piece again of which a power failure has left a file without a record, or a number without a piece: such a copy has to go to
        // another store, with the repair of groups.
        let can = |server: &Server| server.can_take(PieceId::first(body));
        let able = owed.iter().filter(|store| {
            let at = (0..self.servers.len()).find(|server| store_of(*server) == **store);
            at.and_then(|at| self.servers[at].process.as_ref()).is_some_and(can)
        });
        if let Some(store) = able.into_iter().next() {
            return Err(format!("{path} is still owed to store {store}"));
        }
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
