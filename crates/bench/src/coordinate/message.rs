//! What a coordinator and its agents say to each other: work with all its parameters, and what came of it. There is no message that
//! names a command, or a path that the campaign does not.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::campaign::Phase;
use crate::load::{Reading, Tally};
use crate::network::Outcome;
use crate::result::Caches;
use crate::sampling::{Sample, Settings};

/// A folder on a system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {
    /// The directories that the campaign names, by path or URL; files are spread over several.
    pub places: Vec<String>,
    /// The trial's own folder in each.
    pub folder: String,
}

/// The far side of flows. Agents have the token that it asks for: it is the one by which they have joined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarSide {
    /// The name of the system that it stands beside.
    pub system: String,
    /// `HOST:PORT`.
    pub address: String,
    /// `HOST:PORT` of the `iperf3 -s` beside it.
    pub iperf3: String,
}

/// A share of a phase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Which phase of this campaign it is, counted from 1 by the coordinator.
    pub run: u64,
    /// What is done.
    pub phase: Phase,
    /// The parts that this agent does.
    pub parts: Range<u32>,
    /// Where; `None`: with no system.
    pub home: Option<Home>,
    /// Where copies go, if some are made.
    pub copies: Option<Home>,
    /// Far sides of the flows that the phase is about.
    pub peers: Vec<FarSide>,
    /// Names of processes on a client that do a part of the work there, as that of a FUSE mount does.
    pub client_processes: Vec<String>,
    /// Seed of contents.
    pub seed: u64,
    /// Seconds that it may take.
    pub limit_s: Option<f64>,
}

/// What a coordinator says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// What does your clock say?
    Clock {
        /// Which question.
        number: u64,
    },
    /// Get ready for this.
    Prepare(Box<Task>),
    /// Begin when your clock says so.
    Start {
        /// Which phase.
        run: u64,
        /// Microseconds since 1970.
        at_us: u64,
    },
    /// End what you do, and tell what came of it.
    Stop {
        /// Which phase.
        run: u64,
    },
    /// To one who watches: tell now what happened since you last told.
    Sample {
        /// Which question.
        number: u64,
    },
    /// There is nothing more to do.
    Leave {
        /// Why, for people.
        why: String,
    },
}

/// What one role of an agent's share came to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleDone {
    /// Its name.
    pub role: String,
    /// From the common start to the end of its last worker here, in seconds.
    pub wall_s: f64,
    /// What its workers did.
    pub tally: Tally,
    /// Done since the last second that was told of.
    pub rest: Reading,
    /// Workers that did nothing, and why.
    pub idle_workers: Vec<String>,
}

/// What an agent says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tell {
    /// What its clock says.
    Clock {
        /// Which question it answers.
        number: u64,
        /// Microseconds since 1970.
        at_us: u64,
    },
    /// All workers are ready.
    Prepared {
        /// Which phase.
        run: u64,
        /// What could come from a memory.
        caches: Caches,
    },
    /// It cannot do this.
    Refused {
        /// Which phase.
        run: u64,
        /// Why.
        why: String,
    },
    /// One second of work.
    Second {
        /// Which phase.
        run: u64,
        /// Which second of it, from 0.
        number: u32,
        /// What was done in it, role by role.
        roles: Vec<(String, Reading)>,
        /// What the machine did.
        sample: Sample,
    },
    /// Its share is done, or was stopped.
    Done {
        /// Which phase.
        run: u64,
        /// Role by role.
        roles: Vec<RoleDone>,
        /// CPU time of its process, user and system, in seconds.
        cpu_s: f64,
        /// The system's part of that.
        system_s: f64,
        /// What the machine did since the last second.
        sample: Sample,
    },
    /// Settings of its machine; those that it has told before and does not name are as they were.
    Settings {
        /// What may explain why it is faster or slower than another.
        settings: Settings,
    },
    /// One second of a machine that is watched.
    Watched {
        /// The question that it answers; `None`: a second was over.
        number: Option<u64>,
        /// What the machine did.
        sample: Sample,
    },
}

/// Roles of one phase.
const ROLES_MAX: usize = 16;
/// Names of roles, devices and the like.
const NAME_BYTES_MAX: usize = 128;
/// Flows of one phase.
const FLOWS_MAX: usize = 1 << 16;
/// Devices of one kind, or processes.
const DEVICES_MAX: usize = 4096;
/// Settings of one machine: some dozens, and some for each interface, disk and place.
const SETTINGS_MAX: usize = 4096;
/// Texts of workers that did nothing; an agent tells no more.
pub(crate) const IDLE_MAX: usize = 20;
/// Bytes of a text in words.
pub(crate) const TEXT_BYTES_MAX: usize = 2000;
/// Beyond this counts are no longer exact as figures.
const COUNT_MAX: u64 = 1 << 53;
/// Ten years.
const SECONDS_MAX: f64 = 3.2e8;
/// Processors that a process can use.
const CORES_MAX: f64 = 1e6;

impl Tell {
    /// Whether an agent can have meant it: the connection carries no more than so many bytes, but what is kept and added up has bounds of
    /// its own.
    ///
    /// # Errors
    /// What is wrong with it.
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
        let ended = [tally.missed, tally.lost, tally.cut, tally.left_out];
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

/// What is printed of flows, and added up.
fn check_outcome(outcome: &Outcome) -> Result<(), &'static str> {
    let is_name = |name: &String| name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    let sides = [&outcome.near, &outcome.far];
    let devices = sides.iter().flat_map(|side| side.counts.interfaces.keys().chain([&side.interface]));
    said(devices.clone().count() <= DEVICES_MAX, "too many interfaces")?;
    let mut names = devices.chain([&outcome.system, &outcome.peer]);
    said(names.all(is_name), "a name of flows that is none")?;
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
    said(settings.iter().all(|(name, value)| is_text(name) && is_text(value)), "a setting that is no short text")
}

/// A text that is not too long for a message.
#[must_use]
pub fn short(text: &str) -> String {
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= TEXT_BYTES_MAX).last();
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::network::Side;

    fn done(change: impl FnOnce(&mut RoleDone)) -> Tell {
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
        Tell::Done { run: 1, roles: vec![role], cpu_s: 0.1, system_s: 0.0, sample: Sample::default() }
    }

    #[test]
    fn what_nobody_can_mean_is_refused() {
        assert_eq!(done(|_| {}).check(), Ok(()));
        let wrong: [(&str, Tell); 7] = [
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
            let mut near = Side { interface: interface.into(), ..Side::default() };
            near.counts.udp_receive_dropped = lost;
            let ways = Vec::new();
            let outcome = Outcome { system: "s".into(), peer: "h:1".into(), near, far: Side::default(), ways };
            done(|role| role.tally.network.push(outcome))
        };
        assert_eq!(flows("eth0", 7).check(), Ok(()));
        assert!(flows("\x1b[2J", 7).check().unwrap_err().contains("name"));
        assert!(flows("eth0", u64::MAX).check().unwrap_err().contains("counts"));
        let sample = Sample { processes: (0..5000).map(|id| (id, 0.0)).collect(), ..Sample::default() };
        assert!(Tell::Watched { number: None, sample }.check().is_err());
        let settings = |name: String, value: String| Tell::Settings { settings: [(name, value)].into() };
        assert_eq!(settings("kernel".into(), "6.1".into()).check(), Ok(()));
        assert!(settings("x".repeat(3000), String::new()).check().is_err());
        assert!(settings("kernel".into(), "\x1b[2J".into()).check().is_err());
        let settings = (0..5000).map(|number| (number.to_string(), String::new())).collect();
        assert!(Tell::Settings { settings }.check().unwrap_err().contains("too many"));
        let roles = vec![(String::new(), Reading::default()); 100];
        assert!(Tell::Second { run: 1, number: 0, roles, sample: Sample::default() }.check().is_err());
    }

    #[test]
    fn texts_are_cut_where_characters_end() {
        let text = "ä".repeat(1500);
        assert_eq!(short(&text).len(), TEXT_BYTES_MAX);
        assert_eq!(short("a"), "a");
        assert_eq!(short(""), "");
    }
}
