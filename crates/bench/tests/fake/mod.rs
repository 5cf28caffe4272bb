//! A system that does what a test wants to see: a real one on a path, with some of its operations refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bench::target::{Entry, Manner, OpenFile, Purpose, RelName, Room, Session, Target, TargetError};

/// Refuses every so-many-th change of a file, as a system does that is short of something for a moment.
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

    fn open(&mut self, name: &RelName, purpose: Purpose, manner: Manner) -> Result<Box<dyn OpenFile>, TargetError> {
        if purpose != Purpose::Read {
            self.change()?;
        }
        self.inner.open(name, purpose, manner)
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

    fn room(&mut self) -> Result<Option<Room>, TargetError> {
        self.inner.room()
    }
}
