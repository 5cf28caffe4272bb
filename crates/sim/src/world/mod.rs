//! The world: time, the network, machines that stop and start, and the next step of each.

mod access;
mod damage;
mod ending;
mod faults;
mod links;
mod managers;
mod names;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{ProcessEpoch, Time};
use disk::{CrashFaults, SimDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{BootId, Timestamp};

use crate::client::Client;
use crate::counts::Counts;
use crate::events::{Event, Events, Fault, Mend};
use crate::manager::{Decision, Env, Manager};
use crate::message::{Addr, Message};
use crate::model::{Model, Violation};
use crate::server::{Due, Server};
use crate::settings::{Scenario, Settings};
use access::Shares;
use links::Links;
use managers::Turns;
use watching::Watched;

const TICK: Duration = Duration::from_millis(100);
/// Within this time after all repairs every client must finish.
const CALM: Duration = Duration::from_secs(150);

/// A machine. Its disk outlasts its process.
struct Machine<P> {
    disk: SimDisk,
    process: Option<P>,
    process_epoch: u64,
    boot: u128,
    /// The clock's lead over true time at the start, and its rate.
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
            process_epoch: 0,
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
    /// The process of one that is a standby is in `turns`.
    managers: Vec<Machine<Manager>>,
    turns: Turns,
    servers: Vec<Machine<Server>>,
    clients: Vec<Machine<Client>>,
    links: Links,
    /// The present decision for each store.
    decided: Vec<Decision>,
    /// Stores that were ever set to drain.
    has_drained: Vec<bool>,
    /// Pairs of which the first cannot reach the second.
    cut: BTreeSet<(Addr, Addr)>,
    /// When the last message on each route arrives. Later messages on the same connection arrive later.
    arrives: BTreeMap<(Addr, Addr), Duration>,
    /// When the last request of a client at a server is done.
    answered: BTreeMap<(usize, usize), Duration>,
    /// Servers whose disks have had an error since their start, or for which one is planned.
    is_failing: Vec<bool>,
    watched: Watched,
    shares: Shares,
    is_calm: bool,
    trouble: Option<String>,
}

/// Runs a simulation to its end.
///
/// # Errors
/// The violated rule, and the seed that repeats it.
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
        if world.turns.has_lost() {
            // What clients see after that says nothing.
            world.model.violation = None;
        }
        if world.model.violation.is_some() || world.trouble.is_some() {
            break;
        }
    }
    let what = world.model.violation.take().or(world.trouble.take());
    match what {
        None => Ok(world.counts),
        Some(what) => {
            let (at_s, event) = (format!("{:.6}", world.now.as_secs_f64()), world.counts.events);
            Err(Box::new(Violation { settings: *settings, at_s, event, what }))
        }
    }
}

impl World {
    fn new(settings: &Settings) -> Self {
        let mut rng = SmallRng::seed_from_u64(settings.seed);
        let drift = settings.drift_ppm;
        let managers = (0..settings.managers).map(|_| Machine::new(settings.seed, &mut rng, drift)).collect();
        let turns = Turns::new(settings);
        let servers = (0..settings.servers)
            .map(|at| Machine::new(settings.seed ^ (at as u64 + 1) << 32, &mut rng, drift))
            .collect();
        let clients = (0..settings.clients).map(|at| {
            let mut machine = Machine::new(0, &mut rng, drift);
            machine.process = Some(Client::new(at, settings.scenario == Scenario::Sharing, settings.managers));
            machine
        });
        let clients = clients.collect();
        Self {
            settings: *settings,
            now: Duration::ZERO,
            events: Events::default(),
            counts: Counts::default(),
            model: Model::default(),
            managers,
            turns,
            servers,
            clients,
            links: Links::new(),
            decided: vec![Decision::Use; settings.servers],
            has_drained: vec![false; settings.servers],
            cut: BTreeSet::new(),
            arrives: BTreeMap::new(),
            answered: BTreeMap::new(),
            is_failing: vec![false; settings.servers],
            watched: Watched::new(settings.servers),
            shares: Shares::default(),
            is_calm: false,
            trouble: None,
            rng,
        }
    }

    fn begin(&mut self) {
        (0..self.managers.len()).for_each(|at| self.start(Addr::Manager(at)));
        (0..self.servers.len()).for_each(|at| self.start(Addr::Server(at)));
        for at in 0..self.clients.len() {
            // Clients start when the manager knows the servers.
            self.events.plan(self.now + 10 * TICK, Event::Tick { at: Addr::Client(at), run: 0 });
        }
        let server = [Fault::Server, Fault::Disk, Fault::Damage, Fault::Decision];
        for fault in server.into_iter().chain([
            Fault::Manager,
            Fault::Partition,
            Fault::Absence,
            Fault::Access,
            Fault::Database,
            Fault::Stall,
        ]) {
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
            Fault::Damage => faults.damage_every,
            Fault::Decision => faults.decision_every,
            Fault::Absence => faults.absence_every,
            Fault::Access => faults.access_every,
            Fault::Database => faults.database_every,
            Fault::Stall => faults.stall_every,
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
        let Some(event) = self.not_while_still(event) else { return };
        match event {
            Event::Deliver { from, to, connection, message } => {
                if self.connection(from, to) == connection && self.is_up(to) {
                    self.counts.delivered += 1;
                    self.tell(|| format!("{from:?} -> {to:?}: {message:?}"));
                    let copy = self.watched.copy_of(&message);
                    self.receive(from, to, message);
                    self.look(to, false);
                    if let Some((store, replica)) = copy {
                        self.look_at_copy(store, replica);
                    }
                } else {
                    self.counts.lost += 1;
                }
            }
            Event::Tick { at, run } => {
                if self.run_of(at) == run && self.is_up(at) {
                    self.tick(at);
                    self.look(at, true);
                    self.events.plan(self.now + TICK, Event::Tick { at, run });
                }
            }
            Event::Job { server, run, job } => {
                if self.run_of(Addr::Server(server)) == run && self.is_up(Addr::Server(server)) {
                    self.with(Addr::Server(server), |world, env| {
                        if let Some(process) = &mut world.servers[server].process {
                            process.work(job, env);
                        }
                    });
                    self.look(Addr::Server(server), false);
                }
            }
            Event::ToDatabase { manager, run, sent } => self.database_is_asked(manager, run, sent),
            Event::FromDatabase { manager, run, number, answer } => {
                if self.managers[manager].process_epoch == run {
                    self.database_has_answered(manager, number, answer);
                    self.look(Addr::Manager(manager), false);
                }
            }
            Event::Fault(fault) if !self.is_calm => {
                self.fault(fault);
                self.plan_fault(fault);
            }
            Event::Fault(_) => {}
            Event::Mend(Mend::Start(at)) => {
                if !self.is_up(at) && !self.turns.has_ended(at) {
                    self.start(at);
                    self.look_at_all();
                }
            }
            Event::Mend(Mend::Renew(at)) => self.stop(at, false),
            Event::Mend(Mend::Path(from, to)) => {
                self.tell(|| format!("{from:?} reaches {to:?} again"));
                self.cut.remove(&(from, to));
                self.deliver_held(from, to);
            }
            Event::Calm => self.calm(),
            Event::End => {}
        }
    }

    fn run_of(&self, at: Addr) -> u64 {
        match at {
            Addr::Manager(at) => self.managers[at].process_epoch,
            Addr::Server(at) => self.servers[at].process_epoch,
            Addr::Client(_) => 0,
        }
    }

    fn is_up(&self, at: Addr) -> bool {
        match at {
            Addr::Manager(at) => self.managers[at].process.is_some() || self.turns.is_standby(at),
            Addr::Server(at) => self.servers[at].process.is_some(),
            Addr::Client(_) => true,
        }
    }

    /// Lets a node work, and sends its messages.
    fn with(&mut self, at: Addr, work: impl FnOnce(&mut Self, &mut Env<'_>)) {
        let now = match at {
            Addr::Manager(at) => self.managers[at].clock(self.now),
            Addr::Server(at) => self.servers[at].clock(self.now),
            Addr::Client(at) => self.clients[at].clock(self.now),
        };
        let mut out = Vec::new();
        let (mut counts, mut rng) = (self.counts, self.rng.clone());
        let manager = if let Addr::Manager(at) = at { at } else { 0 };
        let (wall, reaches_database) = (self.wall(manager), self.reaches_database(manager));
        work(self, &mut Env { now, wall, reaches_database, out: &mut out, counts: &mut counts, rng: &mut rng });
        // Until the manager notices that a server is gone, it may redirect clients there.
        self.model.losses += counts.booted - self.counts.booted;
        (self.counts, self.rng) = (counts, rng);
        for (to, message) in out {
            self.look_at_said(at, to, &message);
            self.send(at, to, message);
        }
        match at {
            Addr::Server(server) => self.plan_jobs(server),
            Addr::Manager(manager) => self.ask_database(manager),
            Addr::Client(_) => {}
        }
    }

    fn plan_jobs(&mut self, server: usize) {
        let due = self.servers[server].process.as_mut().map(Server::take_due).unwrap_or_default();
        let run = self.servers[server].process_epoch;
        for Due { job, client } in due {
            let took = match self.rng.random_range(0..50) {
                0 => Duration::from_millis(self.rng.random_range(1..200)),
                _ => Duration::from_micros(self.rng.random_range(20..400)),
            };
            let mut at = self.now + took;
            if let Some(client) = client {
                let before = self.answered.entry((server, client)).or_default();
                at = at.max(*before);
                *before = at;
            }
            self.events.plan(at, Event::Job { server, run, job });
        }
    }

    fn send(&mut self, from: Addr, to: Addr, message: Message) {
        if let (Addr::Server(one), Addr::Server(other)) = (from, to) {
            if matches!(message, Message::HangUp) {
                return self.links.hang_up(one, other);
            }
            if !self.links.is_up(one, other) {
                self.counts.lost += 1;
                return;
            }
        }
        let faults = self.settings.faults;
        // A server notices by itself that a client is gone.
        if self.cut.contains(&(from, to)) && !matches!(message, Message::Gone { .. }) {
            let connection = self.connection(from, to);
            if self.links.hold(from, to, (self.now, connection, &message)) {
                return;
            }
            self.counts.lost += 1;
            if let (Addr::Manager(manager), Addr::Server(server)) | (Addr::Server(server), Addr::Manager(manager)) =
                (from, to)
            {
                self.links.lose(manager, server, self.now);
            }
            return;
        }
        let is = |rng: &mut SmallRng, permille: u32| !self.is_calm && rng.random_ratio(permille.min(1000), 1000);
        let late = is(&mut self.rng, faults.late_permille);
        let is_of_machines = message.is_of_machines();
        // Other messages come once and in order, or not at all, because they use a connection. The state machines ask again on new connections.
        let twice = is_of_machines && is(&mut self.rng, faults.repeats_permille);
        let took = if late {
            Duration::from_millis(self.rng.random_range(1..1500))
        } else {
            Duration::from_micros(self.rng.random_range(30..500))
        };
        let connection = self.connection(from, to);
        // A very late message of the state machines arrives after newer ones, as if it came from an earlier connection.
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
            Addr::Manager(at) => match &mut world.managers[at].process {
                Some(manager) => manager.receive(from, message, env),
                None => managers::refuse(from, &message, env),
            },
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

    /// A manager's time of day. A restarted manager runs on another machine, whose clock is ten minutes ahead or behind.
    fn wall(&self, manager: usize) -> Timestamp {
        let other = self.managers[manager].process_epoch + manager as u64;
        let set = Duration::from_secs(600 * [1, 2, 0][(other % 3) as usize]);
        Timestamp(1_000_000_000_000_000_000 + i64::try_from((set + self.now).as_nanos()).unwrap_or(0))
    }

    fn tick(&mut self, at: Addr) {
        match at {
            Addr::Manager(at) if self.managers[at].process.is_none() => return self.tick_standby(at),
            Addr::Manager(at) => self.look_at_links(at),
            Addr::Server(server) => {
                if self.settings.database {
                    self.look_at_ended_managers(server);
                }
                self.dial_others(server);
            }
            Addr::Client(client) if self.settings.database => self.look_at_connection(client),
            Addr::Client(_) => {}
        }
        let is_calm = self.is_calm;
        self.with(at, |world, env| match at {
            Addr::Manager(at) => {
                if let Some(manager) = &mut world.managers[at].process {
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
        if let Addr::Manager(at) = at {
            self.end_turn_if_due(at);
        }
    }

    fn start(&mut self, at: Addr) {
        self.tell(|| format!("{at:?} starts"));
        let started = match at {
            Addr::Manager(at) => {
                self.managers[at].process_epoch += 1;
                if self.settings.database {
                    let (process, next_look) = (self.rng.random(), self.now);
                    self.turns.start_standby(at, process, next_look);
                    Ok(())
                } else {
                    let machine = &self.managers[at];
                    let with = (machine.clock(self.now), self.wall(at), self.rng.random());
                    Manager::start(&machine.disk, with, &self.settings)
                        .map(|process| self.managers[at].process = Some(process))
                }
            }
            Addr::Server(at) => {
                self.is_failing[at] = false;
                let with = (self.servers[at].clock(self.now), self.rng.random());
                let machine = &mut self.servers[at];
                machine.process_epoch += 1;
                let (process_epoch, boot) = (ProcessEpoch(machine.process_epoch), BootId(machine.boot));
                Server::start(at, &machine.disk, (process_epoch, boot), with, &self.settings)
                    .map(|process| machine.process = Some(process))
            }
            Addr::Client(_) => Ok(()),
        };
        if let Err(why) = started {
            self.trouble.get_or_insert(why);
        }
        self.events.plan(self.now + TICK, Event::Tick { at, run: self.run_of(at) });
    }

    /// Ends a process, or a machine with the unsynced bytes of its disk.
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
            Addr::Manager(at) => {
                self.turns.end_standby(at);
                let machine = &mut self.managers[at];
                machine.process = None;
                machine.disk = after(&machine.disk, power, &mut self.rng);
                machine.boot += u128::from(power);
            }
            Addr::Server(at) => {
                let machine = &mut self.servers[at];
                machine.process = None;
                machine.disk = after(&machine.disk, power, &mut self.rng);
                machine.boot += u128::from(power);
                self.links.end(at);
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

    fn calm(&mut self) {
        self.tell(|| "all is mended".to_owned());
        self.is_calm = true;
        self.cut.clear();
        self.links.drop_held();
        self.turns.mend();
        for at in (0..self.managers.len()).map(Addr::Manager).chain((0..self.servers.len()).map(Addr::Server)) {
            // A failed disk is replaced at the start.
            if let Addr::Server(server) = at
                && self.settings.faults.disk_error_every.is_some()
                && self.is_up(at)
            {
                self.servers[server].process = None;
                self.servers[server].disk = self.servers[server].disk.kill();
                self.links.end(server);
            }
            if !self.is_up(at) && !self.turns.has_ended(at) {
                self.start(at);
            }
        }
        self.look_at_all();
    }
}

#[allow(clippy::print_stdout)] // the story that was asked for
fn println(line: &str) {
    println!("{line}");
}
