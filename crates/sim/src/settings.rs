//! The settings of a simulation.

use std::time::Duration;

use cluster::LeaseTerms;
use cluster::replication::PlantedBug;
use database::simulated::PlantedBug as InDatabase;

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
    /// Between two faults of the database: it is away, ends all connections, lets commits collide, or fails over.
    pub database_every: Option<Duration>,
    /// Whether a failover may lead to a replica that lacks the last transactions. The run ends soon after that.
    pub loses_transactions: bool,
    /// Between two times that a manager stands still, or cannot reach the database.
    pub stall_every: Option<Duration>,
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
            database_every: None,
            loses_transactions: false,
            stall_every: None,
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
            database_every: None,
            loses_transactions: false,
            stall_every: None,
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
    /// Faults of the database.
    Database,
    /// Failovers of the database that lose transactions.
    Loss,
    /// Managers that stand still, or cannot reach the database.
    Stall,
}

impl Fault {
    /// All kinds, with their names on the command line.
    pub const ALL: [(Self, &str); 13] = [
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
        (Self::Database, "database"),
        (Self::Loss, "loss"),
        (Self::Stall, "stall"),
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
            Self::Database => faults.database_every = None,
            Self::Loss => faults.loses_transactions = false,
            Self::Stall => faults.stall_every = None,
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
    /// One to three managers on a database, which fails in many ways. Managers stand still and are cut off.
    Database,
}

impl Scenario {
    /// All scenarios, with their names on the command line.
    pub const ALL: [(Self, &str); 7] = [
        (Self::Everything, "everything"),
        (Self::Quiet, "quiet"),
        (Self::CutOff, "cut-off"),
        (Self::Sessions, "sessions"),
        (Self::Damage, "damage"),
        (Self::Sharing, "sharing"),
        (Self::Database, "database"),
    ];
}

/// A planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A bug of a state machine.
    Machine(PlantedBug),
    /// A bug of the disk server around the machines.
    Shell(disk_server::PlantedBug),
    /// A bug of a manager's place in its database.
    Database(database::simulated::PlantedBug),
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
    pub const ALL: [(Self, &str); 24] = [
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
        (Self::Database(InDatabase::LeaseFromTheConfirmation), "lease-from-the-confirmation"),
        (Self::Database(InDatabase::TakenWithoutComparing), "taken-without-comparing"),
        (Self::Database(InDatabase::FenceNotRaised), "fence-not-raised"),
        (Self::Database(InDatabase::FenceNotCompared), "fence-not-compared"),
        (Self::Database(InDatabase::RunAgainBlindly), "run-again-blindly"),
        (Self::Database(InDatabase::LowerBatchAccepted), "lower-batch-accepted"),
    ];

    /// The planted bug of the state machines.
    pub(crate) fn of_machine(self) -> Option<PlantedBug> {
        match self {
            Self::Machine(planted) => Some(planted),
            _ => None,
        }
    }

    /// The planted bug of a manager's place in its database.
    pub(crate) fn of_database(self) -> Option<InDatabase> {
        match self {
            Self::Database(planted) => Some(planted),
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
    /// Whether the namespace is in a database.
    pub database: bool,
    /// The number of managers: one without a database.
    pub managers: usize,
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
            Scenario::Database => {
                let faults = Faults {
                    server_every: Some(Duration::from_secs(15)),
                    manager_every: Some(Duration::from_secs(20)),
                    partition_every: Some(Duration::from_secs(8)),
                    disk_error_every: None,
                    database_every: Some(Duration::from_secs(7)),
                    loses_transactions: seed % 4 == 3,
                    stall_every: Some(Duration::from_secs(9)),
                    ..Faults::all()
                };
                let managers = 1 + usize::try_from(seed % 3).unwrap_or(0);
                Self { faults, database: true, managers, ..two }
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
        if self.managers != base.managers {
            words.push_str(&format!(" --managers {}", self.managers));
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
            database: false,
            managers: 1,
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
