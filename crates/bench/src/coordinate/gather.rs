//! What watched servers do during a phase, from its start to its end to the moment: at both they are asked to tell at once.

use std::collections::BTreeMap;
use std::time::Duration;

use super::PeerId;
use super::message::Ask;
use crate::result::ServerRecord;
use crate::sampling::{Sample, Series};

/// How long the answer to a question may take before a server's samples count as incomplete.
const PATIENCE: Duration = Duration::from_secs(3);

/// Samples of all watched servers during a phase.
#[derive(Debug)]
pub(super) struct Gathering {
    first: u64,
    servers: BTreeMap<PeerId, Watched>,
    ending: Option<Duration>,
}

#[derive(Debug)]
struct Watched {
    record: ServerRecord,
    series: Series,
    begun: bool,
    ended: bool,
}

impl Gathering {
    /// Begins; `first` and the number after it are the questions. `servers`: who is there, each with a record without samples.
    pub(super) fn begin(
        first: u64,
        servers: impl Iterator<Item = (PeerId, ServerRecord)>,
        samples_max: usize,
        mut ask: impl FnMut(PeerId, Ask),
    ) -> Self {
        let watched = |record| Watched { record, series: Series::new(samples_max), begun: false, ended: false };
        let servers: BTreeMap<PeerId, Watched> = servers.map(|(peer, record)| (peer, watched(record))).collect();
        servers.keys().for_each(|peer| ask(*peer, Ask::Sample { number: first }));
        Self { first, servers, ending: None }
    }

    /// Takes a sample in: from the answer to the first question, which is of the time before, to the answer to the second.
    pub(super) fn add(&mut self, from: PeerId, number: Option<u64>, sample: Sample) {
        let Some(server) = self.servers.get_mut(&from) else { return };
        if server.begun && !server.ended {
            server.series.push(sample);
        }
        server.begun |= number == Some(self.first);
        server.ended |= server.begun && number == Some(self.first + 1);
    }

    /// The phase is over.
    pub(super) fn end(&mut self, now: Duration, mut ask: impl FnMut(PeerId, Ask)) {
        self.ending = Some(now);
        self.servers.keys().for_each(|peer| ask(*peer, Ask::Sample { number: self.first + 1 }));
    }

    /// Whether all have told, or will not any more.
    pub(super) fn is_over(&self, now: Duration, is_there: impl Fn(PeerId) -> bool) -> bool {
        let told = || self.servers.iter().all(|(peer, server)| server.ended || !is_there(*peer));
        self.ending.is_some_and(|since| now.saturating_sub(since) >= PATIENCE || told())
    }

    /// What has been gathered.
    pub(super) fn into_records(self) -> Vec<ServerRecord> {
        let record = |server: Watched| ServerRecord {
            is_whole: server.ended,
            samples: server.series.into_samples(),
            ..server.record
        };
        self.servers.into_values().map(record).collect()
    }
}
