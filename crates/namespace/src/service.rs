//! The thin convenience on top: a namespace on an engine, with its numbers, its session and its counters.

use std::sync::Arc;

use kv::{Durability, Kv, Read};
use types::{Incarnation, SessionId, Timestamp};

use crate::{Actor, Context, IdSource, Limits, NsError, Operation, RequestNumber};

/// Settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamespaceConfig {
    /// Bounds and defaults of operations.
    pub limits: Limits,
    /// Numbers taken at a time; 2^20 but in tests.
    pub id_range: u64,
}

impl Default for NamespaceConfig {
    fn default() -> Self {
        Self { limits: Limits::default(), id_range: 1 << 20 }
    }
}

/// Counts since the start, by operation (index: [`crate::OpTag`] as a number).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CountersSnapshot {
    /// Changes that were committed.
    pub done: Vec<u64>,
    /// Changes that were refused.
    pub refused: Vec<u64>,
    /// Changes that the engine failed.
    pub failed: Vec<u64>,
}

/// A namespace. Shared by all threads of a server.
pub struct Namespace {
    kv: Arc<dyn Kv>,
}

impl Namespace {
    /// Opens the namespace on `kv`, making the root directory if it is empty, and takes the first numbers. Waits for
    /// the disk.
    pub fn open(kv: Arc<dyn Kv>, now: Timestamp, config: NamespaceConfig) -> Result<Arc<Namespace>, NsError> {
        todo!("{now} {config:?} {}", kv.snapshot().get(b"")?.is_some())
    }

    /// This life of the namespace.
    pub fn incarnation(&self) -> Incarnation {
        todo!()
    }

    /// This run of the server.
    pub fn session(&self) -> SessionId {
        todo!()
    }

    /// Where numbers come from.
    pub fn ids(&self) -> &Arc<IdSource> {
        todo!()
    }

    /// What operations are handed.
    pub fn context(&self, now: Timestamp, actor: &Actor, request: Option<RequestNumber>) -> Context {
        todo!("{now} {actor:?} {request:?}")
    }

    /// Reads on a consistent view of committed state.
    pub fn read<T>(&self, reading: impl FnOnce(&dyn Read) -> Result<T, NsError>) -> Result<T, NsError> {
        reading(&*self.kv.snapshot())
    }

    /// Queues a change; `done` is called once, on an engine thread, when it is as durable as asked or refused.
    /// It must not block.
    pub fn change<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        ctx: Context,
        op: O,
        done: impl FnOnce(Result<O::Reply, NsError>) + Send + 'static,
    ) {
        let _ = (durability, ctx, op, done);
        todo!()
    }

    /// Makes a change and waits for it.
    pub fn change_wait<O: Operation + Send + 'static>(
        &self,
        durability: Durability,
        ctx: Context,
        op: O,
    ) -> Result<O::Reply, NsError> {
        let _ = (durability, ctx, op);
        todo!()
    }

    /// What was done since the start.
    pub fn counters(&self) -> CountersSnapshot {
        todo!()
    }
}
