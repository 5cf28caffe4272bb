//! [`PostgresReader`]: the entries of a database whose changes another process makes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kv::{Durability, Kv, KvError, Op, OpDone, Read};

use crate::cache::{Cache, Seen};
use crate::following::{AskChanges, Following};
use crate::pool::Pool;
use crate::session::{Connector, Limits};
use crate::snapshot::{Changes, Snapshot, Source};
use crate::{DatabaseAddress, PostgresConfig};

/// Keys and values in a database of PostgreSQL's family, for reading. Each snapshot sees everything that was acknowledged before it began: it reads in a
/// transaction of its own, or has the other process asked what has changed ([`PostgresReader::ask_with`]). It never shows less than an earlier snapshot of
/// this value has shown: a server that lacks that is not read from.
///
/// It connects when somebody reads.
pub struct PostgresReader {
    connector: Arc<Connector>,
    pool: Pool,
    cache: Cache,
    following: Following,
}

impl PostgresReader {
    /// Reads what the committer `name` writes to the database at `address`. Of `config` it uses what is about readers.
    #[must_use]
    pub fn new(address: &DatabaseAddress, name: &str, config: &PostgresConfig) -> Self {
        // Readers can be sent to the process that makes the changes.
        let connector = Arc::new(Connector::new(address.clone(), Limits::LOOK));
        connector.acknowledged.begin_to_follow(name);
        let pool = Pool::new(Arc::clone(&connector), config.connections, config.readers_patience);
        let cache = Cache::new(Seen::default(), config.cache_bytes);
        Self { connector, pool, cache, following: Following::default() }
    }

    /// How the other process is asked what it has committed, by [`crate::Postgres::tell_changes`]. From then on, what is known of the entries is read
    /// without the database. The last call counts.
    pub fn ask_with(&self, ask: AskChanges) {
        self.following.ask_with(ask);
    }

    /// Has the other process asked what it has committed, although nobody reads: after too many changes, nothing of what is known would be sure any more.
    pub fn follow_changes(&self) {
        self.following.refresh(&self.cache, &self.connector.acknowledged);
    }

    fn source(&self, may_be_cached: bool) -> Source<'_> {
        let changes = Changes::Followed(&self.following, &self.connector.acknowledged);
        Source { pool: &self.pool, cache: &self.cache, may_be_cached, changes }
    }

    /// Another process knows that so much is acknowledged. A server that lacks it is not read from any more.
    pub fn note(&self, fence: i64, batch: i64) {
        self.connector.acknowledged.note(Seen { batch, fence });
    }

    /// Round trips to the database since the start.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.connector.round_trips.load(Ordering::Relaxed)
    }
}

impl Kv for PostgresReader {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        Box::new(Snapshot::new(self.source(false)))
    }

    fn cached_snapshot(&self) -> Box<dyn Read + Send + '_> {
        Box::new(Snapshot::new(self.source(true)))
    }

    fn submit(&self, _: Durability, _: Op, done: OpDone) {
        done(Err(KvError::Stopped { reason: "another process makes the changes of this database".into() }));
    }
}
