//! Managers on a database: each is active or a standby, in turns. The database and the way to it fail, and managers stand still.
//!
//! These rules are checked:
//!
//! - No two managers have a lease at once, and nothing is committed for a manager whose place another one has taken.
//! - A database that has lost acknowledged changes is closed by a manager that knows of them. If no such manager is left, nobody can notice it; the
//!   simulation counts these cases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use database::DatabaseError;
use database::simulated::{Answer, Looked, Request, Sent, SimDatabase, SimEngine, SimStats, SimWatch};
use parking_lot::Mutex;
use rand::Rng;
use types::ErrorCode;

use super::{TICK, World};
use crate::events::Event;
use crate::manager::{Env, Manager, Place};
use crate::message::{Addr, Message};
use crate::settings::Settings;

/// How often a standby looks whether the place is free.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long it waits for an answer.
const ANSWER: Duration = Duration::from_secs(3);
/// How long a manager that could not become active waits before it is a standby again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);
/// Within this time a manager must say that the database has lost changes.
const SAID_WITHIN: Duration = Duration::from_secs(40);

/// A manager that waits for the place.
struct Standby {
    watch: SimWatch,
    process: [u8; 16],
    /// The number of a request without an answer, when it was sent, and whether it asks for the place.
    asked: Option<(u64, Instant, bool)>,
    numbers: u64,
    next_look: Duration,
}

#[derive(Default)]
/// The state of a manager beside its process as the active one.
struct ManagerState {
    standby: Option<Standby>,
    /// The process does nothing until then, and its clock goes on.
    still_until: Duration,
    /// It cannot reach the database until then.
    cut_until: Duration,
    /// The process has ended for good: the database has lost changes.
    has_ended: bool,
    /// What was counted of the engine.
    counted: SimStats,
}

/// The database has lost acknowledged changes.
#[derive(Clone, Copy, Debug)]
struct Loss {
    /// At least so many batches.
    batches: i64,
    /// No manager need notice it: one has taken the place that could not know of them, or only a change of the place was lost.
    is_hidden: bool,
}

/// See the module.
pub(super) struct Turns {
    database: Option<Arc<Mutex<SimDatabase>>>,
    /// The moment at which all clocks showed zero.
    origin: Instant,
    /// By manager.
    of: Vec<ManagerState>,
    /// The database answers nobody until then.
    away_until: Duration,
    /// The last batch that a manager has seen confirmed.
    acknowledged: i64,
    loss: Option<Loss>,
    /// A batch was lost that nobody has acknowledged. A manager that has seen it may say so.
    may_be_said: bool,
}

impl Turns {
    pub(super) fn new(settings: &Settings) -> Self {
        let planted = settings.planted.and_then(crate::settings::Bug::of_database);
        let database = settings.database.then(|| Arc::new(Mutex::new(SimDatabase::new(planted))));
        let of = (0..settings.managers).map(|_| ManagerState::default()).collect();
        Self {
            database,
            origin: Instant::now(),
            of,
            away_until: Duration::ZERO,
            acknowledged: 0,
            loss: None,
            may_be_said: false,
        }
    }

    pub(super) fn database(&self) -> Option<&Arc<Mutex<SimDatabase>>> {
        self.database.as_ref()
    }

    pub(super) fn has_lost(&self) -> bool {
        self.loss.is_some()
    }

    pub(super) fn is_standby(&self, at: usize) -> bool {
        self.of[at].standby.is_some()
    }

    /// Whether the process of a manager has ended for good.
    pub(super) fn has_ended(&self, at: Addr) -> bool {
        matches!(at, Addr::Manager(manager) if self.of[manager].has_ended)
    }

    /// A process starts, or goes on, as a standby.
    pub(super) fn start_standby(&mut self, at: usize, process: u128, next_look: Duration) {
        let process = process.to_le_bytes();
        let watch = SimWatch::new(process);
        self.of[at].standby = Some(Standby { watch, process, asked: None, numbers: 0, next_look });
    }

    pub(super) fn end_standby(&mut self, at: usize) {
        self.of[at].standby = None;
    }

    /// All managers go on, and reach the database.
    pub(super) fn mend(&mut self) {
        self.away_until = Duration::ZERO;
        for manager in &mut self.of {
            (manager.still_until, manager.cut_until) = (Duration::ZERO, Duration::ZERO);
        }
    }
}

/// What a standby answers.
pub(super) fn refuse(from: Addr, message: &Message, env: &mut Env<'_>) {
    match message {
        Message::Open { number, .. } => {
            env.send(from, Message::Opened { number: *number, result: Err(ErrorCode::Overloaded) });
        }
        Message::Remove { number, .. } => {
            env.send(from, Message::Removed { number: *number, result: Err(ErrorCode::Overloaded) });
        }
        _ => {}
    }
}

impl World {
    /// The managers that have a lease, by their own clocks.
    pub(super) fn lease_holders(&self) -> Vec<usize> {
        let holds = |at: &usize| {
            let machine = &self.managers[*at];
            let place = machine.process.as_ref().and_then(Manager::place);
            place.is_some_and(|place| place.has_lease(machine.clock(self.now)))
        };
        (0..self.managers.len()).filter(holds).collect()
    }

    /// A manager to which something happens: the active one more often than others.
    pub(super) fn any_manager(&mut self) -> usize {
        if self.managers.len() == 1 {
            return 0;
        }
        let any = self.rng.random_range(0..self.managers.len());
        let is_active = self.rng.random_ratio(1, 2);
        self.active().filter(|_| is_active).unwrap_or(any)
    }

    pub(super) fn reaches_database(&self, at: usize) -> bool {
        self.now >= self.turns.away_until && self.now >= self.turns.of[at].cut_until
    }

    /// Puts off what happens to a manager that stands still.
    pub(super) fn not_while_still(&mut self, event: Event) -> Option<Event> {
        let at = match &event {
            Event::Deliver { to: Addr::Manager(at), .. } | Event::Tick { at: Addr::Manager(at), .. } => *at,
            Event::FromDatabase { manager, .. } => *manager,
            _ => return Some(event),
        };
        let until = self.turns.of[at].still_until;
        if until <= self.now {
            return Some(event);
        }
        if matches!(event, Event::Deliver { from: Addr::Client(_), .. }) {
            // The client ends the connection before the manager comes to it.
            self.counts.lost += 1;
            return None;
        }
        self.events.plan(until, event);
        None
    }

    /// Tells a client whether its connection with its manager is as it should be.
    pub(super) fn look_at_connection(&mut self, at: usize) {
        let Self { clients, managers, turns, cut, now, .. } = self;
        let here = Addr::Client(at);
        let Some(client) = &mut clients[at].process else { return };
        client.asks(|manager| {
            let there = Addr::Manager(manager);
            let is_cut = cut.contains(&(here, there)) || cut.contains(&(there, here));
            managers[manager].process.is_some() && turns.of[manager].still_until <= *now && !is_cut
        });
    }

    fn clock(&self, at: usize) -> Instant {
        self.turns.origin + self.managers[at].clock(self.now).0
    }

    /// How long a message on the way to the database or back takes. `None`: it is lost, with its connection.
    fn delay(&mut self) -> Option<Duration> {
        let is_calm = self.is_calm || self.turns.has_lost();
        match self.rng.random_range(0..200) {
            0..2 if !is_calm => None,
            2..5 if !is_calm => Some(Duration::from_millis(self.rng.random_range(0..6000))),
            5..12 if !is_calm => Some(Duration::from_millis(self.rng.random_range(0..1500))),
            _ => Some(Duration::from_micros(self.rng.random_range(200..4000))),
        }
    }

    fn send_to_database(&mut self, manager: usize, sent: Sent) {
        let run = self.managers[manager].process_epoch;
        let delay = self.delay();
        if let Some(delay) = delay.filter(|_| self.reaches_database(manager)) {
            self.events.plan(self.now + delay, Event::ToDatabase { manager, run, sent });
        }
    }

    /// A request reaches the database.
    pub(super) fn database_is_asked(&mut self, manager: usize, run: u64, sent: Sent) {
        let Some(database) = self.turns.database.clone().filter(|_| self.now >= self.turns.away_until) else { return };
        let number = sent.number;
        let shown = if self.settings.is_told { format!("{:.160?}", sent.request) } else { String::new() };
        let (answer, wrong) = {
            let mut database = database.lock();
            (database.serve(sent), database.wrong())
        };
        self.tell(|| format!("the database is asked by manager {manager}: {shown}"));
        self.wrong(wrong.map_or(Ok(()), Err));
        let delay = self.delay();
        if let Some(delay) = delay.filter(|_| self.reaches_database(manager)) {
            self.events.plan(self.now + delay, Event::FromDatabase { manager, run, number, answer });
        }
    }

    /// After a manager has worked: sends its requests, and checks the leases.
    pub(super) fn ask_database(&mut self, at: usize) {
        let Some(place) = self.managers[at].process.as_ref().and_then(Manager::place).cloned() else { return };
        for sent in place.engine.take_out() {
            self.send_to_database(at, sent);
        }
        self.turns.acknowledged = self.turns.acknowledged.max(place.engine.batch());
        let (now, before) = (place.engine.stats(), self.turns.of[at].counted);
        self.turns.of[at].counted = now;
        self.counts.batches += now.batches - before.batches;
        self.counts.answers_lost += now.answers_lost - before.answers_lost;
        self.counts.found_committed += now.were_committed - before.were_committed;
        self.counts.unknown += now.unknown - before.unknown;
        let holders = self.lease_holders();
        if holders.len() > 1 {
            self.wrong(Err(format!("managers {holders:?} have a lease at once")));
        }
    }

    pub(super) fn database_has_answered(&mut self, at: usize, number: u64, answer: Answer) {
        if self.managers[at].process.is_some() {
            self.with(Addr::Manager(at), |world, env| {
                if let Some(manager) = &mut world.managers[at].process {
                    manager.answered(number, answer, env);
                }
            });
            return self.end_turn_if_due(at);
        }
        let now = self.clock(at);
        let next_look = self.now + LOOK_EVERY;
        let Some(standby) = &mut self.turns.of[at].standby else { return };
        let Some((_, sent, is_take)) = standby.asked.take_if(|(asked, ..)| *asked == number) else { return };
        if is_take {
            standby.next_look = next_look;
            return self.becomes_active(at, sent, &answer);
        }
        match standby.watch.answered(now, answer) {
            Looked::Held | Looked::Closed => standby.next_look = next_look,
            Looked::Free(take) => self.standby_asks(at, take),
            Looked::Lost(close) => self.ends_for_good(at, Some(close)),
        }
    }

    fn standby_asks(&mut self, at: usize, request: Request) {
        let now = self.clock(at);
        let Some(standby) = &mut self.turns.of[at].standby else { return };
        standby.numbers += 1;
        let number = standby.numbers;
        standby.asked = Some((number, now, request.is_take()));
        self.send_to_database(at, Sent { number, server: None, request });
    }

    pub(super) fn tick_standby(&mut self, at: usize) {
        let (now, clock) = (self.now, self.clock(at));
        let Some(standby) = &mut self.turns.of[at].standby else { return };
        match standby.asked {
            Some((_, sent, is_take)) if clock.saturating_duration_since(sent) >= ANSWER => {
                standby.asked = None;
                standby.watch.unanswered();
                if is_take {
                    // It may have the place without knowing it, which looks to others as if it had died.
                    let process = self.rng.random();
                    self.turns.start_standby(at, process, now + LOOK_EVERY);
                }
            }
            None if now >= standby.next_look => {
                standby.next_look = now + LOOK_EVERY;
                let look = standby.watch.look();
                self.standby_asks(at, look);
            }
            _ => {}
        }
    }

    /// The answer to the request for the place has come.
    fn becomes_active(&mut self, at: usize, sent: Instant, answer: &Answer) {
        let Some(database) = self.turns.database.clone() else { return };
        let Some(process) = self.turns.of[at].standby.as_ref().map(|standby| standby.process) else { return };
        let planted = self.settings.planted.and_then(crate::settings::Bug::of_database);
        let engine = SimEngine::taken(&database, process, (sent, self.clock(at)), answer, planted);
        let Some(engine) = engine else { return };
        self.tell(|| format!("manager {at} has the place"));
        if let Some(loss) = &mut self.turns.loss {
            loss.is_hidden = true;
        }
        self.managers[at].process_epoch += 1;
        (self.turns.of[at].standby, self.turns.of[at].counted) = (None, SimStats::default());
        engine.tick(self.clock(at), self.reaches_database(at));
        let place = Place { engine: Arc::clone(&engine), origin: self.turns.origin };
        let with = (self.managers[at].clock(self.now), self.wall(at), self.rng.random());
        match Manager::start_in(place, at, with, &self.settings) {
            Ok(manager) => {
                self.managers[at].process = Some(manager);
                self.counts.turns += 1;
                self.plan_tick(at);
                self.ask_database(at);
                self.look_at_all();
            }
            Err(error) => {
                self.tell(|| format!("manager {at} does not become active: {error}"));
                self.stands_down(at, &engine, BETWEEN_ATTEMPTS);
            }
        }
    }

    fn plan_tick(&mut self, at: usize) {
        let at = Addr::Manager(at);
        self.events.plan(self.now + TICK, Event::Tick { at, run: self.run_of(at) });
    }

    /// Ends the turn of a manager that must not be active any more.
    pub(super) fn end_turn_if_due(&mut self, at: usize) {
        let now = self.clock(at);
        let Some(place) = self.managers[at].process.as_ref().and_then(Manager::place).cloned() else { return };
        match place.engine.end() {
            // It notes in the database what it knows, if it can, and its process ends.
            Some(DatabaseError::LostTransactions(_)) if place.engine.must_close() => {}
            Some(DatabaseError::LostTransactions(_)) => self.ends_for_good(at, None),
            Some(_) => self.stands_down(at, &place.engine, Duration::ZERO),
            None if self.managers.len() > 1 && place.engine.lease(now).is_over().is_some() => {
                self.stands_down(at, &place.engine, Duration::ZERO);
            }
            None => {}
        }
    }

    fn stands_down(&mut self, at: usize, engine: &Arc<SimEngine>, wait: Duration) {
        self.tell(|| format!("manager {at} is a standby again: {:?}", engine.end()));
        let release = engine.stop(self.clock(at));
        self.managers[at].process = None;
        if let Some(release) = release {
            self.send_to_database(at, release);
        }
        self.managers[at].process_epoch += 1;
        let process = self.rng.random();
        self.turns.start_standby(at, process, self.now + wait);
        self.plan_tick(at);
    }

    /// The process ends, because the database has lost changes.
    fn ends_for_good(&mut self, at: usize, close: Option<Request>) {
        self.tell(|| format!("manager {at} ends: the database has lost changes"));
        if let (Some(request), Some(database)) = (close, &self.turns.database) {
            database.lock().serve(Sent { number: 0, server: None, request });
        }
        if self.turns.loss.is_none() && !self.turns.may_be_said {
            self.wrong(Err(format!("manager {at} says that the database has lost changes, and it has not")));
        } else if self.turns.loss.is_none() {
            self.counts.losses_of_database += 1;
            self.turns.loss = Some(Loss { batches: 0, is_hidden: true });
            self.events.plan(self.now + SAID_WITHIN, Event::End);
        }
        self.managers[at].process = None;
        self.turns.of[at].standby = None;
        self.turns.of[at].has_ended = true;
    }

    /// The database, or the way to it, fails in one of many ways.
    pub(super) fn database_fails(&mut self) {
        let Some(database) = self.turns.database.clone().filter(|_| !self.turns.has_lost()) else { return };
        let kind = self.rng.random_range(0..7);
        let away = Duration::from_millis(self.rng.random_range(0..if kind < 2 { 12_000 } else { 2000 }));
        let times = self.rng.random_range(1..8);
        let loses = self.settings.faults.loses_transactions && self.now > self.settings.duration / 4;
        self.counts.database_faults += 1;
        self.tell(|| format!("the database fails: kind {kind}, {times}, away for {away:?}"));
        match kind {
            0 | 1 => self.turns.away_until = self.now + away,
            2 => database.lock().break_connections(),
            3 => database.lock().collide(times),
            4..6 if loses => {
                let had = {
                    let database = database.lock();
                    (database.process(), database.batch())
                };
                database.lock().fail_over(usize::try_from(times).unwrap_or(1));
                self.turns.away_until = self.now + away;
                self.look_at_loss(&database, &had);
            }
            _ => {
                database.lock().fail_over(0);
                self.turns.away_until = self.now + away;
            }
        }
    }

    /// `had`: who had the place before the failover, and the last batch then.
    fn look_at_loss(&mut self, database: &Mutex<SimDatabase>, had: &(Vec<u8>, i64)) {
        let batches = self.turns.acknowledged - database.lock().batch();
        let has = {
            let database = database.lock();
            (database.process(), database.batch())
        };
        if batches <= 0 && has.0 == had.0 {
            // A batch that nobody has acknowledged may be lost. A standby that has seen it says so all the same.
            self.turns.may_be_said |= has.1 < had.1;
            return;
        }
        self.tell(|| format!("the database has lost {batches} acknowledged batches"));
        self.counts.losses_of_database += 1;
        let away_until = self.turns.away_until;
        // Whoever knows of them must have the chance to say so.
        self.turns.mend();
        self.turns.away_until = away_until;
        self.turns.loss = Some(Loss { batches, is_hidden: batches <= 0 });
        self.events.plan(self.now + SAID_WITHIN, Event::End);
    }

    /// A manager stands still, or cannot reach the database.
    pub(super) fn manager_stalls(&mut self) {
        if self.turns.has_lost() {
            return;
        }
        let at = self.any_manager();
        let until = self.now + Duration::from_millis(self.rng.random_range(300..12_000));
        self.counts.stalls += 1;
        if self.rng.random_ratio(1, 2) {
            self.tell(|| format!("manager {at} stands still until {until:?}"));
            self.turns.of[at].still_until = until;
        } else {
            self.tell(|| format!("manager {at} does not reach the database until {until:?}"));
            self.turns.of[at].cut_until = until;
        }
    }

    /// The end of a run in which the database has lost changes.
    pub(super) fn finish_after_loss(&mut self) {
        let (Some(loss), Some(database)) = (self.turns.loss, self.turns.database.clone()) else { return };
        if database.lock().closed().is_some() {
            self.counts.said_losses += 1;
        } else if loss.is_hidden {
            self.counts.hidden_losses += 1;
        } else {
            let what = format!("the database has lost {} acknowledged batches, and nobody says so", loss.batches);
            self.trouble.get_or_insert(what);
        }
    }
}
