//! Reading outside of changes: a transaction that begins with the first read, and fetches what it is asked for.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use kv::{KvError, Prefetch, Read, ScanOrder, Visit};

use crate::DatabaseError;
use crate::fetched::{Fetched, Needs, Range, Scanned};
use crate::pool::{Pool, Pooled};
use crate::session::{Begin, entry};

/// Entries of the first fetch of a scan that nobody announced, and of the later ones at most.
const FIRST_FETCH: u32 = 128;
const FETCH_MAX: u32 = 4096;
/// The wait after a connection that was found dead.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

struct State<'a> {
    session: Option<Pooled<'a>>,
    known: Fetched,
}

/// A consistent view of the database. It holds a connection from the first read on.
pub(crate) struct Snapshot<'a> {
    pool: &'a Pool,
    state: RefCell<State<'a>>,
}

impl<'a> Snapshot<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Self {
        Self { pool, state: RefCell::new(State { session: None, known: Fetched::default() }) }
    }
}

impl<'a> State<'a> {
    fn fetch(&mut self, pool: &'a Pool, needs: &Needs) -> Result<(), DatabaseError> {
        if let Some(pooled) = &mut self.session {
            return pooled.session()?.fetch(Begin::Not, needs, &mut self.known);
        }
        let until = pool.until();
        loop {
            let mut pooled = pool.take(until)?;
            let session = pooled.session()?;
            match session.fetch(Begin::Reading, needs, &mut self.known) {
                Ok(()) => {
                    self.session = Some(pooled);
                    return Ok(());
                }
                // The connection broke while nobody used it. Nothing was read yet, so another one will do.
                Err(error @ DatabaseError::Unavailable { .. }) => {
                    drop(pooled);
                    pool.close_idle();
                    if Instant::now() >= until {
                        return Err(error);
                    }
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
                Err(error) => {
                    session.end_reading();
                    return Err(error);
                }
            }
        }
    }
}

impl Read for Snapshot<'_> {
    fn prefetch(&self, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), KvError> {
        // It may read here itself.
        let wanted = wanted();
        let mut state = self.state.borrow_mut();
        let mut needs = Needs::default();
        needs.add(wanted, &state.known);
        if needs.is_empty() {
            return Ok(());
        }
        Ok(state.fetch(self.pool, &needs)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let mut state = self.state.borrow_mut();
        if let Some(known) = state.known.get(key) {
            return Ok(known.map(<[u8]>::to_vec));
        }
        let mut needs = Needs::default();
        needs.keys.insert(key.to_vec());
        state.fetch(self.pool, &needs)?;
        Ok(state.known.get(key).flatten().map(<[u8]>::to_vec))
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        let (mut start, mut end) = (start.to_vec(), end.to_vec());
        let mut most = FIRST_FETCH;
        // The first entries are remembered: small ranges are read more than once.
        loop {
            // The visitor may read more, so nothing is borrowed while it runs.
            let mut visited: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let scanned = self.state.borrow().known.scan(&start, &end, order, &mut |key, value| {
                visited.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            });
            for (key, value) in &visited {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            match scanned {
                Scanned::Done => return Ok(()),
                Scanned::Missing { start: from, end: to } => (start, end) = (from, to),
            }
            if most > FIRST_FETCH {
                break;
            }
            let mut needs = Needs::default();
            needs.add_range(Range { start: start.clone(), end: end.clone(), order, most });
            self.state.borrow_mut().fetch(self.pool, &needs)?;
            most = FETCH_MAX;
        }
        // A long scan remembers nothing: it may pass over the whole database.
        loop {
            // The first entries were fetched, so the transaction has begun.
            let rows = match &mut self.state.borrow_mut().session {
                Some(pooled) => pooled.session()?.scan((&start, &end), order, most)?,
                None => return Ok(()),
            };
            for row in &rows {
                let (key, value) = entry(row)?;
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            match rows.last() {
                Some(row) if rows.len() >= most as usize => {
                    let (key, _) = entry(row)?;
                    match order {
                        ScanOrder::Ascending => start = [key, &[0]].concat(),
                        ScanOrder::Descending => end = key.to_vec(),
                    }
                }
                _ => return Ok(()),
            }
        }
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if let Some(mut pooled) = self.state.get_mut().session.take()
            && let Ok(session) = pooled.session()
        {
            session.end_reading();
        }
    }
}
