//! The activity of watched servers during a phase, exactly from its start to its end. The coordinator requests a
//! sample at both moments.

use std::collections::BTreeMap;
use std::time::Duration;

use super::PeerId;
use super::message::CoordinatorMessage;
use crate::result::ServerRecord;
use crate::sampling::{Sample, Series};

/// How long a server may take to answer before its samples count as incomplete.
const PATIENCE: Duration = Duration::from_secs(3);

/// The samples of all watched servers during a phase.
#[derive(Debug)]
pub(super) struct SampleCollection {
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

impl SampleCollection {
    /// Starts. `first` and the number after it identify the requests. `servers`: the present servers, each with a
    /// record without samples.
    pub(super) fn begin(
        first: u64,
        servers: impl Iterator<Item = (PeerId, ServerRecord)>,
        samples_max: usize,
        mut ask: impl FnMut(PeerId, CoordinatorMessage),
    ) -> Self {
        let watched = |record| Watched { record, series: Series::new(samples_max), begun: false, ended: false };
        let servers: BTreeMap<PeerId, Watched> = servers.map(|(peer, record)| (peer, watched(record))).collect();
        servers.keys().for_each(|peer| ask(*peer, CoordinatorMessage::Sample { number: first }));
        Self { first, servers, ending: None }
    }

    /// Adds a sample. The samples of the phase are those after the answer to the first request, up to the answer to
    /// the second.
    pub(super) fn add(&mut self, from: PeerId, number: Option<u64>, sample: Sample) {
        let Some(server) = self.servers.get_mut(&from) else { return };
        if server.begun && !server.ended {
            server.series.push(sample);
        }
        server.begun |= number == Some(self.first);
        server.ended |= server.begun && number == Some(self.first + 1);
    }

    /// The phase has ended.
    pub(super) fn end(&mut self, now: Duration, mut ask: impl FnMut(PeerId, CoordinatorMessage)) {
        self.ending = Some(now);
        self.servers.keys().for_each(|peer| ask(*peer, CoordinatorMessage::Sample { number: self.first + 1 }));
    }

    /// Whether all servers have answered, or will not answer.
    pub(super) fn is_over(&self, now: Duration, is_there: impl Fn(PeerId) -> bool) -> bool {
        let told = || self.servers.iter().all(|(peer, server)| server.ended || !is_there(*peer));
        self.ending.is_some_and(|since| now.saturating_sub(since) >= PATIENCE || told())
    }

    /// Returns the records.
    pub(super) fn into_records(self) -> Vec<ServerRecord> {
        let record = |server: Watched| ServerRecord {
            is_whole: server.ended,
            samples: server.series.into_samples(),
            ..server.record
        };
        self.servers.into_values().map(record).collect()
    }
}
