//! The registered sessions of the service.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::session::Session;

/// Sessions by number.
pub(crate) struct Sessions {
    known: Mutex<HashMap<u64, Arc<Session>>>,
    next: AtomicU64,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self { known: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// A number that no other session of this run has had.
    pub(crate) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add(&self, session: &Arc<Session>) {
        self.known.lock().insert(session.number(), Arc::clone(session));
    }

    pub(crate) fn remove(&self, number: u64) {
        self.known.lock().remove(&number);
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Session>> {
        self.known.lock().get(&number).cloned()
    }

    /// The number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.known.lock().len()
    }

    /// All registered sessions.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.known.lock().values().cloned().collect()
    }
}
