//! The settings of a simulation, and its result.

use std::fmt;
use std::time::Duration;

use cluster::LeaseTerms;
use cluster::replication::PlantedBug;

/// How often faults happen: mean intervals in true time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Faults {
    /// Between two ends of a server's process.
    pub server_every: Option<Duration>,
    /// Between two ends of the manager's process.
    pub manager_every: Option<Duration>,
    /// The percentage of these ends that end the whole machine, so that unsynced bytes are lost.
    pub power_percent: u32,
    /// Between two partitions between nodes.
    pub partition_every: Option<Duration>,
    /// Messages in a thousand that arrive twice.
    pub repeats_permille: u32,
    /// Messages in a thousand that arrive late.
    pub late_permille: u32,
    /// Between two disk errors.
    pub disk_error_every: Option<Duration>,
    /// Between two bytes that a disk damages. At the moment of the damage another store has the same object intact.
    pub damage_every: Option<Duration>,
    /// Between two decisions of an administrator: to drain a store, use it again, make it read-only, or remove it as lost.
    pub decision_every: Option<Duration>,
    /// Between two connections that a client loses during a write. It comes back after a while, perhaps too late.
    pub absence_every: Option<Duration>,
    /// Between two changes of a quota, or of a file's owner, mode or ACL. They are no faults themselves.
    pub access_every: Option<Duration>,
}

impl Faults {
    /// No faults.
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
            damage_every: None,
            decision_every: None,
            absence_every: None,
            access_every: None,
        }
    }

    /// All faults but damage, which has a scenario of its own.
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
            damage_every: None,
            decision_every: None,
            absence_every: Some(Duration::from_secs(3)),
            access_every: None,
        }
    }
}

/// A kind of fault that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Errors of a server's disk.
    Disk,
    /// Bytes at rest that change on a server's disk.
    Damage,
    /// Power failures. Without them a process ends only by a kill.
    Power,
    /// Ends of the manager.
    Manager,
    /// Ends of servers.
    Server,
    /// Nodes that cannot reach each other.
    Partition,
    /// Messages between nodes that come late or twice.
    Message,
    /// An administrator's decisions.
    Decision,
    /// Connections that clients lose for a while.
    Absence,
    /// Changes of quotas, owners, modes and ACLs.
    Access,
}

impl Fault {
    /// All kinds, with their names on the command line.
    pub const ALL: [(Self, &str); 10] = [
        (Self::Disk, "disk"),
        (Self::Damage, "damage"),
        (Self::Power, "power"),
        (Self::Manager, "manager"),
        (Self::Server, "server"),
        (Self::Partition, "partition"),
        (Self::Message, "message"),
        (Self::Decision, "decision"),
        (Self::Absence, "absence"),
        (Self::Access, "access"),
    ];

    /// Turns this fault off.
    pub fn leave_out(self, faults: &mut Faults) {
        match self {
            Self::Disk => faults.disk_error_every = None,
            Self::Damage => faults.damage_every = None,
            Self::Power => faults.power_percent = 0,
            Self::Manager => faults.manager_every = None,
            Self::Server => faults.server_every = None,
            Self::Partition => faults.partition_every = None,
            Self::Message => (faults.repeats_permille, faults.late_permille) = (0, 0),
            Self::Decision => faults.decision_every = None,
            Self::Absence => faults.absence_every = None,
            Self::Access => faults.access_every = None,
        }
    }
}

/// The subject of a simulation. The seed decides the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Small, with all faults. The seed also decides sizes.
    Everything,
    /// No faults, and a close waits for all replicas.
    Quiet,
    /// Servers are cut off for long, and readers keep files open. No other faults.
    CutOff,
    /// The manager restarts again and again, so that servers get new sessions. Messages are in transit for long.
    Sessions,
    /// Disks damage bytes at rest, and servers scrub them. Machines fail, too.
    Damage,
    /// Clients fill trees with quotas. Quotas, owners, modes and ACLs change, and the manager often ends.
    Sharing,
}

impl Scenario {
    /// All scenarios, with their names on the command line.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Everything, "everything"),
        (Self::Quiet, "quiet"),
        (Self::CutOff, "cut-off"),
        (Self::Sessions, "sessions"),
        (Self::Damage, "damage"),
        (Self::Sharing, "sharing"),
    ];
}

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A bug of a state machine.
    Machine(PlantedBug),
    /// A bug of the disk server around the machines.
    Shell(disk_server::PlantedBug),
    /// A server confirms a fence and does not keep it.
    FenceNotKept,
    /// A server that deletes a replica deletes another one with it.
    DeletesAnother,
    /// The manager treats each fence as confirmed when it sends it. So a store takes over, or is left out, before the other store has
    /// stopped.
    FenceNotAwaited,
    /// The manager considers a session ended after half of its term.
    TermCutShort,
    /// A server acknowledges bytes that its open write has not reserved.
    ReservationNotAwaited,
    /// The manager answers a change of an owner, a mode, an ACL or a quota before it is durable.
    AccessNotSynced,
}

impl Bug {
    /// All bugs, with their names on the command line.
    pub const ALL: [(Self, &str); 18] = [
        (Self::Machine(PlantedBug::AnswerBeforeReplicas), "answer-before-replicas"),
        (Self::Machine(PlantedBug::AnswerBeforeSync), "answer-before-sync"),
        (Self::Machine(PlantedBug::EpochNotChecked), "epoch-not-checked"),
        (Self::Machine(PlantedBug::LeaseNotChecked), "lease-not-checked"),
        (Self::Machine(PlantedBug::LeftOutSilently), "left-out-silently"),
        (Self::Machine(PlantedBug::EndedOnPrimaryAlone), "ended-on-primary-alone"),
        (Self::Machine(PlantedBug::EndNotAnnounced), "end-not-announced"),
        (Self::FenceNotKept, "fence-not-kept"),
        (Self::Shell(disk_server::PlantedBug::CopyNotMade), "copy-not-made"),
        (Self::Shell(disk_server::PlantedBug::CompleteBeforeSync), "complete-before-sync"),
        (Self::Shell(disk_server::PlantedBug::OldSessionHeard), "old-session-heard"),
        (Self::Shell(disk_server::PlantedBug::TurnSkipped), "turn-skipped"),
        (Self::Shell(disk_server::PlantedBug::CopyShown), "copy-shown"),
        (Self::DeletesAnother, "deletes-another"),
        (Self::FenceNotAwaited, "fence-not-awaited"),
        (Self::TermCutShort, "term-cut-short"),
        (Self::ReservationNotAwaited, "reservation-not-awaited"),
        (Self::AccessNotSynced, "access-not-synced"),
    ];

    /// The planted bug of the state machines.
    pub(crate) fn of_machine(self) -> Option<PlantedBug> {
        match self {
            Self::Machine(planted) => Some(planted),
            _ => None,
        }
    }

    /// The planted bug of the disk server.
    pub(crate) fn of_shell(self) -> Option<disk_server::PlantedBug> {
        match self {
            Self::Shell(planted) => Some(planted),
            _ => None,
        }
    }
}

/// The settings of a simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// The scenario.
    pub scenario: Scenario,
    /// Decides everything that the settings leave open.
    pub seed: u64,
    /// The number of disk servers. Each has one store.
    pub servers: usize,
    /// The number of stores in each group.
    pub replicas: usize,
    /// The number of replicas that a close waits for.
    pub sync: usize,
    /// The number of clients.
    pub clients: usize,
    /// How long the simulation runs before all faults are repaired.
    pub duration: Duration,
    /// The faults.
    pub faults: Faults,
    /// The terms of leases.
    pub terms: LeaseTerms,
    /// How far clocks deviate, in millionths.
    pub drift_ppm: u32,
    /// The planted bug.
    pub planted: Option<Bug>,
    /// Whether to print the events.
    pub is_told: bool,
}

impl Settings {
    /// The settings of a scenario and a seed.
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
            Scenario::Damage => {
                let faults = Faults {
                    server_every: Some(Duration::from_secs(15)),
                    manager_every: Some(Duration::from_secs(30)),
                    damage_every: Some(Duration::from_millis(700)),
                    ..Faults::all()
                };
                // Two replicas in even seeds, three in odd ones.
                Self { faults, replicas: 2 + usize::from(seed % 2 == 1), ..two }
            }
            Scenario::Sharing => {
                let faults = Faults {
                    manager_every: Some(Duration::from_secs(7)),
                    access_every: Some(Duration::from_millis(300)),
                    ..Faults::all()
                };
                Self { faults, clients: 6, ..two }
            }
        }
    }

    /// The command, run in the repository, that repeats the run. If the command line cannot express the settings, the most similar command.
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
        // When stores leave, others must remain.
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

/// Counts of events, which show whether enough happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// All events.
    pub events: u64,
    /// Messages that arrived.
    pub delivered: u64,
    /// Messages that were lost.
    pub lost: u64,
    /// Files that were closed.
    pub closed: u64,
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Reads whose bytes were compared.
    pub reads: u64,
    /// Times that a client returned to the manager for a file.
    pub reopened: u64,
    /// Times that another primary took over.
    pub taken_over: u64,
    /// Times that a store was left out of an open write.
    pub left_out: u64,
    /// Files that their clients abandoned because machines had restarted.
    pub abandoned: u64,
    /// Ends of processes.
    pub kills: u64,
    /// Ends of machines.
    pub power_failures: u64,
    /// Restarts after a power failure that the manager learned of.
    pub booted: u64,
    /// Partitions.
    pub partitions: u64,
    /// Disk errors.
    pub disk_errors: u64,
    /// Bytes at rest that a disk damaged.
    pub damaged: u64,
    /// Damaged replicas that a scrub or a reader found.
    pub found_damaged: u64,
    /// Files of which a change was made on damaged replicas alone, before anybody had found the damage.
    pub hopeless: u64,
    /// Copies that differed from the primary's.
    pub differing: u64,
    /// Missing replicas that were copied.
    pub copied: u64,
    /// Files that were removed.
    pub removed: u64,
    /// Replicas that stores have deleted.
    pub deleted: u64,
    /// Clients that vanished during a write.
    pub vanished: u64,
    /// Clients that lost their connection during a write and came back.
    pub absent: u64,
    /// Clients that came back after their open write had ended.
    pub late: u64,
    /// Open writes that ended without their client.
    pub interrupted: u64,
    /// Times that a store was set to drain.
    pub drained: u64,
    /// Stores that were removed as lost.
    pub lost_stores: u64,
    /// Changes of quotas, owners, modes and ACLs that were acknowledged.
    pub access_changes: u64,
    /// Opens and writes that a quota refused.
    pub over_quota: u64,
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
            abandoned: self.abandoned + other.abandoned,
            kills: self.kills + other.kills,
            power_failures: self.power_failures + other.power_failures,
            booted: self.booted + other.booted,
            partitions: self.partitions + other.partitions,
            disk_errors: self.disk_errors + other.disk_errors,
            damaged: self.damaged + other.damaged,
            found_damaged: self.found_damaged + other.found_damaged,
            hopeless: self.hopeless + other.hopeless,
            differing: self.differing + other.differing,
            copied: self.copied + other.copied,
            removed: self.removed + other.removed,
            deleted: self.deleted + other.deleted,
            vanished: self.vanished + other.vanished,
            absent: self.absent + other.absent,
            late: self.late + other.late,
            interrupted: self.interrupted + other.interrupted,
            drained: self.drained + other.drained,
            lost_stores: self.lost_stores + other.lost_stores,
            access_changes: self.access_changes + other.access_changes,
            over_quota: self.over_quota + other.over_quota,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { events, delivered, lost, closed, writes, reads, reopened, taken_over, left_out, .. } = self;
        let Counts { abandoned, kills, power_failures, partitions, disk_errors, differing, copied, .. } = self;
        let Counts {
            removed,
            deleted,
            vanished,
            absent,
            late,
            interrupted,
            damaged,
            found_damaged,
            hopeless,
            drained,
            lost_stores,
            access_changes,
            over_quota,
            ..
        } = self;
        write!(
            f,
            "{events} events, {delivered} messages and {lost} lost; {closed} files closed, {writes} writes, {reads} reads compared; {reopened} \
             reopened, {taken_over} taken over, {left_out} stores left out, {abandoned} files abandoned, {removed} removed, {deleted} replicas deleted, \
             {vanished} clients gone and {absent} away for a while, {late} of them for too long, {interrupted} open writes ended for them; {kills} kills, {power_failures} power \
             failures, {partitions} partitions, {disk_errors} disk errors, {damaged} bytes damaged, {found_damaged} damaged replicas found, {hopeless} files changed with damaged replicas alone; {differing} copies differed, {copied} made later; {drained} \
             times a store was drained, {lost_stores} removed as lost; {access_changes} changes of quotas and permissions, {over_quota} refusals for quotas"
        )
    }
}
