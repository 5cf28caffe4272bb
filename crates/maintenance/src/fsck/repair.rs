//! The repairs of `--repair`.
//! - It marks files whose bytes are gone or damaged, so that they can be found. They are served as before, page by page against their checksums, but
//!   their whole-file checksum is refused.
//! - It recounts directories with wrong totals.
//!
//! `--remove-unreferenced` removes objects to which nothing refers. That is a separate step: after a repair of the journal, such an object may be the
//! only copy of a file whose name was lost.

use foundation::Foundation;
use namespace::{Actor, RecountTotals, RecountUsage};
use types::{Ino, ObjectId, ReplicaId};

use super::FsckOptions;
use super::finding::{Finding, Problem, ProblemKind};
use super::report::Report;
use crate::Error;
use crate::damage_mark;
use crate::now;

/// The most findings held until the check is over.
const WAITING_MAX: usize = 1_000_000;

/// Collects findings, and repairs some of them.
pub struct Repair<'a> {
    foundation: &'a Foundation,
    mark: bool,
    remove: bool,
    waiting: Vec<Finding>,
}

impl<'a> Repair<'a> {
    /// Makes the repairs that `args` allows.
    pub fn new(foundation: &'a Foundation, args: &FsckOptions) -> Self {
        Self { foundation, mark: args.repair, remove: args.remove_unreferenced, waiting: Vec::new() }
    }

    /// Keeps a finding for later if it can be repaired. Otherwise passes it on.
    pub fn take(&mut self, finding: Finding, report: &mut Report) {
        if let Problem::Keys { totals_of: Some(_), .. } | Problem::Keys { is_usage: true, .. } = finding.problem {
            self.hold_if(self.mark, finding, report);
            return;
        }
        let wanted = match finding.problem.kind() {
            ProblemKind::ObjectMissing
            | ProblemKind::Damaged
            | ProblemKind::WholeDiffers
            | ProblemKind::LengthDiffers
            | ProblemKind::SumsDiffer
            | ProblemKind::Unreadable => self.mark && finding.path.is_some(),
            ProblemKind::Unreferenced => self.remove && finding.object.is_some(),
            _ => false,
        };
        self.hold_if(wanted, finding, report);
    }

    fn hold_if(&mut self, wanted: bool, finding: Finding, report: &mut Report) {
        if wanted && self.waiting.len() < WAITING_MAX {
            self.waiting.push(finding);
        } else {
            report.add(finding);
        }
    }

    /// Repairs the kept findings.
    pub fn finish(self, report: &mut Report) -> Result<(), Error> {
        let mut changed = false;
        let mut usage = None;
        for mut finding in self.waiting {
            let done = match (&finding.problem, &finding.path, finding.object) {
                (Problem::Unreferenced { .. }, _, Some(object)) => self
                    .foundation
                    .objects
                    .store
                    .delete(ReplicaId::first(object))
                    .map(|()| "removed".to_owned())
                    .map_err(|error| error.to_string()),
                (Problem::Keys { totals_of: Some(dir), .. }, ..) => recount(self.foundation, *dir),
                // Once for all of them.
                (Problem::Keys { is_usage: true, .. }, ..) => {
                    usage.get_or_insert_with(|| recount_usage(self.foundation)).clone()
                }
                (problem, Some(path), object) => mark(self.foundation, path, &problem.in_words(), object),
                _ => Err("there is nothing to hold on to".to_owned()),
            };
            changed = true;
            match done {
                Ok(done) => finding.repaired = Some(done),
                Err(why) => tracing::warn!("{} could not be repaired: {why}", finding.subject()),
            }
            report.add(finding);
        }
        if changed {
            let journal = &self.foundation.journal;
            journal
                .sync_to(journal.appended())
                .and_then(|()| {
                    self.foundation.objects.store.tick().unwrap_or_else(|error| tracing::warn!("{error}"));
                    journal.sync_to(journal.appended())
                })
                .map_err(Error::NotDurable)?;
        }
        Ok(())
    }
}

/// Recounts the usage of all trees.
fn recount_usage(foundation: &Foundation) -> Result<String, String> {
    let namespace = &foundation.names.namespace;
    let context = namespace.context(now(), &Actor::admin(), None);
    namespace
        .change_wait(kv::Durability::Synced, context, RecountUsage)
        .map(|()| "counted again".to_owned())
        .map_err(|error| error.to_string())
}

/// Recounts the directory's entries.
fn recount(foundation: &Foundation, dir: Ino) -> Result<String, String> {
    let namespace = &foundation.names.namespace;
    let context = namespace.context(now(), &Actor::admin(), None);
    namespace
        .change_wait(kv::Durability::Synced, context, RecountTotals { dir })
        .and_then(|()| namespace.read(|read| namespace::totals(read, dir)))
        .map(|totals| format!("counted again: {} entries and {} bytes", totals.entries, totals.bytes))
        .map_err(|error| error.to_string())
}

/// Marks the file.
fn mark(foundation: &Foundation, path: &[u8], what: &str, object: Option<ObjectId>) -> Result<String, String> {
    damage_mark::at(path)
        .and_then(|of| damage_mark::mark(&foundation.names.namespace, of, what, object))
        .map(|()| format!("marked with the extended attribute {}", damage_mark::NAME.escape_ascii()))
        .map_err(|error| error.to_string())
}
