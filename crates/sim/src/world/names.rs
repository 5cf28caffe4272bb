//! What the checks read: the namespace as it is. With a database this is what the database has, whoever can reach it.

use kv::Read;
use namespace::{NsError, WriterRecord};
use types::{NsPath, ReplicaId, WriterToken};

use super::World;

impl World {
    /// Reads the namespace. `None`: the manager's process is not there, there is no namespace yet, or the database has lost
    /// changes, so that nothing is sure any more.
    pub(super) fn names<T>(&self, reading: impl FnOnce(&dyn Read) -> Result<T, NsError>) -> Option<Result<T, NsError>> {
        match self.turns.database() {
            Some(_) if self.turns.has_lost() => None,
            Some(database) => {
                let database = database.lock();
                // Without a batch there is no namespace yet.
                let read = (database.batch() > 0).then(|| database.read())?;
                drop(database);
                Some(reading(&*read))
            }
            None => self.managers.first()?.process.as_ref().map(|manager| manager.ns.read(reading)),
        }
    }

    /// The record of an open write.
    pub(super) fn writer(&self, token: WriterToken) -> Option<WriterRecord> {
        self.names(|read| namespace::writer_of(read, token.key, token.object))?.ok().flatten()
    }

    /// The namespace's own check.
    pub(super) fn check_names(&self, found: &mut dyn FnMut(String)) -> Option<Result<(), NsError>> {
        self.names(|read| {
            namespace::check(read, &mut |finding| found(format!("{}: {}", finding.key, finding.what))).map(drop)
        })
    }

    /// Whether the namespace may lack opens of shortly before a power failure.
    pub(super) fn has_forgotten(&self) -> bool {
        !self.settings.database && self.managers.iter().any(|machine| machine.boot > 1)
    }

    /// The manager that acts, or may think so.
    pub(super) fn active(&self) -> Option<usize> {
        let holders = self.lease_holders();
        let first = holders.first().copied();
        first.or_else(|| self.managers.iter().position(|machine| machine.process.is_some()))
    }

    /// Checks that no two files have objects with the same number.
    pub(super) fn look_at_number(&mut self, path: &NsPath, replica: ReplicaId) {
        let of = self.watched.numbers.entry(replica.object).or_insert_with(|| path.clone());
        if of != path {
            let found = format!("object {} is of {of} and of {path}", replica.object);
            self.wrong(Err(found));
        }
    }
}
