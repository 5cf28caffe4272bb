//! What the operations of a batch read: what is known, and a list of what must be fetched.

use std::cell::{Cell, RefCell};

use kv::{KvError, Prefetch, Read, ScanOrder, Visit};

use crate::cache::{Cache, For};
use crate::fetched::{Fetched, Scanned};
use crate::needs::{Needs, Range};

/// Entries of one fetch for an operation that scans more than it announced.
const FETCH: u32 = 512;

pub(crate) struct Pending<'a> {
    /// What is known without the database. Only the committer changes it, so it stays as it is while its batch runs.
    cache: &'a Cache,
    known: RefCell<Fetched>,
    /// What operations have read, and is not known.
    needs: RefCell<Needs>,
    /// What the running operation has announced, and is not known. It is fetched when the operation reads something that is not known: until then, nobody
    /// has needed it.
    announced: RefCell<Needs>,
    trusts_cache: Cell<bool>,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(cache: &'a Cache) -> Self {
        Self {
            cache,
            known: RefCell::default(),
            needs: RefCell::default(),
            announced: RefCell::default(),
            trusts_cache: Cell::new(false),
        }
    }

    /// The next operation runs.
    pub(crate) fn begin_operation(&self) {
        self.announced.take();
    }

    /// What must be fetched before the operations run again. Nothing: they have read only what is known.
    pub(crate) fn take_needs(&self) -> Needs {
        self.needs.take()
    }

    /// This was fetched.
    pub(crate) fn absorb(&self, found: Fetched) {
        self.known.borrow_mut().absorb(found);
    }

    /// Whether something came from the cache.
    pub(crate) fn trusts_cache(&self) -> bool {
        self.trusts_cache.get()
    }

    /// Whether the cache has all of `needs`, which is known from now on.
    fn is_supplied(&self, needs: &Needs) -> bool {
        let is_supplied = self.cache.supply(For::Committer, needs, &mut self.known.borrow_mut()).is_some();
        self.trusts_cache.set(self.trusts_cache.get() || is_supplied);
        is_supplied
    }

    /// The running operation cannot go on without `needs`.
    fn lacks(&self, needs: Needs) -> KvError {
        let known = self.known.borrow();
        // What was announced should have it. If not, the operation stops here once more.
        let announced = self.announced.take().unknown(&known);
        let lacking = if announced.is_empty() { needs } else { announced };
        self.needs.borrow_mut().add_needs(lacking, &known);
        KvError::NotFetched
    }
}

impl Read for Pending<'_> {
    fn prefetch(&self, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), KvError> {
        // It may read here itself.
        let wanted = wanted();
        let mut unknown = Needs::default();
        unknown.add(wanted, &self.known.borrow());
        if unknown.is_empty() {
            return Ok(());
        }
        if self.cache.supply_part(For::Committer, &unknown, &mut self.known.borrow_mut()).is_some() {
            self.trusts_cache.set(true);
        }
        self.announced.borrow_mut().add_needs(unknown, &self.known.borrow());
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let find = || self.known.borrow().get(key).map(|known| known.map(<[u8]>::to_vec));
        if let Some(known) = find() {
            return Ok(known);
        }
        let needs = Needs::of_key(key);
        if self.is_supplied(&needs)
            && let Some(known) = find()
        {
            return Ok(known);
        }
        Err(self.lacks(needs))
    }

    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        let (mut start, mut end) = (start.to_vec(), end.to_vec());
        loop {
            // The visitor may read more, so nothing is borrowed while it runs.
            let (visited, scanned) = self.known.borrow().entries_between((&start, &end), order);
            for (key, value) in &visited {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            match scanned {
                Scanned::Done => return Ok(()),
                Scanned::Missing { start: from, end: to } => (start, end) = (from, to),
            }
            let mut needs = Needs::default();
            needs.add_range(Range { start: start.clone(), end: end.clone(), order, most: FETCH });
            if !self.is_supplied(&needs) {
                return Err(self.lacks(needs));
            }
        }
    }
}
