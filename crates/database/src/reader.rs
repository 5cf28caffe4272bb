//! [`PostgresReader`]: the entries of a database whose changes another process makes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kv::{Durability, Kv, KvError, Op, OpDone, Read};

use crate::cache::Seen;
use crate::pool::Pool;
use crate::session::{Connector, Limits};
use crate::snapshot::{Snapshot, Source};
use crate::{DatabaseAddress, PostgresConfig};

/// Keys and values in a database of PostgreSQL's family, for reading. Each snapshot begins with a transaction of its own, so it sees everything that was
/// acknowledged before. It never shows less than an earlier snapshot of this value has shown: a server that lacks that is not read from.
///
/// It connects when somebody reads.
pub struct PostgresReader {
    connector: Arc<Connector>,
    pool: Pool,
}

impl PostgresReader {
    /// Reads what the committer `name` writes to the database at `address`. Of `config` it uses what is about readers.
    #[must_use]
    pub fn new(address: &DatabaseAddress, name: &str, config: &PostgresConfig) -> Self {
        // Readers can be sent to the process that makes the changes.
        let connector = Arc::new(Connector::new(address.clone(), Limits::LOOK));
        connector.acknowledged.begin_to_follow(name);
        let pool = Pool::new(Arc::clone(&connector), config.connections, config.readers_patience);
        Self { connector, pool }
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
        Box::new(Snapshot::new(Source { pool: &self.pool, own: None, follows: Some(&self.connector.acknowledged) }))
    }

    fn submit(&self, _: Durability, _: Op, done: OpDone) {
        done(Err(KvError::Stopped { reason: "another process makes the changes of this database".into() }));
    }
}
