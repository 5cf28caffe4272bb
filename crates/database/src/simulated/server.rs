//! The simulated database. Its statements are those of [`crate::place`] and [`crate::statements`], on a row and a map.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use kv::{Batch, KvError, Read, ScanOrder, Visit};

use super::PlantedBug;
use crate::own_place::Process;
use crate::place_lease::{PlaceRow, Vacancy};

/// Transactions that a replica can be behind, at most.
const BEHIND_MAX: usize = 12;

/// Keys and values.
pub(super) type Entries = Arc<BTreeMap<Arc<[u8]>, Arc<[u8]>>>;

/// What a process asks of the database.
#[derive(Clone, Debug)]
pub struct Request(pub(super) Ask);

#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// The row, and whether the database is closed.
    Look,
    /// The place, if it still has the state that was seen.
    Take { process: Process, seen: Vacancy },
    /// A new connection of the process that has the place.
    Return { process: Process, fence: i64 },
    /// The batch after `batch`: the operations that the process calls `operations`.
    Commit { process: Process, fence: i64, batch: i64, operations: u64, changes: Batch },
    /// A sign of life.
    Beat { process: Process, fence: i64, batch: i64 },
    /// The place is given up.
    Release { process: Process, fence: i64, batch: i64 },
    /// No manager may start on it any more.
    Close { reason: String },
}

impl Request {
    /// Whether it asks for the place.
    #[must_use]
    pub fn is_take(&self) -> bool {
        matches!(self.0, Ask::Take { .. })
    }
}

/// A request on its way to the database.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its number, for the answer.
    pub number: u64,
    /// The server to which its connection leads. `None`: a new connection.
    pub server: Option<u64>,
    /// The request.
    pub request: Request,
}

/// An answer of the database.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The server that answers.
    pub(super) server: u64,
    pub(super) said: Said,
}

#[derive(Clone, Debug)]
pub(super) enum Said {
    /// The row as it is.
    Row { row: Option<PlaceRow>, closed: Option<String> },
    /// The row was changed, and has this fence and this batch. `None`: it is not as it should be.
    Changed(Option<(i64, i64)>),
    /// The batch is committed, and these are all entries.
    Committed(Entries),
    /// Another transaction got in the way.
    Collided,
    /// The database is closed to managers.
    Closed,
    /// The connection is broken.
    Broken,
}

/// What a server has.
#[derive(Clone, Default)]
struct Stored {
    entries: Entries,
    row: Option<PlaceRow>,
    closed: Option<String>,
    /// The operations of the last batch.
    last: Option<(Process, u64)>,
}

/// A database with one row of committers.
#[derive(Default)]
pub struct SimDatabase {
    stored: Stored,
    /// What it had before the last transactions, the latest last.
    earlier: VecDeque<Stored>,
    /// The number of the server that takes changes now.
    server: u64,
    /// How many commits collide next.
    collisions: u32,
    planted: Option<PlantedBug>,
    wrong: Option<String>,
}

impl SimDatabase {
    /// An empty database.
    #[must_use]
    pub fn new(planted: Option<PlantedBug>) -> Self {
        Self { planted, ..Self::default() }
    }

    /// The next commits collide.
    pub fn collide(&mut self, times: u32) {
        self.collisions = times;
    }

    /// A replica becomes the primary, without the last transactions. All connections break.
    pub fn fail_over(&mut self, lacks: usize) {
        let lacks = lacks.min(self.earlier.len());
        let kept = self.earlier.len() - lacks;
        if let Some(stored) = self.earlier.drain(kept..).next() {
            self.stored = stored;
        }
        self.server += 1;
    }

    /// All connections break, as when the server restarts.
    pub fn break_connections(&mut self) {
        self.server += 1;
    }

    /// The number of the last batch.
    #[must_use]
    pub fn batch(&self) -> i64 {
        self.stored.row.as_ref().map_or(0, |row| row.batch)
    }

    /// The process that has the place; empty if nobody has.
    #[must_use]
    pub fn process(&self) -> Vec<u8> {
        self.stored.row.as_ref().map(|row| row.process.clone()).unwrap_or_default()
    }

    /// Why no manager may start on it, if that is so.
    #[must_use]
    pub fn closed(&self) -> Option<&str> {
        self.stored.closed.as_deref()
    }

    /// What nobody may do was done.
    #[must_use]
    pub fn wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }

    /// All entries as they are now.
    #[must_use]
    pub fn read(&self) -> Box<dyn Read + Send> {
        Box::new(View(Arc::clone(&self.stored.entries)))
    }

    pub(super) fn entries(&self) -> Entries {
        Arc::clone(&self.stored.entries)
    }

    /// The server that takes changes now.
    pub(super) fn server(&self) -> u64 {
        self.server
    }

    /// A request arrives.
    pub fn serve(&mut self, sent: Sent) -> Answer {
        let server = self.server;
        if sent.server.is_some_and(|of| of != server) {
            return Answer { server, said: Said::Broken };
        }
        Answer { server, said: self.answer(sent.request.0) }
    }

    fn answer(&mut self, ask: Ask) -> Said {
        let changes = !matches!(ask, Ask::Look);
        let before = changes.then(|| self.stored.clone());
        let (planted, closed) = (self.planted, self.stored.closed.clone());
        let row = &mut self.stored.row;
        let said = match ask {
            Ask::Look => return Said::Row { row: row.clone(), closed },
            Ask::Close { reason } => {
                self.stored.closed.get_or_insert(reason);
                Said::Changed(None)
            }
            Ask::Take { .. } if closed.is_some() => return Said::Closed,
            Ask::Take { process, seen } => {
                let is_as_seen = planted == Some(PlantedBug::TakenWithoutComparing) || *row == seen.0;
                if !is_as_seen {
                    return Said::Changed(None);
                }
                let raised = i64::from(planted != Some(PlantedBug::FenceNotRaised));
                let row = row.get_or_insert(PlaceRow { process: Vec::new(), fence: 0, batch: 0, beat: 0 });
                (row.process, row.fence) = (process.to_vec(), row.fence + raised);
                Said::Changed(Some((row.fence, row.batch)))
            }
            Ask::Return { process, fence } => match row.as_mut().filter(|row| row.process == process) {
                Some(row) => {
                    row.fence = row.fence.max(fence) + 1;
                    Said::Changed(Some((row.fence, row.batch)))
                }
                None => return Said::Changed(None),
            },
            Ask::Commit { .. } if self.collisions > 0 => {
                self.collisions -= 1;
                return Said::Collided;
            }
            Ask::Commit { process, fence, batch, operations, changes } => {
                let is_ours = |row: &&mut PlaceRow| {
                    planted == Some(PlantedBug::FenceNotCompared) || (row.fence, row.batch) == (fence, batch)
                };
                let Some(row) = row.as_mut().filter(is_ours) else { return Said::Changed(None) };
                row.batch += 1;
                if row.process != process {
                    self.wrong.get_or_insert_with(|| {
                        "a batch was committed after another process had taken the place".into()
                    });
                }
                if self.stored.last.replace((process, operations)) == Some((process, operations)) {
                    self.wrong.get_or_insert_with(|| "the operations of a batch were committed twice".into());
                }
                let entries = Arc::make_mut(&mut self.stored.entries);
                for (key, value) in changes.iter() {
                    match value {
                        Some(value) => entries.insert(key.into(), value.into()),
                        None => entries.remove(key),
                    };
                }
                Said::Committed(Arc::clone(&self.stored.entries))
            }
            Ask::Beat { process, fence, batch } => {
                match row.as_mut().filter(|row| (row.fence, row.batch) == (fence, batch)) {
                    Some(row) => {
                        row.beat += 1;
                        if row.process != process {
                            self.wrong.get_or_insert_with(|| {
                                "a process gave a sign of life after another one had taken the place".into()
                            });
                        }
                        Said::Changed(Some((fence, batch)))
                    }
                    None => return Said::Changed(None),
                }
            }
            Ask::Release { process, fence, batch } => {
                let is_ours = |row: &&mut PlaceRow| row.process == process && (row.fence, row.batch) == (fence, batch);
                match row.as_mut().filter(is_ours) {
                    Some(row) => {
                        row.process.clear();
                        row.fence += 1;
                        Said::Changed(Some((row.fence, row.batch)))
                    }
                    None => return Said::Changed(None),
                }
            }
        };
        self.earlier.extend(before);
        while self.earlier.len() > BEHIND_MAX {
            self.earlier.pop_front();
        }
        said
    }
}

/// One state of the entries.
pub(super) struct View(pub(super) Entries);

impl Read for View {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.0.get(key).map(|value| value.to_vec()))
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        if start >= end {
            return Ok(());
        }
        let mut range = self.0.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)));
        let next = || match order {
            ScanOrder::Ascending => range.next(),
            ScanOrder::Descending => range.next_back(),
        };
        for (key, value) in std::iter::from_fn(next) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The answer to all reads of somebody who cannot reach the database.
pub(super) struct Unreadable(pub(super) KvError);

impl Read for Unreadable {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        Err(self.0.clone())
    }

    fn scan(&self, _: &[u8], _: &[u8], _: ScanOrder, _: Visit<'_>) -> Result<(), KvError> {
        Err(self.0.clone())
    }
}
