//! Other tools on the same work, so that the bench's own figures can be compared: fio by path, xrdcp by `root://`.
//! fio's results are its own figures. xrdcp's results are the elapsed time and the files that exist afterwards.
//! Network tests by another tool are in [`iperf3`].

mod fio;
mod iperf3;
mod tool;
mod xrdcp;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use iperf3::{FlowTool, ForeignFlowsSpec, Iperf3Server};

use super::access::Access;
use super::kind::{Names, Site, Unit, WorkError, Workload, word_of};
use super::stream::StreamSpec;
use crate::latency::Latency;
use crate::load::{Tally, Worker, WorkerPool};
use crate::target::{IoOptions, RelName, Target, TargetError};

/// Another tool for streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// fio, by path.
    Fio,
    /// xrdcp to and from a file in memory, by `root://`.
    Xrdcp,
}

/// Another tool's streams.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignSpec {
    /// The tool.
    pub tool: Tool,
    /// The work, whose streams are the tool's jobs or processes.
    pub work: StreamSpec,
}

/// The tool cannot do the work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ForeignError {
    /// The tool does not support the pattern.
    #[error("{tool:?} does not support {access:?}; remove `beside`, or the phase")]
    Pattern {
        /// The tool.
        tool: Tool,
        /// The pattern.
        access: Access,
    },
    /// The tool does not support these options of files.
    #[error("{tool:?} does not support several chunks of a file at a time, or a rate; remove `beside`")]
    IoOptions {
        /// The tool.
        tool: Tool,
    },
    /// The tool does not support these flows.
    #[error("{} does not support {what}; remove `beside`, or put this into its own section", word_of(.tool))]
    Flows {
        /// The tool.
        tool: FlowTool,
        /// The unsupported part.
        what: String,
    },
    /// The address of the server is not valid.
    #[error("`{0}` is not the HOST:PORT of an `iperf3 -s`; put an IPv6 address in brackets")]
    Address(String),
}

impl ForeignSpec {
    fn is_possible(&self) -> bool {
        use Access as A;
        match self.tool {
            Tool::Fio => matches!(
                self.work.access,
                A::Write | A::Rewrite | A::Read | A::Reread | A::AfterWrite | A::RandomRead | A::RandomWrite | A::Mixed
            ),
            Tool::Xrdcp => matches!(self.work.access, A::Write | A::Read | A::Reread | A::AfterWrite),
        }
    }

    /// Returns the name of a file as the tool makes it.
    fn name(&self, stream: u32, file: u32) -> RelName {
        RelName::numbered('o', u64::from(stream) * u64::from(self.work.files) + u64::from(file))
    }
}

impl Workload for ForeignSpec {
    fn title(&self) -> String {
        format!("{} by {}", word_of(self.work.access), word_of(self.tool))
    }

    fn check(&self) -> Result<(), WorkError> {
        self.work.check()?;
        if !self.is_possible() {
            return Err(ForeignError::Pattern { tool: self.tool, access: self.work.access }.into());
        }
        if self.work.chunks > 1 || self.work.rate.is_some() {
            return Err(ForeignError::IoOptions { tool: self.tool }.into());
        }
        Ok(())
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn room(&self) -> u64 {
        // Its files exist beside the bench's own.
        self.work.bytes().saturating_mul(2)
    }

    fn moved(&self) -> u64 {
        self.work.bytes()
    }

    fn directories(&self) -> Vec<RelName> {
        Vec::new()
    }

    fn files(&self) -> Names<'_> {
        Box::new(
            (0..self.work.streams)
                .flat_map(move |stream| (0..self.work.files).map(move |file| self.name(stream, file))),
        )
    }

    fn suits(&self, target: &dyn Target) -> bool {
        location(self, target).is_ok()
    }

    fn needs_files(&self) -> bool {
        self.work.access.needs_files()
    }

    fn io_options(&self) -> Option<IoOptions> {
        Some(self.work.io_options)
    }

    fn writes(&self) -> bool {
        self.work.access.writes()
    }

    fn must_follow_write(&self) -> bool {
        self.work.must_follow_write()
    }

    fn is_cold(&self) -> bool {
        self.work.is_cold()
    }

    fn runs_a_tool(&self) -> bool {
        true
    }

    /// The number of the tool's jobs, or processes.
    fn workers(&self) -> u32 {
        self.work.streams
    }

    fn parts(&self) -> u32 {
        1
    }

    fn read_back(&self, site: &Site, tally: &mut Tally, go_on: &mut dyn FnMut() -> bool) {
        // The contents of fio's files are unknown.
        let is_ours = self.tool == Tool::Xrdcp && self.work.access.writes() && self.work.verify;
        let Some(target) = site.target.as_deref().filter(|_| is_ours && tally.operations > 0 && tally.cut == 0) else {
            return;
        };
        let since = Instant::now();
        if let Err(error) = xrdcp::read_back(self, target, &site.content, tally, go_on) {
            tally.add_failure(since.elapsed(), &error);
        }
    }

    fn worker_pool(&self, site: &Site, _parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        Workload::check(self)?;
        let (spec, target, content) = (self.clone(), site.target(&self.title())?, Arc::clone(&site.content));
        Ok(WorkerPool::hire(&[("", 0..1)], move |worker| match spec.tool {
            Tool::Fio => fio::run(&spec, &*target, worker),
            Tool::Xrdcp => xrdcp::run(&spec, &*target, &content, worker),
        })?)
    }
}

/// Returns the directory in which the tool works.
fn location(spec: &ForeignSpec, target: &dyn Target) -> Result<String, TargetError> {
    let fits = |location: &String| match spec.tool {
        Tool::Fio => location.starts_with('/'),
        Tool::Xrdcp => location.starts_with("root"),
    };
    let by = match spec.tool {
        Tool::Fio => "a driver that is no absolute path on this machine",
        Tool::Xrdcp => "a driver that is not root://",
    };
    target.location().filter(fits).ok_or(TargetError::Unsupported { what: "another tool on the same work", by })
}

/// A tool that was killed does not report its work until then.
fn cut_off(name: &str, at: Duration) -> Tally {
    let mut tally = Tally { cut: 1, ..Tally::default() };
    tally.complain(
        at,
        format!("{name} was killed before it reported anything: the time was over, or the run was stopped"),
    );
    tally
}

/// A tool's work in the form of the bench's own. Only some tools report latencies.
fn told(worker: &Worker, bytes: u64, operations: u64, latency: Latency) -> Tally {
    worker.meter().add(bytes);
    Tally { operations, bytes, latency, ..Tally::default() }
}
