//! Network tests as work of a campaign.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::client::{NetworkServer, Session};
use super::spec::NetworkSpec;
use super::{NetworkError, Outcome};
use crate::content::Content;
use crate::load::{Tally, Worker, WorkerPool};
use crate::target::{RelName, TargetError};
use crate::workload::{Names, Site, Unit, WorkError, Workload, no_names, word_of};

impl Workload for NetworkSpec {
    fn title(&self) -> String {
        word_of(self.direction)
    }

    fn check(&self) -> Result<(), WorkError> {
        Ok(self.check()?)
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn room(&self) -> u64 {
        0
    }

    fn moved(&self) -> u64 {
        0
    }

    fn fixed_time(&self) -> Option<Duration> {
        Some(Duration::from_secs(u64::from(self.seconds)))
    }

    fn directories(&self) -> Vec<RelName> {
        Vec::new()
    }

    fn files(&self) -> Names<'_> {
        no_names()
    }

    fn needs_system(&self) -> bool {
        !self.at_once
    }

    fn needs_place(&self) -> bool {
        false
    }

    fn needs_peers(&self) -> bool {
        true
    }

    #[allow(clippy::cast_precision_loss)] // a rate
    fn asked_rate(&self, _role: &str) -> Option<f64> {
        let flows = self.all_flows().count() as f64;
        self.rate.filter(|_| !self.at_once).map(|rate| rate as f64 * flows)
    }

    fn parts(&self) -> u32 {
        self.flows
    }

    /// One worker for each server; all start together.
    fn worker_pool(&self, site: &Site, parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        self.check()?;
        if site.peers.is_empty() {
            return Err(WorkError::NoPeer);
        }
        let spec = Self { flows: parts.end.saturating_sub(parts.start), ..self.clone() };
        let (peers, content) = (site.peers.clone(), Arc::clone(&site.content));
        Ok(WorkerPool::hire(&[("", 0..peers.len())], move |worker| match peers.get(worker.number) {
            Some(server) => flows(&spec, server, &content, worker),
            None => Ok(Tally::default()),
        })?)
    }
}

fn flows(
    spec: &NetworkSpec,
    server: &NetworkServer,
    content: &Arc<Content>,
    worker: &Worker,
) -> Result<Tally, TargetError> {
    let failed = |error: NetworkError| TargetError::Network(Box::new(error));
    let session = Session::prepare(server, spec, content).map_err(failed)?;
    let start = worker.start();
    let ran = session.run(|received| {
        worker.meter().set(received);
        !worker.is_stopped()
    });
    let mut tally = Tally::default();
    match ran {
        Ok(outcome) => count(&mut tally, outcome, start.elapsed()),
        // The work done until then is known.
        Err(NetworkError::Stopped) => {
            let done = worker.meter().read();
            (tally.bytes, tally.operations) = (done.bytes, done.operations);
        }
        Err(error) => tally.add_failure(start.elapsed(), &failed(error)),
    }
    Ok(tally)
}

fn count(tally: &mut Tally, outcome: Outcome, at: Duration) {
    tally.bytes = outcome.bytes();
    tally.operations = outcome.operations();
    for why in outcome.failures() {
        let error = NetworkError::Broken { peer: outcome.peer.clone(), why };
        tally.add_failure(at, &TargetError::Network(Box::new(error)));
    }
    tally.network.push(outcome);
}
