//! A look at the entries by a process that has no committer's place.

use std::sync::Arc;
use std::time::Duration;

use kv::Read;

use crate::DatabaseAddress;
use crate::cache::{Cache, Seen};
use crate::pool::Pool;
use crate::session::{Connector, Limits};
use crate::snapshot::{Changes, Snapshot, Source};

/// How long it waits for a connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// Reads one state of the entries. Changes nothing, and disturbs no process that commits. `work` gets the errors of the database from what it reads.
pub fn read_once<T>(address: &DatabaseAddress, work: impl FnOnce(&dyn Read) -> T) -> T {
    let pool = Pool::new(Arc::new(Connector::new(address.clone(), Limits::LOOK)), 1, PATIENCE);
    let cache = Cache::new(Seen::default(), 0);
    work(&Snapshot::new(Source { pool: &pool, cache: &cache, may_be_cached: false, changes: Changes::Nobodys }))
}
