//! The messages between a coordinator and its agents: work with all its parameters, and its results. No message can
//! name a command, or a path that the campaign does not name.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::campaign::Phase;
use crate::load::{Reading, Tally};
use crate::network::Outcome;
use crate::result::Caches;
use crate::sampling::{Sample, Settings};
use crate::target::AutoWindow;

/// A folder on a system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialFolder {
    /// The directories of the campaign, by path or URL. Files are spread over several.
    pub places: Vec<String>,
    /// The trial's own folder in each of them.
    pub folder: String,
}

/// A network-test server. The agents already have its token: the one with which they joined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerAddress {
    /// The name of its system.
    pub system: String,
    /// `HOST:PORT`.
    pub address: String,
    /// The `HOST:PORT` of the `iperf3 -s` beside it.
    pub iperf3: String,
}

/// A share of a phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The coordinator's number of the phase in this campaign, from 1.
    pub run: u64,
    /// The phase.
    pub phase: Phase,
    /// The parts that this agent does.
    pub parts: Range<u32>,
    /// The folder on the system; `None`: the phase needs no system.
    pub home: Option<TrialFolder>,
    /// The folder for copies, if the phase makes any.
    pub copies: Option<TrialFolder>,
    /// The network-test servers of the phase.
    pub peers: Vec<ServerAddress>,
    /// The names of processes that do a part of the work on a client, such as a FUSE mount.
    pub client_processes: Vec<String>,
    /// The seed of contents.
    pub seed: u64,
    /// The time limit in seconds.
    pub limit_s: Option<f64>,
}

/// A message from the coordinator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoordinatorMessage {
    /// Send your clock's time.
    Clock {
        /// The number of the request.
        number: u64,
    },
    /// Prepare this task.
    Prepare(Box<Task>),
    /// Start at this time of your clock.
    Start {
        /// The phase.
        run: u64,
        /// Microseconds since 1970.
        at_us: u64,
    },
    /// Stop the work, and send its results.
    Stop {
        /// The phase.
        run: u64,
    },
    /// To a watcher: send what happened since your last message.
    Sample {
        /// The number of the request.
        number: u64,
    },
    /// Leave. The work is over.
    Leave {
        /// The reason, for people.
        why: String,
    },
}

/// The result of one role of an agent's share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleDone {
    /// Its name.
    pub role: String,
    /// The seconds from the common start to the end of the role's last worker here.
    pub wall_s: f64,
    /// The work of its workers.
    pub tally: Tally,
    /// The work since the last reported second.
    pub rest: Reading,
    /// The reasons of workers that did nothing.
    pub idle_workers: Vec<String>,
}

/// A message from an agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentMessage {
    /// The time of its clock.
    Clock {
        /// The number of the request.
        number: u64,
        /// Microseconds since 1970.
        at_us: u64,
    },
    /// All workers are ready.
    Prepared {
        /// The phase.
        run: u64,
        /// Which data may come from a cache.
        caches: Caches,
    },
    /// The agent cannot do the task.
    Refused {
        /// The phase.
        run: u64,
        /// The reason.
        why: String,
    },
    /// One second of work.
    Second {
        /// The phase.
        run: u64,
        /// The number of the second, from 0.
        number: u32,
        /// The work in this second, for each role.
        roles: Vec<(String, Reading)>,
        /// The activity of the machine.
        sample: Sample,
    },
    /// The share is done, or was stopped.
    Done {
        /// The phase.
        run: u64,
        /// The results of each role.
        roles: Vec<RoleDone>,
        /// The user and system CPU time of its process, in seconds.
        cpu_s: f64,
        /// The system CPU time of its process, in seconds.
        system_s: f64,
        /// The activity of the machine since the last second.
        sample: Sample,
    },
    /// Settings of the agent's machine. Settings that it has sent before and omits now are unchanged.
    Settings {
        /// Settings that may explain why it is faster or slower than another machine.
        settings: Settings,
    },
    /// One second of a watched machine.
    Watched {
        /// The number of the request; `None`: a second has passed.
        number: Option<u64>,
        /// The activity of the machine.
        sample: Sample,
    },
}

/// The most roles of one phase.
const ROLES_MAX: usize = 16;
/// The most bytes of a name, of a role or device for example.
const NAME_BYTES_MAX: usize = 128;
/// The most flows of one phase.
const FLOWS_MAX: usize = 1 << 16;
/// The most devices of one kind, or processes.
const DEVICES_MAX: usize = 4096;
/// The most settings of one machine: some dozens, and some for each interface, disk and directory.
const SETTINGS_MAX: usize = 4096;
/// The most texts about workers that did nothing. An agent sends no more.
pub(crate) const IDLE_MAX: usize = 20;
/// The most bytes of a readable text.
pub(crate) const TEXT_BYTES_MAX: usize = 2000;
/// Larger counts are not exact as floating-point numbers.
const COUNT_MAX: u64 = 1 << 53;
/// Ten years.
const SECONDS_MAX: f64 = 3.2e8;
/// The most processors that a process can use.
const CORES_MAX: f64 = 1e6;

impl AgentMessage {
    /// Whether an agent can have meant the message. The connection limits the bytes of a message, but stored and
    /// summed values have their own limits.
    ///
    /// # Errors
    /// The text says what is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Clock { .. } | Self::Prepared { .. } => Ok(()),
            Self::Refused { why, .. } => said(why.len() <= TEXT_BYTES_MAX, "a refusal that is too long"),
            Self::Second { roles, sample, .. } => {
                said(roles.len() <= ROLES_MAX, "too many roles")?;
                roles.iter().try_for_each(|(role, reading)| check_role(role, reading))?;
                check_sample(sample)
            }
            Self::Done { roles, cpu_s, system_s, sample, .. } => {
                said(roles.len() <= ROLES_MAX, "too many roles")?;
                said(
                    [cpu_s, system_s].iter().all(|time| (0.0..SECONDS_MAX).contains(*time)),
                    "an impossible CPU time",
                )?;
                roles.iter().try_for_each(RoleDone::check)?;
                check_sample(sample)
            }
            Self::Watched { sample, .. } => check_sample(sample),
            Self::Settings { settings } => check_settings(settings),
        }
    }
}

impl RoleDone {
    fn check(&self) -> Result<(), &'static str> {
        check_role(&self.role, &self.rest)?;
        let tally = &self.tally;
        said(tally.served.len() <= DEVICES_MAX, "too many servers")?;
        let flows = tally.network.iter().map(|outcome| outcome.flows().count()).sum::<usize>();
        said(tally.network.len() <= DEVICES_MAX && flows <= FLOWS_MAX, "too many flows")?;
        tally.network.iter().try_for_each(check_outcome)?;
        let rates = tally.network.iter().flat_map(|outcome| outcome.flows()).map(|flow| flow.seconds);
        said(rates.into_iter().all(|seconds| (0.0..SECONDS_MAX).contains(&seconds)), "a flow of an impossible time")?;
        let bytes = tally.network.iter().flat_map(|outcome| outcome.flows()).map(|flow| flow.bytes.max(flow.sent));
        said(bytes.into_iter().all(|bytes| bytes <= COUNT_MAX), "a flow of impossible counts")?;
        said(tally.served.keys().all(|server| server.len() <= NAME_BYTES_MAX), "the name of a server is too long")?;
        let served = tally.served.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let window = tally.auto_window.unwrap_or(AutoWindow::of(1));
        said((1..=window.most).contains(&window.least), "an impossible window")?;
        let ended = [tally.missed, tally.lost, tally.cut, tally.left_out, window.most];
        let counts = [tally.operations, tally.bytes, tally.verified, tally.wrong, served];
        let failures = tally.failures.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        said(
            counts.into_iter().chain(ended).chain([failures, tally.latency.count()]).all(|count| count <= COUNT_MAX),
            "impossible counts",
        )?;
        said((0.0..SECONDS_MAX).contains(&self.wall_s), "an impossible time")?;
        let texts = tally.complaints.iter().map(|complaint| &complaint.text).chain(&self.idle_workers);
        said(texts.clone().count() <= 2 * IDLE_MAX, "too many complaints")?;
        said(texts.into_iter().all(|text| text.len() <= TEXT_BYTES_MAX), "complaints that are too long")
    }
}

/// Checks the values of flows that are printed and summed.
fn check_outcome(outcome: &Outcome) -> Result<(), &'static str> {
    let is_name = |name: &String| name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    let sides = [&outcome.client, &outcome.server];
    let devices = sides.iter().flat_map(|side| side.counts.interfaces.keys().chain([&side.interface]));
    said(devices.clone().count() <= DEVICES_MAX, "too many interfaces")?;
    let mut names = devices.chain([&outcome.system, &outcome.peer]);
    said(names.all(is_name), "an invalid name of flows")?;
    let losses = sides.iter().flat_map(|side| side.counts.interfaces.values());
    let losses = losses.flat_map(|one| [one.receive_lost, one.send_lost]);
    let in_sockets = sides.iter().map(|side| side.counts.udp_receive_dropped);
    let of_datagrams = outcome.flows().filter_map(|flow| flow.datagrams);
    let datagrams = of_datagrams.flat_map(|of| [of.sent, of.received, of.reordered, of.duplicates]);
    let mut counts = losses.chain(in_sockets).chain(datagrams);
    said(counts.all(|count| count <= COUNT_MAX), "impossible counts of flows")?;
    let mut texts = outcome.flows().flat_map(|flow| &flow.failures);
    said(texts.all(|text| text.len() <= TEXT_BYTES_MAX), "failures of flows that are too long")
}

fn said(is_right: bool, wrong: &'static str) -> Result<(), &'static str> {
    if is_right { Ok(()) } else { Err(wrong) }
}

fn check_role(role: &str, reading: &Reading) -> Result<(), &'static str> {
    said(role.len() <= NAME_BYTES_MAX, "the name of a role is too long")?;
    let counts = [reading.operations, reading.bytes, reading.failures];
    said(counts.iter().all(|count| *count <= COUNT_MAX), "impossible counts")
}

fn check_sample(sample: &Sample) -> Result<(), &'static str> {
    said((0.0..SECONDS_MAX).contains(&sample.seconds), "a sample of an impossible time")?;
    let devices = [sample.interfaces.len(), sample.disks.len(), sample.processes.len()];
    said(devices.iter().all(|devices| *devices <= DEVICES_MAX), "too many devices in a sample")?;
    said(sample.processes.values().all(|cores| (0.0..CORES_MAX).contains(cores)), "an impossible CPU time")?;
    let names = sample.interfaces.keys().chain(sample.disks.keys());
    said(names.into_iter().all(|name| name.len() <= NAME_BYTES_MAX), "the name of a device is too long")
}

/// Whether a machine can have such settings.
pub(super) fn check_settings(settings: &Settings) -> Result<(), &'static str> {
    said(settings.len() <= SETTINGS_MAX, "too many settings")?;
    let is_text = |text: &String| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
    said(settings.iter().all(|(name, value)| is_text(name) && is_text(value)), "a setting that is not a short text")
}

/// Shortens a text to the limit of messages.
#[must_use]
pub fn short(text: &str) -> String {
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= TEXT_BYTES_MAX).last();
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::network::MachineCounters;

    fn done(change: impl FnOnce(&mut RoleDone)) -> AgentMessage {
        let mut tally = Tally { operations: 3, bytes: 12_288, ..Tally::default() };
        tally.add(1, Duration::from_millis(1));
        let mut role = RoleDone {
            role: "record".into(),
            wall_s: 1.5,
            tally,
            rest: Reading::default(),
            idle_workers: vec!["x".into(); 3],
        };
        change(&mut role);
        AgentMessage::Done { run: 1, roles: vec![role], cpu_s: 0.1, system_s: 0.0, sample: Sample::default() }
    }

    #[test]
    fn absurd_values_are_refused() {
        assert_eq!(done(|_| {}).check(), Ok(()));
        let wrong: [(&str, AgentMessage); 7] = [
            ("counts", done(|role| role.tally.bytes = u64::MAX)),
            ("counts", done(|role| role.rest.operations = u64::MAX)),
            ("time", done(|role| role.wall_s = -1.0)),
            ("time", done(|role| role.wall_s = f64::NAN)),
            ("too long", done(|role| role.role = "x".repeat(1000))),
            ("too many", done(|role| role.idle_workers = vec![String::new(); 100])),
            ("too long", done(|role| role.idle_workers = vec!["x".repeat(3000)])),
        ];
        for (what, tell) in wrong {
            assert!(tell.check().unwrap_err().contains(what), "{what}");
        }
        let flows = |interface: &str, lost: u64| {
            let mut client = MachineCounters { interface: interface.into(), ..MachineCounters::default() };
            client.counts.udp_receive_dropped = lost;
            let ways = Vec::new();
            let outcome =
                Outcome { system: "s".into(), peer: "h:1".into(), client, server: MachineCounters::default(), ways };
            done(|role| role.tally.network.push(outcome))
        };
        assert_eq!(flows("eth0", 7).check(), Ok(()));
        assert!(flows("\x1b[2J", 7).check().unwrap_err().contains("name"));
        assert!(flows("eth0", u64::MAX).check().unwrap_err().contains("counts"));
        let sample = Sample { processes: (0..5000).map(|id| (id, 0.0)).collect(), ..Sample::default() };
        assert!(AgentMessage::Watched { number: None, sample }.check().is_err());
        let settings = |name: String, value: String| AgentMessage::Settings { settings: [(name, value)].into() };
        assert_eq!(settings("kernel".into(), "6.1".into()).check(), Ok(()));
        assert!(settings("x".repeat(3000), String::new()).check().is_err());
        assert!(settings("kernel".into(), "\x1b[2J".into()).check().is_err());
        let settings = (0..5000).map(|number| (number.to_string(), String::new())).collect();
        assert!(AgentMessage::Settings { settings }.check().unwrap_err().contains("too many"));
        let roles = vec![(String::new(), Reading::default()); 100];
        assert!(AgentMessage::Second { run: 1, number: 0, roles, sample: Sample::default() }.check().is_err());
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let text = "ä".repeat(1500);
        assert_eq!(short(&text).len(), TEXT_BYTES_MAX);
        assert_eq!(short("a"), "a");
        assert_eq!(short(""), "");
    }
}
