//! One phase on all agents: plan, prepared, start, deltas of each second, done; and its result.

use std::collections::BTreeMap;
use std::time::Duration;

use super::PeerId;
use super::clock::Offset;
use super::message::{AgentMessage, CoordinatorMessage, RoleDone, Task};
use crate::load::{HISTORY_MAX, History, Reading, Tally};
use crate::measure::Measured;
use crate::result::{AgentRecord, AgentRole, Caches, ServerRecord};
use crate::sampling::Series;

/// How long an agent may take to prepare. It makes its connections in that time.
pub(super) const PREPARE_MAX: Duration = Duration::from_secs(300);
/// How long an agent may take to stop.
pub(super) const STOP_MAX: Duration = Duration::from_secs(60);
/// The time for the start message to reach all agents, in addition to their round trips.
const LEAD: Duration = Duration::from_millis(100);
const LEAD_MAX: Duration = Duration::from_secs(2);
/// The most history entries of all members together, for one role: some tens of megabytes.
const HISTORIES_MAX: usize = 2_000_000;
/// How many seconds an agent may report beyond those that have passed, because its seconds are not exact.
const EARLY_SECONDS: u64 = 5;

/// The result of a phase.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The results of each role, all agents together.
    pub roles: Vec<(String, Measured)>,
    /// Which data may come from a cache of any agent.
    pub caches: Caches,
    /// The record of each agent.
    pub agents: Vec<AgentRecord>,
    /// The activity of servers meanwhile.
    pub servers: Vec<ServerRecord>,
    /// The names of agents whose share is missing, with the reason.
    pub missing: Vec<String>,
    /// Why the phase could not be done, if so.
    pub refused: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Preparing { since: Duration },
    Starting { at: Duration },
    Stopping { since: Duration },
}

#[derive(Debug)]
struct Done {
    roles: Vec<RoleDone>,
    cpu_s: f64,
    system_s: f64,
}

#[derive(Debug)]
struct Member {
    name: String,
    /// The number of parts that it does.
    parts: u32,
    prepared: Option<Caches>,
    seconds: u32,
    /// For each role, its work at the end of each second, and its work so far.
    histories: BTreeMap<String, (History, Reading)>,
    series: Series,
    offset: Option<Offset>,
    done: Option<Done>,
}

/// A phase under way.
#[derive(Debug)]
pub(super) struct Round {
    run: u64,
    step: Step,
    members: BTreeMap<PeerId, Member>,
    missing: Vec<String>,
    refused: Option<String>,
    done: Reading,
    /// The most history entries of a member, for one role.
    history_max: usize,
}

impl Round {
    /// Gives each agent its share. `missing`: agents that should have been present.
    pub(super) fn begin(
        run: u64,
        now: Duration,
        shares: Vec<(PeerId, String, Task)>,
        missing: Vec<String>,
        samples_max: usize,
        mut ask: impl FnMut(PeerId, CoordinatorMessage),
    ) -> Self {
        let history_max = (HISTORIES_MAX / shares.len().max(1)).clamp(60, HISTORY_MAX);
        let mut members = BTreeMap::new();
        for (peer, name, task) in shares {
            let series = Series::new(samples_max);
            let histories = BTreeMap::new();
            let parts = task.parts.end.saturating_sub(task.parts.start);
            let member =
                Member { name, parts, prepared: None, seconds: 0, histories, series, offset: None, done: None };
            members.insert(peer, member);
            ask(peer, CoordinatorMessage::Prepare(Box::new(task)));
        }
        let step = Step::Preparing { since: now };
        Self { run, step, members, missing, refused: None, done: Reading::default(), history_max }
    }

    /// Handles a member's message. A late message of an earlier phase is ignored.
    ///
    /// # Errors
    /// The message makes no sense. The coordinator must not trust this agent any further.
    pub(super) fn told(&mut self, from: PeerId, tell: AgentMessage, now: Duration) -> Result<(), &'static str> {
        let run = match &tell {
            AgentMessage::Prepared { run, .. }
            | AgentMessage::Refused { run, .. }
            | AgentMessage::Second { run, .. }
            | AgentMessage::Done { run, .. } => *run,
            AgentMessage::Clock { .. } | AgentMessage::Watched { .. } | AgentMessage::Settings { .. } => return Ok(()),
        };
        if run < self.run {
            return Ok(());
        }
        let passed = match self.step {
            Step::Starting { at } => Some(now.saturating_sub(at).as_secs()),
            Step::Stopping { .. } => Some(u64::MAX),
            Step::Preparing { .. } => None,
        };
        let Some(member) = self.members.get_mut(&from).filter(|member| run == self.run && member.done.is_none()) else {
            return Err("reported work that is not its own");
        };
        match tell {
            AgentMessage::Prepared { caches, .. } if member.prepared.is_none() => member.prepared = Some(caches),
            AgentMessage::Prepared { .. } => return Err("reported twice that it is ready"),
            AgentMessage::Refused { why, .. } => {
                let why = format!("{}: {why}", member.name);
                self.refused.get_or_insert(why);
            }
            AgentMessage::Second { number, roles, sample, .. } => {
                let passed = passed.ok_or("reported seconds before the start")?;
                if number != member.seconds || u64::from(number) > passed.saturating_add(EARLY_SECONDS) {
                    return Err("reported a second that was not due");
                }
                member.series.push(sample);
                let done: Reading = roles.iter().map(|(_, reading)| *reading).sum();
                member.second(roles, self.history_max);
                self.done = [self.done, done].into_iter().sum();
            }
            AgentMessage::Done { roles, cpu_s, system_s, sample, .. } => {
                passed.ok_or("reported its end before the start")?;
                member.series.push(sample);
                for role in &roles {
                    member.add(&role.role, role.rest, self.history_max);
                    self.done = [self.done, role.rest].into_iter().sum();
                }
                member.done = Some(Done { roles, cpu_s, system_s });
            }
            AgentMessage::Clock { .. } | AgentMessage::Watched { .. } | AgentMessage::Settings { .. } => {}
        }
        Ok(())
    }

    /// A member is lost, with everything that it has reported. The others continue: their files are their own, and
    /// the result covers their work.
    pub(super) fn lost(&mut self, who: PeerId, why: &str) {
        if self.members.get(&who).is_some_and(|member| member.done.is_none())
            && let Some(member) = self.members.remove(&who)
        {
            self.missing.push(format!("{} ({why})", member.name));
        }
    }

    /// Starts all members, when all are prepared. `offset_of` returns how far a member's clock is ahead, if known.
    pub(super) fn start(
        &mut self,
        now: Duration,
        offset_of: impl Fn(PeerId) -> Option<Offset>,
        mut ask: impl FnMut(PeerId, CoordinatorMessage),
    ) -> Option<Duration> {
        if !matches!(self.step, Step::Preparing { .. }) || self.refused.is_some() || self.members.is_empty() {
            return None;
        }
        let mut longest = Duration::ZERO;
        for (peer, member) in &mut self.members {
            member.prepared?;
            let offset = offset_of(*peer)?;
            longest = longest.max(offset.round_trip);
            member.offset = Some(offset);
        }
        let at = now + (LEAD + 2 * longest).min(LEAD_MAX);
        self.step = Step::Starting { at };
        for (peer, member) in &self.members {
            let there = member.offset.map_or(at, |offset| offset.there(at));
            ask(
                *peer,
                CoordinatorMessage::Start {
                    run: self.run,
                    at_us: u64::try_from(there.as_micros()).unwrap_or(u64::MAX),
                },
            );
        }
        Some(at)
    }

    /// Ends the phase early. The agents' work until then is its result.
    pub(super) fn stop(&mut self, now: Duration, why: &str, mut ask: impl FnMut(PeerId, CoordinatorMessage)) {
        if matches!(self.step, Step::Preparing { .. }) {
            self.refused.get_or_insert_with(|| why.to_owned());
        }
        self.call_off(&mut ask);
        self.step = Step::Stopping { since: now };
    }

    fn call_off(&self, ask: &mut impl FnMut(PeerId, CoordinatorMessage)) {
        for (peer, _) in self.members.iter().filter(|(_, member)| member.done.is_none()) {
            ask(*peer, CoordinatorMessage::Stop { run: self.run });
        }
    }

    /// Whether all results have arrived. If an agent refused the phase, it is called off for all.
    pub(super) fn is_over(&self, mut ask: impl FnMut(PeerId, CoordinatorMessage)) -> bool {
        if self.refused.is_some() {
            self.call_off(&mut ask);
            return true;
        }
        self.members.values().all(|member| member.done.is_some())
    }

    /// Returns members that take too long to prepare or to stop.
    pub(super) fn slow(&self, now: Duration) -> Vec<(PeerId, &'static str)> {
        let late = |since: Duration, max: Duration| now.saturating_sub(since) >= max;
        let is_slow = |member: &Member| match self.step {
            Step::Preparing { since } => {
                (member.prepared.is_none() && late(since, PREPARE_MAX)).then_some("was not ready after five minutes")
            }
            Step::Stopping { since } => {
                (member.done.is_none() && late(since, STOP_MAX)).then_some("did not stop within a minute")
            }
            Step::Starting { .. } => None,
        };
        self.members.iter().filter_map(|(peer, member)| Some((*peer, is_slow(member)?))).collect()
    }

    /// Returns the work of all members so far.
    pub(super) fn done(&self) -> Reading {
        self.done
    }

    /// Returns when the work began.
    pub(super) fn started(&self) -> Option<Duration> {
        match self.step {
            Step::Starting { at } => Some(at),
            Step::Preparing { .. } | Step::Stopping { .. } => None,
        }
    }

    /// Returns the result.
    pub(super) fn into_outcome(self, servers: Vec<ServerRecord>) -> Outcome {
        let caches = self.members.values().filter_map(|member| member.prepared);
        let caches = caches.max_by_key(|caches| match caches {
            Caches::Kept => 0,
            Caches::Dropped => 1,
            Caches::Unknown => 2,
        });
        let mut outcome = Outcome {
            roles: Vec::new(),
            caches: caches.unwrap_or(Caches::Kept),
            agents: Vec::new(),
            servers,
            missing: self.missing,
            refused: self.refused,
        };
        let mut histories: BTreeMap<String, Vec<(History, Reading)>> = BTreeMap::new();
        let mut members: Vec<Member> = self.members.into_values().collect();
        members.sort_by(|one, other| one.name.cmp(&other.name));
        for member in members {
            let Some(done) = member.done else { continue };
            let offset = member.offset.unwrap_or(Offset { ahead_us: 0, round_trip: Duration::ZERO });
            outcome.agents.push(AgentRecord {
                name: member.name.clone(),
                parts: member.parts,
                roles: done.roles.iter().map(AgentRole::of).collect(),
                samples: member.series.into_samples(),
                ahead_us: offset.ahead_us,
                round_trip_us: u64::try_from(offset.round_trip.as_micros()).unwrap_or(u64::MAX),
            });
            for (role, history) in member.histories {
                histories.entry(role).or_default().push(history);
            }
            for role in done.roles {
                let measured = measured_of(&mut outcome.roles, &role.role);
                measured.wall_s = measured.wall_s.max(role.wall_s);
                measured.tally.merge(&role.tally);
                let idle = role.idle_workers.iter().map(|why| format!("{}: {why}", member.name));
                measured.idle_workers.extend(idle);
            }
            if let Some((_, first)) = outcome.roles.first_mut() {
                first.client_cpu_s += done.cpu_s;
                first.client_system_s += done.system_s;
            }
        }
        for (role, measured) in &mut outcome.roles {
            (measured.seconds, measured.second_s) = History::together(histories.remove(role).unwrap_or_default());
        }
        outcome
    }
}

fn measured_of<'a>(roles: &'a mut Vec<(String, Measured)>, role: &str) -> &'a mut Measured {
    let place = roles.iter().position(|(name, _)| name == role).unwrap_or_else(|| {
        let measured = Measured {
            wall_s: 0.0,
            tally: Tally::default(),
            seconds: Vec::new(),
            second_s: 1,
            client_cpu_s: 0.0,
            client_system_s: 0.0,
            client: Vec::new(),
            idle_workers: Vec::new(),
        };
        roles.push((role.to_owned(), measured));
        roles.len() - 1
    });
    &mut roles[place].1
}

impl Member {
    /// Adds the work of its next second.
    fn second(&mut self, roles: Vec<(String, Reading)>, history_max: usize) {
        for (role, reading) in roles {
            self.add(&role, reading, history_max);
        }
        for (history, done) in self.histories.values_mut() {
            history.push(*done);
        }
        self.seconds += 1;
    }

    fn add(&mut self, role: &str, reading: Reading, history_max: usize) {
        if let Some((_, done)) = self.histories.get_mut(role) {
            *done = [*done, reading].into_iter().sum();
            return;
        }
        // The role did nothing in the seconds before.
        let mut history = History::new(history_max);
        (0..self.seconds).for_each(|_| history.push(Reading::default()));
        self.histories.insert(role.to_owned(), (history, reading));
    }
}

impl AgentRole {
    fn of(done: &RoleDone) -> Self {
        Self {
            role: done.role.clone(),
            wall_s: done.wall_s,
            operations: done.tally.operations,
            bytes: done.tally.bytes,
            failures: done.tally.failed(),
        }
    }
}
