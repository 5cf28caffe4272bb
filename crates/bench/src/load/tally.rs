//! The work of one worker, or of several together.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::latency::Latency;
use crate::network::Outcome;
use crate::target::{AutoWindow, Failure, TargetError};

/// The number of failure texts that are kept. The first few show the problem; the rest is only counted.
const COMPLAINTS_MAX: usize = 10;

/// A failure as text.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct FailureText {
    /// Seconds after the start.
    pub at_s: f64,
    /// What was tried and what went wrong.
    pub text: String,
}

/// Work, with its latencies and failures.
#[derive(Clone, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Operations done.
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Bytes that were compared with the written ones.
    pub verified: u64,
    /// The latencies of operations.
    pub latency: Latency,
    /// Failed operations, by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// Reads that returned wrong data.
    pub wrong: u64,
    /// Operations that started later than a detector could have waited.
    #[serde(default)]
    pub missed: u64,
    /// Acknowledged files that are missing.
    #[serde(default)]
    pub lost: u64,
    /// Workers that were stopped before they had finished.
    #[serde(default)]
    pub cut: u64,
    /// Files, parts of files and operations that were left out because an earlier phase was cut short or failed
    /// there.
    #[serde(default)]
    pub left_out: u64,
    /// The bytes that each server moved, by `HOST:PORT`, if the protocol reveals the server.
    #[serde(default)]
    pub served: BTreeMap<String, u64>,
    /// How many requests automatic windows allowed under way on a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_window: Option<AutoWindow>,
    /// The results of network tests, with each system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<Outcome>,
    /// Each job, if workers are jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobTally>,
    /// The first failures in words.
    pub complaints: Vec<FailureText>,
}

/// The result of a job that reads and computes.
#[derive(Clone, Copy, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct JobTally {
    /// The seconds from the common start to its end.
    pub wall_s: f64,
    /// User and system CPU time, including a thread that reads ahead for it.
    pub cpu_s: f64,
    /// The share of that which reading took.
    pub io_cpu_s: f64,
    /// How long it waited for the system.
    pub waited_s: f64,
    /// The processed events.
    pub events: u64,
    /// The bytes that it wanted.
    pub asked: u64,
    /// The bytes that the system sent for that; 0 if that is not known.
    pub moved: u64,
    /// The number of requests.
    pub requests: u64,
    /// The bytes that it processed: uncompressed, if it decompresses.
    pub unpacked: u64,
    /// The processors of its machine.
    pub cores: u32,
    /// Its input is synthetic.
    pub synthetic: bool,
    /// A system that compresses can store its input in at most nine tenths of the space.
    #[serde(default)]
    pub compressible: bool,
    /// How uproot opened the file, if the job was its. uproot does not report the CPU time for reading and the
    /// waiting, which are 0 then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_with: Option<OpenedWith>,
}

/// How uproot opened a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenedWith {
    /// With weir's Python package.
    Weir,
    /// With fsspec-xrootd, over XRootD's own client.
    FsspecXrootd,
    /// By path.
    Path,
    /// Not the same in all jobs: the machines have different packages.
    Several,
}

impl JobTally {
    /// Returns the share of its time in which it computed.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        if self.wall_s > 0.0 { self.cpu_s / self.wall_s } else { 0.0 }
    }
}

impl Tally {
    /// Adds an operation.
    pub fn add(&mut self, bytes: u64, took: Duration) {
        self.operations += 1;
        self.bytes += bytes;
        self.latency.add(took);
    }

    /// Adds a failed operation, `at` after the start.
    pub fn add_failure(&mut self, at: Duration, error: &TargetError) {
        *self.failures.entry(error.failure()).or_default() += 1;
        self.complain(at, error.to_string());
    }

    /// Adds a read that returned wrong data.
    pub fn add_wrong(&mut self, at: Duration, text: String) {
        self.wrong += 1;
        self.complain(at, text);
    }

    /// Adds something acknowledged that is missing.
    pub fn add_lost(&mut self, at: Duration, text: String) {
        self.lost += 1;
        self.complain(at, text);
    }

    /// Adds bytes to the server that moved them, if it is known.
    pub fn add_served(&mut self, server: Option<String>, bytes: u64) {
        if let Some(server) = server {
            *self.served.entry(server).or_default() += bytes;
        }
    }

    /// Notes the window of a file for which it was automatic.
    pub fn add_auto_window(&mut self, requests: usize) {
        self.auto_window = AutoWindow::of_all(self.auto_window.into_iter().chain([AutoWindow::of(requests)]));
    }

    /// Keeps a text, if there is room.
    pub(crate) fn complain(&mut self, at: Duration, text: String) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(FailureText { at_s: at.as_secs_f64(), text });
        }
    }

    /// Returns the number of failed operations.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.verified += other.verified;
        self.latency.merge(&other.latency);
        for (failure, count) in &other.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        self.wrong += other.wrong;
        self.missed += other.missed;
        self.lost += other.lost;
        self.cut += other.cut;
        self.left_out += other.left_out;
        for (server, bytes) in &other.served {
            *self.served.entry(server.clone()).or_default() += bytes;
        }
        self.auto_window = AutoWindow::of_all(self.auto_window.into_iter().chain(other.auto_window));
        self.network.extend(other.network.iter().cloned());
        self.jobs.extend_from_slice(&other.jobs);
        self.complaints.extend(other.complaints.iter().cloned());
        self.complaints.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        self.complaints.truncate(COMPLAINTS_MAX);
    }
}
