//! Reading outside of changes: from what is known, and from a transaction that begins with the first entry that is not.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use kv::{KvError, Prefetch, Read, ScanOrder, Visit};
use parking_lot::Mutex;

use crate::DatabaseError;
use crate::cache::{Cache, For, Seen};
use crate::fetched::{Fetched, Scanned};
use crate::following::Following;
use crate::needs::{Needs, Range};
use crate::place_lease::OwnLease;
use crate::pool::{Pool, Pooled};
use crate::session::{Acknowledged, Begin, entry};

/// Entries of the first fetch of a scan that nobody announced, and of the later ones at most.
const FIRST_FETCH: u32 = 128;
const FETCH_MAX: u32 = 4096;
/// How long the committer may take to note a batch that readers find in the database already.
const COMMITTED: Duration = Duration::from_secs(1);
/// The wait after a connection that was found dead.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// What a snapshot reads from.
pub(crate) struct Source<'a> {
    pub(crate) pool: &'a Pool,
    /// What may be read without the database.
    pub(crate) cache: &'a Cache,
    /// Whether the reader can begin anew if what it has read from the cache does not go with the rest.
    pub(crate) may_be_cached: bool,
    pub(crate) changes: Changes<'a>,
}

/// Who makes the changes. So it is known whether the cache is as new as it must be.
#[derive(Clone, Copy)]
pub(crate) enum Changes<'a> {
    /// This process. While it holds this lease, nobody else can have committed anything.
    Own(&'a Mutex<OwnLease>),
    /// Another process, which is asked. What readers have seen of the changes is kept: a server that lacks some of that is not read from.
    Followed(&'a Following, &'a Acknowledged),
    /// Nobody whom this process knows of: the cache knows nothing.
    Nobodys,
}

impl Source<'_> {
    /// Waits until a batch is in the cache that a reader sees in the database.
    fn wait_for(&self, at: Seen) -> bool {
        match self.changes {
            Changes::Own(_) => self.cache.wait_for(at.batch, COMMITTED),
            Changes::Followed(following, acknowledged) => following.wait_for(at, (self.cache, acknowledged), COMMITTED),
            Changes::Nobodys => false,
        }
    }

    /// What is known to be acknowledged, if another process makes the changes.
    fn acknowledged(&self) -> Option<&Acknowledged> {
        match self.changes {
            Changes::Own(_) | Changes::Nobodys => None,
            Changes::Followed(_, acknowledged) => Some(acknowledged),
        }
    }
}

struct State<'a> {
    session: Option<Pooled<'a>>,
    known: Fetched,
    /// What the reader has announced, and the cache does not know. It is fetched with the first entry that is not known: until then, nobody has needed it.
    announced: Needs,
    /// The batch as of which `known` is exact, as long as all of it comes from the cache.
    as_of: Option<i64>,
    /// Whether the cache has everything that was acknowledged when this view began. `None`: the process that makes the changes was not asked yet.
    is_current: Option<bool>,
    /// Whether what comes from the cache and what comes from the database are of different states.
    is_mixed: bool,
}

/// A consistent view of the database. It reads from the cache while that knows everything, and then holds a connection.
pub(crate) struct Snapshot<'a> {
    source: Source<'a>,
    state: RefCell<State<'a>>,
}

impl<'a> Snapshot<'a> {
    pub(crate) fn new(source: Source<'a>) -> Self {
        Self {
            source,
            state: RefCell::new(State {
                session: None,
                known: Fetched::default(),
                announced: Needs::default(),
                as_of: None,
                is_current: None,
                is_mixed: false,
            }),
        }
    }
}

impl<'a> State<'a> {
    /// The reader will probably need this.
    fn announce(&mut self, source: &Source<'a>, needs: Needs) -> Result<(), KvError> {
        if !self.is_usable(source) {
            return self.fetch(source, &needs);
        }
        self.is_supplied(source, |found| source.cache.supply_part(For::Reader, &needs, found));
        self.announced.add_needs(needs, &self.known);
        Ok(())
    }

    /// Makes `needs` known.
    fn obtain(&mut self, source: &Source<'a>, needs: Needs) -> Result<(), KvError> {
        if self.is_usable(source) && self.is_supplied(source, |found| source.cache.supply(For::Reader, &needs, found)) {
            return Ok(());
        }
        // What was announced should have it.
        let announced = std::mem::take(&mut self.announced).unknown(&self.known);
        if !announced.is_empty() {
            self.fetch(source, &announced)?;
        }
        let needs = needs.unknown(&self.known);
        if needs.is_empty() { Ok(()) } else { self.fetch(source, &needs) }
    }

    /// Whether the cache may supply entries now.
    fn is_usable(&mut self, source: &Source<'a>) -> bool {
        let may_be_used = source.may_be_cached && self.session.is_none();
        may_be_used && self.has_asked(source)
    }

    /// Whether the cache has everything that was acknowledged when this view began. The first call asks the process that makes the changes.
    fn has_asked(&mut self, source: &Source<'a>) -> bool {
        match source.changes {
            Changes::Own(_) => true,
            Changes::Nobodys => false,
            Changes::Followed(following, acknowledged) => {
                *self.is_current.get_or_insert_with(|| following.refresh(source.cache, acknowledged))
            }
        }
    }

    /// Whether the cache could `supply` something, as of the same state as everything before.
    fn is_supplied(&mut self, source: &Source<'a>, supply: impl FnOnce(&mut Fetched) -> Option<i64>) -> bool {
        let mut found = Fetched::default();
        let Some(batch) = supply(&mut found) else { return false };
        let before = self.as_of.unwrap_or(batch);
        if !source.cache.is_unchanged(&self.known, before, batch) {
            return false;
        }
        // Looked at last: what was known then was exact.
        if let Changes::Own(lease) = source.changes
            && !lease.lock().at(Instant::now()).is_held()
        {
            return false;
        }
        self.known.absorb(found);
        self.as_of = Some(batch);
        true
    }

    /// Fetches `needs` from the database.
    fn fetch(&mut self, source: &Source<'a>, needs: &Needs) -> Result<(), KvError> {
        if let Some(pooled) = &mut self.session {
            return Ok(pooled.session()?.fetch(Begin::Not, needs, &mut self.known)?);
        }
        // So it is known what a server must have.
        self.has_asked(source);
        let until = source.pool.until();
        loop {
            let mut pooled = source.pool.take(until)?;
            let session = pooled.session()?;
            let mut found = Fetched::default();
            let least = source.acknowledged().map(Acknowledged::least).unwrap_or_default();
            let fetched = session.fetch_first(needs, &mut found).and_then(|at| match (source.acknowledged(), at) {
                (None, _) => Ok(at),
                (Some(seen), Some(at)) if at.batch >= least.batch && at.fence >= least.fence => {
                    seen.note(at);
                    Ok(Some(at))
                }
                // Nobody has committed anything yet.
                (Some(_), None) if least == Seen::default() => Ok(None),
                (Some(_), _) => {
                    session.connection.give_up();
                    Err(session.connection.is_behind())
                }
            });
            match fetched {
                Ok(at) => {
                    self.session = Some(pooled);
                    return self.has_fetched(source, at, found);
                }
                // The connection broke while nobody used it. Nothing was read yet, so another one will do.
                Err(error @ DatabaseError::Unavailable { .. }) => {
                    drop(pooled);
                    source.pool.close_idle();
                    if Instant::now() >= until {
                        return Err(error.into());
                    }
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
                Err(error) => {
                    session.end_reading();
                    return Err(error.into());
                }
            }
        }
    }

    /// The transaction has begun, and `found` is what it has read first. `at`: the batch that it sees.
    fn has_fetched(&mut self, source: &Source<'_>, at: Option<Seen>, found: Fetched) -> Result<(), KvError> {
        let cache = source.cache;
        let seen = at.filter(|at| cache.saw(*at));
        if let (Changes::Followed(following, acknowledged), Some(at)) = (source.changes, at) {
            // If the other process does not answer, readers elsewhere may see an earlier state for a moment.
            following.tell(at, cache, acknowledged);
        }
        if let Some(before) = self.as_of.take() {
            let is_same =
                seen.is_some_and(|at| source.wait_for(at) && cache.is_unchanged(&self.known, before, at.batch));
            // What was read before is not of the transaction's state. Whoever reads begins anew.
            if !is_same {
                self.is_mixed = true;
                return Err(mixed());
            }
        }
        if let Some(at) = seen {
            cache.learn(at, &found);
        }
        self.known.absorb(found);
        Ok(())
    }

    /// Refuses to read on in states that do not belong together.
    fn check(&self) -> Result<(), KvError> {
        if self.is_mixed { Err(mixed()) } else { Ok(()) }
    }
}

fn mixed() -> KvError {
    KvError::Conflict { retries: 0 }
}

impl Read for Snapshot<'_> {
    fn prefetch(&self, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), KvError> {
        // It may read here itself.
        let wanted = wanted();
        let mut state = self.state.borrow_mut();
        state.check()?;
        let mut needs = Needs::default();
        needs.add(wanted, &state.known);
        if needs.is_empty() {
            return Ok(());
        }
        state.announce(&self.source, needs)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let mut state = self.state.borrow_mut();
        state.check()?;
        if let Some(known) = state.known.get(key) {
            return Ok(known.map(<[u8]>::to_vec));
        }
        state.obtain(&self.source, Needs::of_key(key))?;
        Ok(state.known.get(key).flatten().map(<[u8]>::to_vec))
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        self.state.borrow().check()?;
        let (mut start, mut end) = (start.to_vec(), end.to_vec());
        let mut most = FIRST_FETCH;
        // The first entries are remembered: small ranges are read more than once.
        loop {
            // The visitor may read more, so nothing is borrowed while it runs.
            let (visited, scanned) = self.state.borrow().known.entries_between((&start, &end), order);
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
            let mut state = self.state.borrow_mut();
            needs.add_range(Range { start: start.clone(), end: end.clone(), order, most });
            state.obtain(&self.source, needs)?;
            drop(state);
            most = FETCH_MAX;
        }
        // A long scan remembers nothing: it may pass over the whole database.
        if self.state.borrow().session.is_none() {
            self.state.borrow_mut().fetch(&self.source, &Needs::default())?;
        }
        loop {
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

    fn is_mixed(&self) -> bool {
        self.state.borrow().is_mixed
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
