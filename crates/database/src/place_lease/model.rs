//! A randomized model of managers that want one place: clocks that drift, a database that is away at times, requests and answers that are late or lost,
//! and processes that crash, stop, and stand still. It runs the decisions of this module around a row in memory. Deliberate mistakes must be found.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

/// A mistake in what surrounds the decisions, or in the statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// The silence counts from when the look was sent.
    SilenceFromTheQuestion,
    /// The lease counts from when the confirmation arrived.
    LeaseFromTheConfirmation,
    /// Taking the place compares neither the batch nor the beat.
    BatchNotCompared,
    /// Taking the place leaves the fence as it is.
    FenceNotRaised,
    /// Giving the place up leaves the fence as it is.
    ReleaseKeepsFence,
    /// A process that connects again does not look at whose the row is.
    ReturnsToAnyRow,
}

const MANAGERS: usize = 3;
const MILLI: u64 = 1000;
const SECOND: u64 = 1_000_000;
/// Trouble ends here.
const CALM: u64 = 90 * SECOND;
/// Somebody has the place at the latest.
const TAKEN: u64 = CALM + 40 * SECOND;
const END: u64 = TAKEN + 10 * SECOND;

#[derive(Clone, Debug)]
enum Request {
    Look,
    Take(Vacancy),
    /// A batch, or a beat.
    Advance {
        fence: i64,
        batch: i64,
        is_beat: bool,
    },
    Return {
        fence: i64,
    },
    Release {
        fence: i64,
        batch: i64,
    },
}

#[derive(Clone, Debug)]
enum Answer {
    Row(Option<PlaceRow>),
    /// The fence and the batch; `None`: the row is not as it should be.
    Changed(Option<(i64, i64)>),
}

#[derive(Clone, Debug)]
enum Event {
    /// The manager goes on, if nothing has happened since.
    Wake { manager: usize, number: u64 },
    /// A request reaches the database.
    Arrives { manager: usize, number: u64, process: u8, request: Request },
    /// An answer reaches the manager.
    Answered { manager: usize, number: u64, answer: Answer },
    /// Something bad happens.
    Trouble,
}

struct Active {
    fence: i64,
    batch: i64,
    lease: OwnLease,
    /// The outcome of the last change is not known.
    must_return: bool,
}

struct Manager {
    /// How fast its clock runs, in millionths of the true speed.
    speed: u64,
    /// The process. A restart gets another number.
    process: u8,
    silence: Silence,
    active: Option<Active>,
    /// What it waits for: its number, when it was sent, and what it is.
    asked: Option<(u64, Instant, Request)>,
    /// The number of the last request or wait. What belongs to an earlier one is over.
    number: u64,
    /// It does nothing until then, and its clock goes on.
    still_until: u64,
}

struct Model {
    bug: Option<Bug>,
    terms: Terms,
    rng: StdRng,
    origin: Instant,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    made: u64,
    row: Option<PlaceRow>,
    away_until: u64,
    managers: Vec<Manager>,
    processes: u8,
    takes: u32,
}

impl Model {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        // Answers that are far apart are safe, too: that they do not count only keeps the place with a process that was away for a while.
        let gap = if seed.is_multiple_of(2) { Terms::DEFAULT.gap } else { Duration::from_secs(60) };
        let terms = Terms { gap, ..Terms::DEFAULT };
        let mut this = Self {
            bug,
            terms,
            rng: StdRng::seed_from_u64(seed),
            origin: Instant::now(),
            now: 0,
            events: BTreeMap::new(),
            made: 0,
            row: None,
            away_until: 0,
            managers: Vec::new(),
            processes: 0,
            takes: 0,
        };
        for manager in 0..MANAGERS {
            let speed = this.rng.random_range(990_000..=1_010_000);
            this.processes += 1;
            this.managers.push(Manager {
                speed,
                process: this.processes,
                silence: Silence::new(terms),
                active: None,
                asked: None,
                number: 0,
                still_until: 0,
            });
            this.wait(manager, 0);
        }
        this.at(SECOND, Event::Trouble);
        this
    }

    /// The manager's clock.
    fn clock(&self, manager: usize) -> Instant {
        self.origin + Duration::from_micros(self.now * self.managers[manager].speed / SECOND)
    }

    fn at(&mut self, time: u64, event: Event) {
        self.made += 1;
        self.events.insert((time, self.made), event);
    }

    /// How long a message takes. `None`: it is lost.
    fn delay(&mut self) -> Option<u64> {
        let calm = self.now >= CALM;
        match self.rng.random_range(0..100) {
            0..5 if !calm => None,
            5..15 if !calm => Some(self.rng.random_range(0..6 * SECOND)),
            15..35 if !calm => Some(self.rng.random_range(0..2 * SECOND)),
            _ => Some(self.rng.random_range(0..20 * MILLI)),
        }
    }

    fn wait(&mut self, manager: usize, time: u64) {
        let this = &mut self.managers[manager];
        this.number += 1;
        let number = this.number;
        self.at(self.now + time, Event::Wake { manager, number });
    }

    fn ask(&mut self, manager: usize, request: Request) {
        let sent = self.clock(manager);
        let this = &mut self.managers[manager];
        this.number += 1;
        let (number, process) = (this.number, this.process);
        this.asked = Some((number, sent, request.clone()));
        let patience = self.rng.random_range(3 * SECOND..8 * SECOND);
        self.at(self.now + patience, Event::Wake { manager, number });
        if let Some(delay) = self.delay() {
            self.at(self.now + delay, Event::Arrives { manager, number, process, request });
        }
    }

    /// What the database does.
    fn serve(&mut self, process: u8, request: &Request) -> Answer {
        let bug = self.bug;
        let own = vec![process];
        let row = &mut self.row;
        let changed = match (request, row) {
            (Request::Look, row) => return Answer::Row(row.clone()),
            (Request::Take(Vacancy(None)), row) if row.is_none() => {
                *row = Some(PlaceRow { process: own, fence: 1, batch: 0, beat: 0 });
                self.takes += 1;
                Some((1, 0))
            }
            (Request::Take(Vacancy(Some(seen))), Some(row))
                if row.process == seen.process
                    && row.fence == seen.fence
                    && (bug == Some(Bug::BatchNotCompared) || (row.batch, row.beat) == (seen.batch, seen.beat)) =>
            {
                row.process = own;
                row.fence += i64::from(bug != Some(Bug::FenceNotRaised));
                self.takes += 1;
                Some((row.fence, row.batch))
            }
            (Request::Advance { fence, batch, is_beat }, Some(row)) if row.fence == *fence && row.batch == *batch => {
                assert_eq!(row.process, own, "a process has changed the row after another one had taken its place");
                if *is_beat {
                    row.beat += 1
                } else {
                    row.batch += 1
                }
                Some((row.fence, row.batch))
            }
            (Request::Return { fence }, Some(row)) if row.process == own || bug == Some(Bug::ReturnsToAnyRow) => {
                row.fence = row.fence.max(*fence) + 1;
                Some((row.fence, row.batch))
            }
            (Request::Release { fence, batch }, Some(row))
                if row.process == own && row.fence == *fence && row.batch == *batch =>
            {
                row.process.clear();
                row.fence += i64::from(bug != Some(Bug::ReleaseKeepsFence));
                Some((row.fence, row.batch))
            }
            _ => None,
        };
        Answer::Changed(changed)
    }

    /// The process ends, and another one starts.
    fn restart(&mut self, manager: usize) {
        self.processes += 1;
        let this = &mut self.managers[manager];
        (this.process, this.silence, this.active, this.asked) = (self.processes, Silence::new(self.terms), None, None);
        let time = self.rng.random_range(0..3 * SECOND);
        self.wait(manager, time);
    }

    fn trouble(&mut self) {
        let manager = self.rng.random_range(0..MANAGERS);
        match self.rng.random_range(0..6) {
            0 => self.restart(manager),
            1 => {
                let now = self.clock(manager);
                if let Some(active) = &mut self.managers[manager].active {
                    active.lease.end(now);
                    let release = Request::Release { fence: active.fence, batch: active.batch };
                    self.ask(manager, release);
                }
                self.restart(manager);
            }
            2 | 3 => self.managers[manager].still_until = self.now + self.rng.random_range(0..12 * SECOND),
            4 => self.away_until = self.now + self.rng.random_range(0..15 * SECOND),
            _ => {}
        }
        let next = self.rng.random_range(SECOND..8 * SECOND);
        if self.now + next < CALM {
            self.at(self.now + next, Event::Trouble);
        }
    }

    /// The manager does the next thing.
    fn go_on(&mut self, manager: usize) {
        let is_beat = self.rng.random();
        let this = &mut self.managers[manager];
        if let Some((_, _, request)) = this.asked.take() {
            // It has waited for too long.
            match (request, &mut this.active) {
                (Request::Look, _) => this.silence.unanswered(),
                (_, Some(active)) => active.must_return = true,
                _ => {}
            }
        }
        let request = match &self.managers[manager].active {
            None => Request::Look,
            Some(Active { must_return: true, fence, .. }) => Request::Return { fence: *fence },
            Some(Active { fence, batch, .. }) => Request::Advance { fence: *fence, batch: *batch, is_beat },
        };
        self.ask(manager, request);
    }

    fn answered(&mut self, manager: usize, answer: Answer) {
        let (bug, arrived) = (self.bug, self.clock(manager));
        let this = &mut self.managers[manager];
        let Some((_, sent, request)) = this.asked.take() else { return };
        let since = if bug == Some(Bug::SilenceFromTheQuestion) { sent } else { arrived };
        let from = if bug == Some(Bug::LeaseFromTheConfirmation) { arrived } else { sent };
        let between = self.rng.random_range(100 * MILLI..SECOND);
        match (request, answer, &mut this.active) {
            (Request::Look, Answer::Row(row), _) => match this.silence.answered(since, row) {
                Judged::Held { .. } => self.wait(manager, SECOND / 2),
                Judged::Free(vacancy) => self.ask(manager, Request::Take(vacancy)),
                Judged::Lost(_) => panic!("nothing was lost"),
            },
            (Request::Take(_), Answer::Changed(Some((fence, batch))), _) => {
                let lease = OwnLease::new(self.terms, from);
                this.active = Some(Active { fence, batch, lease, must_return: false });
                self.wait(manager, 0);
            }
            (Request::Take(_), ..) => self.wait(manager, SECOND / 2),
            (_, Answer::Changed(Some((fence, batch))), Some(active)) => {
                (active.fence, active.batch, active.must_return) = (fence, batch, false);
                active.lease.confirmed(from);
                self.wait(manager, between);
            }
            // It was taken over.
            _ => {
                (this.active, this.silence) = (None, Silence::new(self.terms));
                self.wait(manager, between);
            }
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Wake { manager, number } | Event::Answered { manager, number, .. }
                if self.managers[manager].number == number && self.managers[manager].still_until > self.now =>
            {
                self.at(self.managers[manager].still_until, event);
            }
            Event::Wake { manager, number } if self.managers[manager].number == number => self.go_on(manager),
            Event::Answered { manager, number, answer } if self.managers[manager].number == number => {
                self.answered(manager, answer);
            }
            // A process that is gone, or has stopped waiting.
            Event::Wake { .. } | Event::Answered { .. } => {}
            Event::Arrives { .. } if self.now < self.away_until => {}
            Event::Arrives { manager, number, process, request } => {
                let answer = self.serve(process, &request);
                if let Some(delay) = self.delay() {
                    self.at(self.now + delay, Event::Answered { manager, number, answer });
                }
            }
            Event::Trouble => self.trouble(),
        }
    }

    fn holders(&self) -> Vec<usize> {
        let holds = |manager: &usize| {
            let active = self.managers[*manager].active.as_ref();
            active.is_some_and(|active| active.lease.at(self.clock(*manager)).is_held())
        };
        (0..MANAGERS).filter(holds).collect()
    }

    /// Runs to the end, and returns how often the place was taken.
    fn run(mut self) -> u32 {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time >= END {
                break;
            }
            self.now = time;
            self.step(event);
            let holders = self.holders();
            assert!(holders.len() <= 1, "managers {holders:?} have a lease at once");
            assert!(time < TAKEN || !holders.is_empty(), "nobody takes the place");
        }
        self.takes
    }
}

/// What the run of a seed found wrong.
fn found(seed: u64, bug: Bug) -> Option<String> {
    let run = std::panic::catch_unwind(|| Model::new(seed, Some(bug)).run());
    let panic = run.err()?;
    panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

const SEEDS: u64 = 1000;

#[test]
fn never_two_have_a_lease_and_somebody_has_one_in_the_end() {
    let takes: u32 = (0..SEEDS).map(|seed| Model::new(seed, None).run()).sum();
    assert!(u64::from(takes) > 2 * SEEDS, "{takes} are so few that nothing was tried");
}

#[test]
fn deliberate_mistakes_are_found() {
    for (bug, what) in [
        (Bug::SilenceFromTheQuestion, "have a lease at once"),
        (Bug::LeaseFromTheConfirmation, "have a lease at once"),
        (Bug::BatchNotCompared, "have a lease at once"),
        (Bug::FenceNotRaised, "after another one had taken its place"),
        (Bug::ReleaseKeepsFence, "after another one had taken its place"),
        (Bug::ReturnsToAnyRow, "have a lease at once"),
    ] {
        let seen = (0..SEEDS).filter_map(|seed| found(seed, bug)).any(|said| said.contains(what));
        assert!(seen, "{bug:?} was not found");
    }
}
