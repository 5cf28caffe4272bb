//! What is simulated, and what came of it.

use std::fmt;
use std::time::Duration;

use cluster::LeaseTerms;
use cluster::replication::Planted;

/// How often things go wrong: means, in true time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Faults {
    /// Between two ends of some server's process.
    pub server_every: Option<Duration>,
    /// Between two ends of the manager's process.
    pub manager_every: Option<Duration>,
    /// Of these ends, how many in a hundred are of the whole machine: what was not synced is lost.
    pub power_percent: u32,
    /// Between two times that somebody cannot be reached by somebody.
    pub partition_every: Option<Duration>,
    /// Messages in a thousand that come twice.
    pub repeats_permille: u32,
    /// Messages in a thousand that come late.
    pub late_permille: u32,
    /// Between two disk errors.
    pub disk_error_every: Option<Duration>,
    /// Between two decisions of an administrator: to empty a store, to use it again, only to read from it, to give it up.
    pub decision_every: Option<Duration>,
}

impl Faults {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self {
            server_every: None,
            manager_every: None,
            power_percent: 0,
            partition_every: None,
            repeats_permille: 0,
            late_permille: 0,
            disk_error_every: None,
            decision_every: None,
        }
    }

    /// Everything does.
    #[must_use]
    pub fn all() -> Self {
        Self {
            server_every: Some(Duration::from_secs(8)),
            manager_every: Some(Duration::from_secs(20)),
            power_percent: 30,
            partition_every: Some(Duration::from_secs(5)),
            repeats_permille: 20,
            late_permille: 20,
            disk_error_every: Some(Duration::from_secs(15)),
            decision_every: None,
        }
    }
}

/// A kind of fault that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Errors of a server's disk.
    Disk,
    /// Power failures: processes end as by a kill.
    Power,
    /// Ends of the manager.
    Manager,
    /// Ends of servers.
    Server,
    /// Nodes that do not reach each other.
    Partition,
    /// Messages between nodes that come late or twice.
    Message,
    /// What an administrator decides.
    Decision,
}

impl Fault {
    /// All there are, and how the command line calls them.
    pub const ALL: [(Self, &str); 7] = [
        (Self::Disk, "disk"),
        (Self::Power, "power"),
        (Self::Manager, "manager"),
        (Self::Server, "server"),
        (Self::Partition, "partition"),
        (Self::Message, "message"),
        (Self::Decision, "decision"),
    ];

    /// It does not happen.
    pub fn leave_out(self, faults: &mut Faults) {
        match self {
            Self::Disk => faults.disk_error_every = None,
            Self::Power => faults.power_percent = 0,
            Self::Manager => faults.manager_every = None,
            Self::Server => faults.server_every = None,
            Self::Partition => faults.partition_every = None,
            Self::Message => (faults.repeats_permille, faults.late_permille) = (0, 0),
            Self::Decision => faults.decision_every = None,
        }
    }
}

/// What a simulation is about; the seed decides the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Small, with all faults; the seed decides sizes, too.
    Everything,
    /// Nothing goes wrong, and a close waits for all copies.
    Quiet,
    /// Servers that are cut off for long, readers that hold on to what they have opened, and nothing else.
    CutOff,
    /// Managers that begin again and again, so that servers get other sessions, and messages that are on their way for long.
    Sessions,
}

impl Scenario {
    /// All there are, and how the command line calls them.
    pub const ALL: [(Self, &str); 4] = [
        (Self::Everything, "everything"),
        (Self::Quiet, "quiet"),
        (Self::CutOff, "cut-off"),
        (Self::Sessions, "sessions"),
    ];
}

/// A bug on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// One of the machines.
    Machine(Planted),
    /// One of the disk server around them.
    Shell(disk_server::Planted),
    /// A server says that it keeps a fence, and does not.
    FenceNotKept,
    /// A server that deletes a replica deletes another one with it.
    DeletesAnother,
    /// The manager takes each fence for kept as soon as it has asked for it: somebody takes over, or is left out, before the other has stopped.
    FenceNotAwaited,
    /// The manager takes a session for ended when half of its term is over.
    TermCutShort,
}

impl Bug {
    /// All there are, and how the command line calls them.
    pub const ALL: [(Self, &str); 13] = [
        (Self::Machine(Planted::AnswerBeforeReplicas), "answer-before-replicas"),
        (Self::Machine(Planted::AnswerBeforeSync), "answer-before-sync"),
        (Self::Machine(Planted::EpochNotChecked), "epoch-not-checked"),
        (Self::Machine(Planted::LeaseNotChecked), "lease-not-checked"),
        (Self::Machine(Planted::LeftOutSilently), "left-out-silently"),
        (Self::FenceNotKept, "fence-not-kept"),
        (Self::Shell(disk_server::Planted::CopyNotMade), "copy-not-made"),
        (Self::Shell(disk_server::Planted::CompleteBeforeSync), "complete-before-sync"),
        (Self::Shell(disk_server::Planted::OldSessionHeard), "old-session-heard"),
        (Self::Shell(disk_server::Planted::TurnSkipped), "turn-skipped"),
        (Self::DeletesAnother, "deletes-another"),
        (Self::FenceNotAwaited, "fence-not-awaited"),
        (Self::TermCutShort, "term-cut-short"),
    ];

    /// What the machines are told of it.
    pub(crate) fn of_machine(self) -> Option<Planted> {
        match self {
            Self::Machine(planted) => Some(planted),
            _ => None,
        }
    }

    /// What the disk server is told of it.
    pub(crate) fn of_shell(self) -> Option<disk_server::Planted> {
        match self {
            Self::Shell(planted) => Some(planted),
            _ => None,
        }
    }
}

/// A simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// What it is about.
    pub scenario: Scenario,
    /// Everything follows from it.
    pub seed: u64,
    /// Disk servers, of one store each.
    pub servers: usize,
    /// Stores of each group.
    pub replicas: usize,
    /// Copies that a close waits for.
    pub sync: usize,
    /// Clients.
    pub clients: usize,
    /// How long it goes on before everything is mended.
    pub duration: Duration,
    /// What goes wrong.
    pub faults: Faults,
    /// What leases are.
    pub terms: LeaseTerms,
    /// How wrong clocks really are, in millionths.
    pub drift_ppm: u32,
    /// A bug on purpose.
    pub planted: Option<Bug>,
    /// Prints what happens.
    pub is_told: bool,
}

impl Settings {
    /// As a scenario and a seed have it.
    #[must_use]
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let two = Self { scenario, replicas: 2, sync: 2, ..Self::everything(seed) };
        match scenario {
            Scenario::Everything => Self::everything(seed),
            Scenario::Quiet => Self { faults: Faults::none(), ..two },
            Scenario::CutOff => {
                let faults = Faults { partition_every: Some(Duration::from_millis(1500)), ..Faults::none() };
                Self { faults, clients: 6, duration: Duration::from_secs(120), ..two }
            }
            Scenario::Sessions => {
                let faults = Faults {
                    manager_every: Some(Duration::from_secs(4)),
                    partition_every: Some(Duration::from_secs(2)),
                    repeats_permille: 100,
                    late_permille: 100,
                    ..Faults::none()
                };
                Self { faults, servers: 4, clients: 6, replicas: 3, ..two }
            }
        }
    }

    /// What is to be run, in the repository, for the same run; of settings that no command line can say, the nearest.
    #[must_use]
    pub fn command(&self) -> String {
        let base = Self::new(self.scenario, self.seed);
        let mut words = format!("cargo run -q --release -p weir-sim -- --seed {}", self.seed);
        let scenario = Scenario::ALL.iter().find(|(scenario, _)| *scenario == self.scenario);
        if let Some((_, name)) = scenario.filter(|(scenario, _)| *scenario != Scenario::Everything) {
            words.push_str(&format!(" --scenario {name}"));
        }
        if self.duration != base.duration {
            words.push_str(&format!(" --seconds {}", self.duration.as_secs()));
        }
        for (fault, name) in Fault::ALL {
            let (mut without, mut ours) = (base.faults, self.faults);
            fault.leave_out(&mut without);
            fault.leave_out(&mut ours);
            if without != base.faults && ours == self.faults {
                words.push_str(&format!(" --without {name}"));
            }
        }
        if let Some((_, name)) = Bug::ALL.iter().find(|(bug, _)| Some(*bug) == self.planted) {
            words.push_str(&format!(" --plant {name}"));
        }
        words + " --tell"
    }

    fn everything(seed: u64) -> Self {
        let replicas = 1 + usize::try_from(seed % 3).unwrap_or(0);
        // Where stores come and go there have to be others.
        let (servers, decision_every) = if seed % 2 == 1 { (6, Some(Duration::from_secs(8))) } else { (4, None) };
        Self {
            scenario: Scenario::Everything,
            seed,
            servers,
            replicas,
            sync: replicas.min(2),
            clients: 4,
            duration: Duration::from_secs(60),
            faults: Faults { decision_every, ..Faults::all() },
            terms: LeaseTerms::default(),
            drift_ppm: 5000,
            planted: None,
            is_told: false,
        }
    }
}

/// What happened, to see that something did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Events in all.
    pub events: u64,
    /// Messages that arrived.
    pub delivered: u64,
    /// Messages that did not.
    pub lost: u64,
    /// Files that were closed.
    pub closed: u64,
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Reads whose content was compared.
    pub reads: u64,
    /// Times that a client came back to the manager for a file.
    pub reopened: u64,
    /// Times that another primary took over.
    pub taken_over: u64,
    /// Times that a store was left out of a writing.
    pub left_out: u64,
    /// Files that were given up because machines had begun anew.
    pub removed_as_lost: u64,
    /// Ends of processes.
    pub kills: u64,
    /// Ends of machines.
    pub power_failures: u64,
    /// Times that the manager was told of that.
    pub booted: u64,
    /// Partitions.
    pub partitions: u64,
    /// Disk errors.
    pub disk_errors: u64,
    /// Copies that were not like the primary's.
    pub differing: u64,
    /// Copies that were owed, and made.
    pub copied: u64,
    /// Files that were removed.
    pub removed: u64,
    /// Pieces that stores have deleted.
    pub deleted: u64,
    /// Clients that were gone in the middle of a file.
    pub vanished: u64,
    /// Writings that were ended without their client.
    pub interrupted: u64,
    /// Times that a store was to be emptied.
    pub drained: u64,
    /// Stores that were given up for good.
    pub lost_stores: u64,
}

impl Counts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            closed: self.closed + other.closed,
            writes: self.writes + other.writes,
            reads: self.reads + other.reads,
            reopened: self.reopened + other.reopened,
            taken_over: self.taken_over + other.taken_over,
            left_out: self.left_out + other.left_out,
            removed_as_lost: self.removed_as_lost + other.removed_as_lost,
            kills: self.kills + other.kills,
            power_failures: self.power_failures + other.power_failures,
            booted: self.booted + other.booted,
            partitions: self.partitions + other.partitions,
            disk_errors: self.disk_errors + other.disk_errors,
            differing: self.differing + other.differing,
            copied: self.copied + other.copied,
            removed: self.removed + other.removed,
            deleted: self.deleted + other.deleted,
            vanished: self.vanished + other.vanished,
            interrupted: self.interrupted + other.interrupted,
            drained: self.drained + other.drained,
            lost_stores: self.lost_stores + other.lost_stores,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { events, delivered, lost, closed, writes, reads, reopened, taken_over, left_out, .. } = self;
        let Counts { removed_as_lost, kills, power_failures, partitions, disk_errors, differing, copied, .. } = self;
        let Counts { removed, deleted, vanished, interrupted, drained, lost_stores, .. } = self;
        write!(
            f,
            "{events} events, {delivered} messages and {lost} lost; {closed} files closed, {writes} writes, {reads} reads compared; {reopened} \
             reopened, {taken_over} taken over, {left_out} stores left out, {removed_as_lost} files given up, {removed} removed, {deleted} pieces deleted, \
             {vanished} clients gone, {interrupted} writings ended for them; {kills} kills, {power_failures} power \
             failures, {partitions} partitions, {disk_errors} disk errors; {differing} copies differed, {copied} made later; {drained} \
             times a store was emptied, {lost_stores} given up"
        )
    }
}
