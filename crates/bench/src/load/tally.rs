//! What a worker, or several together, did.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::latency::Latency;
use crate::network::Outcome;
use crate::target::{Failure, TargetError};

/// Texts of failures that are kept: the first few say what is wrong, the rest is counted.
const COMPLAINTS_MAX: usize = 10;

/// A failure in words, with the time since the start.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Complaint {
    /// Seconds after the start.
    pub at_s: f64,
    /// What was tried and what went wrong.
    pub text: String,
}

/// What was done, and how long it took.
#[derive(Clone, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Operations done.
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Bytes that were compared with what had been written.
    pub verified: u64,
    /// How long operations took.
    pub latency: Latency,
    /// Operations that failed, by what was wrong.
    pub failures: BTreeMap<Failure, u64>,
    /// Reads that brought wrong data.
    pub wrong: u64,
    /// Operations that began later than a detector could have waited.
    #[serde(default)]
    pub missed: u64,
    /// What had been acknowledged and is not there any more.
    #[serde(default)]
    pub lost: u64,
    /// Workers that were ended before they had done all of theirs.
    #[serde(default)]
    pub cut: u64,
    /// What was not done because a phase before was cut or has failed there: files, or parts of some, and operations on them.
    #[serde(default)]
    pub left_out: u64,
    /// Bytes that each server moved, as `HOST:PORT`, where the protocol tells.
    #[serde(default)]
    pub served: BTreeMap<String, u64>,
    /// What flows over the network came to, with each system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<Outcome>,
    /// Jobs, each by itself, where workers are jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobTally>,
    /// The first failures in words.
    pub complaints: Vec<Complaint>,
}

/// What a job came to that reads and computes.
#[derive(Clone, Copy, PartialEq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct JobTally {
    /// From the common start to its end, in seconds.
    pub wall_s: f64,
    /// CPU time, user and system, with that of a thread that reads ahead for it.
    pub cpu_s: f64,
    /// The part of that which reading took.
    pub io_cpu_s: f64,
    /// How long it waited for the system.
    pub waited_s: f64,
    /// Events that it has done.
    pub events: u64,
    /// Bytes that it wanted.
    pub asked: u64,
    /// Bytes that came for that from the system.
    pub moved: u64,
    /// Requests that it took.
    pub requests: u64,
    /// Bytes that it worked on: uncompressed, if it decompresses.
    pub unpacked: u64,
    /// Processors of its machine.
    pub cores: u32,
    /// What it read is made up.
    pub synthetic: bool,
    /// A system that compresses what it stores has what it read in a tenth less, or in even less than that.
    #[serde(default)]
    pub compressible: bool,
}

impl JobTally {
    /// The share of its time in which it computed.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        if self.wall_s > 0.0 { self.cpu_s / self.wall_s } else { 0.0 }
    }
}

impl Tally {
    /// Counts an operation in.
    pub fn add(&mut self, bytes: u64, took: Duration) {
        self.operations += 1;
        self.bytes += bytes;
        self.latency.add(took);
    }

    /// Counts one that failed, `at` after the start.
    pub fn add_failure(&mut self, at: Duration, error: &TargetError) {
        *self.failures.entry(error.failure()).or_default() += 1;
        self.complain(at, error.to_string());
    }

    /// Counts a read that brought wrong data.
    pub fn add_wrong(&mut self, at: Duration, text: String) {
        self.wrong += 1;
        self.complain(at, text);
    }

    /// Counts something in that was acknowledged and is not there any more.
    pub fn add_lost(&mut self, at: Duration, text: String) {
        self.lost += 1;
        self.complain(at, text);
    }

    /// Counts bytes for the server that moved them, if it is known.
    pub fn add_served(&mut self, server: Option<String>, bytes: u64) {
        if let Some(server) = server {
            *self.served.entry(server).or_default() += bytes;
        }
    }

    /// Keeps what is to be said of something, if there is room.
    pub(crate) fn complain(&mut self, at: Duration, text: String) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(Complaint { at_s: at.as_secs_f64(), text });
        }
    }

    /// Operations that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Counts all of `other` in.
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
        self.network.extend(other.network.iter().cloned());
        self.jobs.extend_from_slice(&other.jobs);
        self.complaints.extend(other.complaints.iter().cloned());
        self.complaints.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        self.complaints.truncate(COMPLAINTS_MAX);
    }
}
