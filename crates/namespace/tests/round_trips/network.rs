//! An engine that counts round trips, as one over a network needs them: what a view or a transaction has not fetched yet costs one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use kv::{
    Chain, Durability, Follow, ID_LEN, Kv, KvError, MemoryKv, Op, OpDone, OpOutcome, Prefetch, Read, Savepoint,
    ScanOrder, Txn, Visit,
};

/// What one view or transaction has cost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trips {
    pub count: u32,
    /// What was read without having been asked for, or only in a later round.
    pub missed: Vec<String>,
}

/// More are a bug: an operation reads other keys in each run.
const TRIPS_MAX: u32 = 20;

#[derive(Default)]
pub struct NetworkKv {
    inner: MemoryKv,
    pub last: Arc<Mutex<Trips>>,
}

/// What was fetched: keys, and ranges without gaps.
#[derive(Default)]
struct Known {
    keys: BTreeSet<Vec<u8>>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

fn shown(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The first key after all that begin with `prefix`.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

impl Known {
    fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key) || self.end_from(key).is_some()
    }

    /// Up to where all is known from `start` on.
    fn end_from(&self, start: &[u8]) -> Option<Vec<u8>> {
        let covers = |(first, end): &&(Vec<u8>, Vec<u8>)| first.as_slice() <= start && start < end.as_slice();
        self.ranges.iter().filter(covers).map(|(_, end)| end.clone()).max()
    }

    fn has_range(&self, start: &[u8], end: &[u8]) -> bool {
        let mut at = start.to_vec();
        while at.as_slice() < end {
            match self.end_from(&at) {
                Some(next) => at = next,
                None => return false,
            }
        }
        true
    }
}

/// Every key and range that a prefetch leads to, with what was there.
struct Leads<'a> {
    base: &'a dyn Read,
    key: &'a mut dyn FnMut(Vec<u8>),
    range: &'a mut dyn FnMut(Vec<u8>, Vec<u8>, u32),
}

impl Leads<'_> {
    fn of(&mut self, prefetch: &Prefetch) {
        match prefetch {
            Prefetch::Key(key) => (self.key)(key.clone()),
            Prefetch::Range { start, end, most } => (self.range)(start.clone(), end.clone(), *most),
            Prefetch::Chain(chain) => self.chain(chain),
        }
    }

    fn chain(&mut self, chain: &Chain) {
        let (mut id, mut value) = (chain.first.to_vec(), None);
        for after in 0.. {
            let here = |follow: &&Follow| follow.after as usize == after;
            for follow in chain.follow.iter().filter(here) {
                self.follow(follow, &id, value.as_deref());
            }
            let Some(name) = chain.names.get(after) else { return };
            let key = [&chain.prefix, &id, name].map(Vec::as_slice).concat();
            (self.key)(key.clone());
            value = self.base.get(&key).unwrap();
            let next = value.as_ref().and_then(|value| id_at(value, chain.id_at));
            match (next, &value) {
                (Some(next), _) => id = next,
                // A short value leads no further, but what follows it may have other places.
                (None, Some(_)) => id = Vec::new(),
                (None, None) => return,
            }
        }
    }

    fn follow(&mut self, follow: &Follow, id: &[u8], value: Option<&[u8]>) {
        let ids: Option<Vec<u8>> = match follow.ids_at.as_slice() {
            [] => Some(id.to_vec()).filter(|id| id.len() == ID_LEN),
            places => {
                assert!(places.len() <= 2, "too many ids: {follow:?}");
                let ids = places.iter().map(|at| value.and_then(|value| id_at(value, *at)));
                ids.collect::<Option<Vec<_>>>().map(|ids| ids.concat())
            }
        };
        let rest = match follow.rest_at {
            None => Some(&[][..]),
            Some(at) => value.and_then(|value| value.get(at as usize..)),
        };
        let (Some(ids), Some(rest)) = (ids, rest) else { return };
        let key = [&follow.prefix, ids.as_slice(), &follow.suffix, rest].concat();
        match follow.most {
            None => (self.key)(key),
            Some(most) => (self.range)(key.clone(), end_of(&key), most),
        }
    }
}

fn id_at(value: &[u8], at: u32) -> Option<Vec<u8>> {
    value.get(at as usize..at as usize + ID_LEN).map(<[u8]>::to_vec)
}

/// Whether all that it leads to is known. Nothing unknown is looked at: a chain stops there.
fn is_known(known: &Known, base: &dyn Read, prefetch: &Prefetch) -> bool {
    let all = Cell::new(true);
    let mut leads = Leads {
        base,
        key: &mut |key| all.set(all.get() && known.has(&key)),
        range: &mut |start, end, most| {
            let known_part = known_range(base, &start, &end, most);
            all.set(all.get() && known.has_range(&known_part.0, &known_part.1));
        },
    };
    leads.of(prefetch);
    all.get()
}

/// The part of a range that at most so many entries cover.
fn known_range(base: &dyn Read, start: &[u8], end: &[u8], most: u32) -> (Vec<u8>, Vec<u8>) {
    let (mut count, mut last) = (0, start.to_vec());
    base.scan(start, end, ScanOrder::Ascending, &mut |key, _| {
        if count == most {
            return ControlFlow::Break(());
        }
        count += 1;
        last = behind(key);
        ControlFlow::Continue(())
    })
    .unwrap();
    (start.to_vec(), if count < most { end.to_vec() } else { last })
}

/// One round trip.
fn fetch(known: &mut Known, base: &dyn Read, wanted: &[Prefetch]) {
    let (mut keys, mut ranges) = (Vec::new(), Vec::new());
    for prefetch in wanted {
        let mut range = |start: Vec<u8>, end: Vec<u8>, most| ranges.push(known_range(base, &start, &end, most));
        Leads { base, key: &mut |key| keys.push(key), range: &mut range }.of(prefetch);
    }
    known.keys.extend(keys);
    known.ranges.extend(ranges);
}

/// A view: it fetches at once.
struct View<'a> {
    base: Box<dyn Read + Send + 'a>,
    known: RefCell<Known>,
    trips: RefCell<Trips>,
    last: Arc<Mutex<Trips>>,
}

impl View<'_> {
    fn fetch(&self, wanted: &[Prefetch], missed: Option<String>) {
        let mut trips = self.trips.borrow_mut();
        trips.count += 1;
        trips.missed.extend(missed);
        fetch(&mut self.known.borrow_mut(), &*self.base, wanted);
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        *self.last.lock().unwrap() = self.trips.borrow().clone();
    }
}

impl Read for View<'_> {
    fn prefetch(&self, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), KvError> {
        let mut wanted = wanted();
        wanted.retain(|one| !is_known(&self.known.borrow(), &*self.base, one));
        if !wanted.is_empty() {
            self.fetch(&wanted, None);
        }
        Ok(())
    }
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        if !self.known.borrow().has(key) {
            self.fetch(&[Prefetch::Key(key.to_vec())], Some(shown(key)));
        }
        self.base.get(key)
    }
    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        let read = scan(&*self.base, start, end, order, visit);
        if !self.known.borrow().has_range(&read.0, &read.1) {
            let all = Prefetch::Range { start: start.to_vec(), end: end.to_vec(), most: u32::MAX };
            self.fetch(&[all], Some(format!("{}..", shown(start))));
        }
        Ok(())
    }
}

/// Scans, and returns the part that this has looked at.
fn scan(base: &dyn Read, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> (Vec<u8>, Vec<u8>) {
    let mut read = (start.to_vec(), end.to_vec());
    base.scan(start, end, order, &mut |key, value| {
        let flow = visit(key, value);
        if flow.is_break() {
            match order {
                ScanOrder::Ascending => read.1 = behind(key),
                ScanOrder::Descending => read.0 = key.to_vec(),
            }
        }
        flow
    })
    .unwrap();
    read
}

/// One run of an operation: it stops at what is unknown.
struct Run<'a> {
    inner: &'a mut dyn Txn,
    known: &'a Known,
    changed: BTreeSet<Vec<u8>>,
    wanted: RefCell<Vec<Prefetch>>,
    missed: RefCell<Vec<String>>,
}

impl Read for Run<'_> {
    fn prefetch(&self, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), KvError> {
        let mut wanted = wanted();
        // The changes of this run are in the way, but so they are in no operation of these tests.
        wanted.retain(|one| !is_known(self.known, &*self.inner, one));
        if wanted.is_empty() {
            return Ok(());
        }
        self.wanted.borrow_mut().extend(wanted);
        Err(KvError::NotFetched)
    }
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        if self.known.has(key) || self.changed.contains(key) {
            return self.inner.get(key);
        }
        self.missed.borrow_mut().push(shown(key));
        self.wanted.borrow_mut().push(Prefetch::Key(key.to_vec()));
        Err(KvError::NotFetched)
    }
    fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Result<(), KvError> {
        let read = scan(&*self.inner, start, end, order, visit);
        if self.known.has_range(&read.0, &read.1) {
            return Ok(());
        }
        self.missed.borrow_mut().push(format!("{}..", shown(start)));
        self.wanted.borrow_mut().push(Prefetch::Range { start: start.to_vec(), end: end.to_vec(), most: u32::MAX });
        Err(KvError::NotFetched)
    }
}

impl Txn for Run<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.changed.insert(key.to_vec());
        self.inner.put(key, value);
    }
    fn delete(&mut self, key: &[u8]) {
        self.changed.insert(key.to_vec());
        self.inner.delete(key);
    }
    fn savepoint(&mut self) -> Savepoint {
        self.inner.savepoint()
    }
    fn rollback_to(&mut self, savepoint: Savepoint) {
        self.inner.rollback_to(savepoint);
    }
}

/// Runs an operation until it has read nothing unknown.
fn run(op: &mut Op, txn: &mut dyn Txn) -> (OpOutcome, Trips) {
    let (mut known, mut trips) = (Known::default(), Trips::default());
    loop {
        let start = txn.savepoint();
        let mut one = Run {
            inner: &mut *txn,
            known: &known,
            changed: BTreeSet::new(),
            wanted: RefCell::default(),
            missed: RefCell::default(),
        };
        let outcome = op(&mut one);
        let (wanted, missed) = (one.wanted.take(), one.missed.take());
        if wanted.is_empty() {
            return (outcome, trips);
        }
        txn.rollback_to(start);
        fetch(&mut known, &*txn, &wanted);
        trips.count += 1;
        trips.missed.extend(missed);
        assert!(trips.count < TRIPS_MAX, "it reads other keys in each run: {:?}", trips.missed);
    }
}

impl Kv for NetworkKv {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        let (known, trips) = (RefCell::default(), RefCell::default());
        Box::new(View { base: self.inner.snapshot(), known, trips, last: Arc::clone(&self.last) })
    }
    fn submit(&self, durability: Durability, mut op: Op, done: OpDone) {
        let last = Arc::clone(&self.last);
        let counted: Op = Box::new(move |txn| {
            let (outcome, trips) = run(&mut op, txn);
            *last.lock().unwrap() = trips;
            outcome
        });
        self.inner.submit(durability, counted, done);
    }
}
