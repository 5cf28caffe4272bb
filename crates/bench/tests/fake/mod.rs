//! Artificial systems for tests.

#![allow(dead_code)] // each test takes one of them

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_bench::memory::Memory;
use weir_bench::target::{
    Done, Entry, IoOptions, OpenFile, Purpose, RelName, Session, SystemSpace, Target, TargetError,
};

/// A real system that refuses every n-th change of a file, like a system with a short-lived shortage.
pub struct Flaky {
    pub inner: Arc<dyn Target>,
    pub every: u64,
    pub changes: Arc<AtomicU64>,
}

struct FlakySession {
    inner: Box<dyn Session>,
    every: u64,
    changes: Arc<AtomicU64>,
}

impl Target for Flaky {
    fn window_max(&self) -> usize {
        self.inner.window_max()
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        let (inner, changes) = (self.inner.session()?, Arc::clone(&self.changes));
        Ok(Box::new(FlakySession { inner, every: self.every, changes }))
    }
}

impl FlakySession {
    fn change(&self) -> Result<(), TargetError> {
        if (self.changes.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every) {
            let source = std::io::Error::other("not now");
            return Err(TargetError::Path { what: "change something".to_owned(), source });
        }
        Ok(())
    }
}

impl Session for FlakySession {
    fn make_home(&mut self) -> Result<(), TargetError> {
        self.inner.make_home()
    }

    fn remove_home(&mut self) -> Result<(), TargetError> {
        self.inner.remove_home()
    }

    fn open(
        &mut self,
        name: &RelName,
        purpose: Purpose,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        if purpose != Purpose::Read {
            self.change()?;
        }
        self.inner.open(name, purpose, io_options)
    }

    fn make_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.inner.make_directory(name)
    }

    fn len_of(&mut self, name: &RelName) -> Result<Option<u64>, TargetError> {
        self.inner.len_of(name)
    }

    fn list(&mut self, name: &RelName, each: &mut dyn FnMut(Entry)) -> Result<(), TargetError> {
        self.inner.list(name, each)
    }

    fn remove(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.change()?;
        self.inner.remove(name)
    }

    fn remove_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.inner.remove_directory(name)
    }

    fn room(&mut self) -> Result<Option<SystemSpace>, TargetError> {
        self.inner.room()
    }
}

/// A system that stores nothing and delays each answer, like a distant one.
#[derive(Clone)]
pub struct DelayedSystem {
    pub round_trip: Duration,
    /// How many requests keep its connections busy, as its driver says.
    pub needs_window: usize,
    /// The most requests that were under way on one file.
    pub most_under_way: Arc<AtomicUsize>,
}

impl DelayedSystem {
    pub fn new(round_trip: Duration, needs_window: usize) -> Self {
        Self { round_trip, needs_window, most_under_way: Arc::default() }
    }
}

struct DistantFile {
    system: DelayedSystem,
    under_way: VecDeque<(u64, Memory, Instant)>,
}

impl Target for DelayedSystem {
    fn window_max(&self) -> usize {
        64
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for DelayedSystem {
    fn make_home(&mut self) -> Result<(), TargetError> {
        Ok(())
    }

    fn remove_home(&mut self) -> Result<(), TargetError> {
        Ok(())
    }

    fn open(&mut self, _: &RelName, _: Purpose, _: IoOptions) -> Result<Box<dyn OpenFile>, TargetError> {
        Ok(Box::new(DistantFile { system: self.clone(), under_way: VecDeque::new() }))
    }

    fn make_directory(&mut self, _: &RelName) -> Result<(), TargetError> {
        Ok(())
    }

    fn len_of(&mut self, _: &RelName) -> Result<Option<u64>, TargetError> {
        Ok(None)
    }

    fn list(&mut self, _: &RelName, _: &mut dyn FnMut(Entry)) -> Result<(), TargetError> {
        Ok(())
    }

    fn remove(&mut self, _: &RelName) -> Result<(), TargetError> {
        Ok(())
    }

    fn remove_directory(&mut self, _: &RelName) -> Result<(), TargetError> {
        Ok(())
    }

    fn room(&mut self) -> Result<Option<SystemSpace>, TargetError> {
        Ok(None)
    }
}

impl OpenFile for DistantFile {
    fn window_for(&self, _: usize) -> usize {
        self.system.needs_window
    }

    fn write(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError> {
        self.under_way.push_back((offset, memory, Instant::now()));
        self.system.most_under_way.fetch_max(self.under_way.len(), Ordering::Relaxed);
        Ok(())
    }

    fn read(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError> {
        self.write(offset, memory)
    }

    fn done(&mut self) -> Result<Option<Done>, TargetError> {
        let Some((offset, memory, since)) = self.under_way.pop_front() else { return Ok(None) };
        std::thread::sleep(self.system.round_trip.saturating_sub(since.elapsed()));
        Ok(Some(Done { offset, memory, took: since.elapsed() }))
    }

    fn done_until(&mut self, end: Instant) -> Result<Option<Done>, TargetError> {
        match self.under_way.front() {
            Some((_, _, since)) if *since + self.system.round_trip <= end => self.done(),
            _ => Ok(None),
        }
    }

    fn sync(&mut self) -> Result<(), TargetError> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), TargetError> {
        Ok(())
    }
}
