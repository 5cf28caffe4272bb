//! The committer thread.

use std::collections::VecDeque;
use std::sync::Arc;

use journal::Seq;
use parking_lot::Mutex;

use super::drive::commit_until_closed;
use super::queue::{Queue, Request};
use super::responder::{Answers, Completions};
use super::run::{OpResult, run_one};
use super::{EmbeddedConfig, EmbeddedStats};
use crate::index::from_journal;
use crate::write_set::WriteSet;
use crate::{Durability, JournaledIndex, KvError};

pub(super) struct Committer {
    index: Arc<JournaledIndex>,
    queue: Arc<Queue>,
    answers: Option<Answers>,
    stats: Arc<Mutex<EmbeddedStats>>,
    config: EmbeddedConfig,
    /// The last record that this committer appended.
    last: Seq,
    stopped: Option<String>,
}

impl Committer {
    pub(super) fn new(
        index: Arc<JournaledIndex>,
        queue: Arc<Queue>,
        answers: Option<Answers>,
        stats: Arc<Mutex<EmbeddedStats>>,
        config: EmbeddedConfig,
    ) -> Self {
        Self { index, queue, answers, stats, config, last: Seq::ZERO, stopped: None }
    }

    /// Commits until the queue is closed.
    pub(super) fn run(mut self) {
        let (queue, answers) = (Arc::clone(&self.queue), self.answers.take());
        let limits = (self.config.batch_ops_max, self.config.linger, None);
        commit_until_closed(&queue, answers, limits, |mut requests, give| {
            while !requests.is_empty() {
                let completions = self.commit(&mut requests);
                give(completions, requests.is_empty());
            }
        });
    }

    /// Commits a batch from the front of `requests`.
    fn commit(&mut self, requests: &mut VecDeque<Request>) -> Completions {
        if let Some(reason) = &self.stopped {
            let stopped = KvError::Stopped { reason: reason.clone() };
            return requests.drain(..).map(|request| (request.done, Err(stopped.clone()))).collect();
        }
        let mut batch: Vec<Request> = Vec::with_capacity(requests.len());
        let mut ran = Vec::with_capacity(requests.len());
        let mut writes = WriteSet::default();
        let base = self.index.latest();
        while let Some(mut request) = requests.pop_front() {
            ran.push(run_one(&mut request, &base, &mut writes));
            batch.push(request);
            if writes.weight() >= self.config.batch_bytes {
                break;
            }
        }
        let urgent = batch.iter().all(|request| request.urgent);
        let result = match self.append(&mut writes, urgent) {
            Err(KvError::NoSpace) if !urgent => {
                // Operations that free space may use the reserve. They run again, because they saw changes that are now
                // undone.
                for (request, ran) in batch.iter_mut().zip(&mut ran) {
                    *ran = if request.urgent {
                        run_one(request, &base, &mut writes)
                    } else {
                        OpResult::Refused(KvError::NoSpace)
                    };
                }
                self.append(&mut writes, true)
            }
            other => other,
        };
        drop(base);
        let result = result.and_then(|appended| {
            self.last = appended.unwrap_or(self.last);
            self.make_durable(&batch, &ran)
        });
        if let Err(KvError::Stopped { reason }) = &result {
            self.stopped = Some(reason.clone());
        }
        self.count(&ran, &result);
        let answers = batch.into_iter().zip(ran).map(|(request, ran)| {
            let result = match ran {
                OpResult::Refused(error) => Err(error),
                // Its decision may depend on other changes of the batch, which are now undone.
                OpResult::Committed | OpResult::Aborted => result.clone(),
            };
            (request.done, result)
        });
        answers.collect()
    }

    /// Appends one record for all changes; none if nothing changed.
    fn append(&self, writes: &mut WriteSet, urgent: bool) -> Result<Option<Seq>, KvError> {
        if writes.is_empty() {
            return Ok(None);
        }
        let batch = writes.take();
        self.index.append_unpublished(&batch, urgent).map(Some)
    }

    fn make_durable(&self, batch: &[Request], ran: &[OpResult]) -> Result<(), KvError> {
        if self.last == Seq::ZERO {
            return Ok(());
        }
        let committed = batch.iter().zip(ran).filter(|(_, ran)| matches!(ran, OpResult::Committed));
        let synced = committed.clone().any(|(request, _)| request.durability == Durability::Synced);
        #[cfg(test)]
        if self.config.planted == Some(crate::tests::PlantedBug::AcknowledgeBeforeSync) {
            self.index.publish(self.last);
            return Ok(());
        }
        let journal = self.index.journal();
        // Needed even if this batch changed nothing: it may have seen earlier changes that are only written.
        let done = if synced { journal.sync_to(self.last) } else { journal.write_to(self.last) };
        done.map_err(|error| match from_journal(error) {
            stopped @ KvError::Stopped { .. } => stopped,
            // The record is appended, but may not be on the disk: nothing may follow it.
            other => KvError::Stopped { reason: other.to_string() },
        })?;
        self.index.publish(self.last);
        Ok(())
    }

    fn count(&self, ran: &[OpResult], result: &Result<(), KvError>) {
        let mut stats = self.stats.lock();
        stats.largest_batch = stats.largest_batch.max(ran.len() as u64);
        if result.is_ok() {
            stats.batches += 1;
            stats.batch_ops.add(ran.len() as u64);
        }
        for ran in ran {
            match (ran, result) {
                (OpResult::Refused(KvError::NoSpace), _) | (OpResult::Committed, Err(KvError::NoSpace)) => {
                    stats.no_space += 1
                }
                (OpResult::Refused(KvError::Panicked(_)), _) => stats.panicked += 1,
                (OpResult::Committed, Ok(())) => stats.committed += 1,
                (OpResult::Aborted, _) => stats.aborted += 1,
                (OpResult::Refused(_) | OpResult::Committed, _) => {}
            }
        }
    }
}
