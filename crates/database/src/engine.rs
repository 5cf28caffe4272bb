//! [`Postgres`]: the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kv::committing::{Queue, Request, Responder};
use kv::{BatchDone, Durability, Kv, Op, OpDone, Read};
use parking_lot::Mutex;
use types::ClusterId;

use crate::away::{Away, Outage};
use crate::cache::{Cache, Seen};
use crate::committer::Committer;
use crate::following::{Question, Told};
use crate::holder::Holder;
use crate::place::Place;
use crate::place_lease::{OwnLease, PlaceLease, Vacancy};
use crate::pool::Pool;
use crate::session::{Connector, Limits};
use crate::signs_of_life::{SignedRow, SignsOfLife};
use crate::silence::wait_for_silence;
use crate::snapshot::{Changes, Snapshot, Source};
use crate::watch::Watch;
use crate::{DatabaseAddress, DatabaseError, schema};

/// How the engine works. The default is for production.
#[derive(Clone, Debug)]
pub struct PostgresConfig {
    /// Connections for readers at most. The committer has one of its own.
    pub connections: usize,
    /// How long changes wait for a database that is away, before they fail.
    pub patience: Duration,
    /// How long readers wait for it, or for a connection. They can be told to come again, so it is shorter.
    pub readers_patience: Duration,
    /// How long a statement may run.
    pub statement: Duration,
    /// How long it may wait for a lock.
    pub lock: Duration,
    /// Operations that may wait; with more, [`Kv::submit`] blocks.
    pub queue_max: usize,
    /// Operations in a batch at most.
    pub batch_ops_max: usize,
    /// Bytes of changes at which a batch takes no more operations.
    pub batch_bytes: usize,
    /// How long the committer waits for the clients of the last batch to return, before it commits fewer operations.
    pub linger: Duration,
    /// Collisions with other transactions after which an operation fails.
    pub retries_max: u32,
    /// The wait between attempts to connect.
    pub between_attempts: Duration,
    /// How much is known of the entries without asking the database, in bytes. 0 if committers of other names change the same database: what is known
    /// is exact only if nobody else commits.
    pub cache_bytes: usize,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            connections: 16,
            patience: Duration::from_secs(30),
            readers_patience: Duration::from_secs(3),
            statement: Duration::from_secs(20),
            lock: Duration::from_secs(10),
            queue_max: 4096,
            batch_ops_max: 1024,
            batch_bytes: 4 << 20,
            linger: Duration::from_micros(50),
            retries_max: 20,
            between_attempts: Duration::from_millis(100),
            cache_bytes: 256 << 20,
        }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PostgresStats {
    /// Batches committed.
    pub batches: u64,
    /// Operations in them that changed something.
    pub committed: u64,
    /// Operations that decided to change nothing.
    pub aborted: u64,
    /// Operations that failed by themselves.
    pub refused: u64,
    /// Batches that collided with other transactions, and ran again.
    pub conflicts: u64,
    /// Commits whose answer was lost.
    pub answers_lost: u64,
    /// How often the committer connected again.
    pub reconnected: u64,
    /// Round trips to the database, of the committer and of readers, without the committer's signs of life.
    pub round_trips: u64,
    /// Operations in the largest batch.
    pub largest_batch: u64,
    /// The longest time from the start of a batch to its commit.
    pub longest_batch: Duration,
}

/// Keys and values in a database of PostgreSQL's family.
pub struct Postgres {
    connector: Arc<Connector>,
    pool: Pool,
    queue: Arc<Queue>,
    responder: Responder,
    stats: Arc<Mutex<PostgresStats>>,
    cluster: Option<ClusterId>,
    end: Arc<Mutex<Option<DatabaseError>>>,
    watch: Watch,
    /// Whether the committer cannot commit now.
    away: Arc<Away>,
    cache: Arc<Cache>,
    lease: Arc<Mutex<OwnLease>>,
    holder: Arc<Mutex<Option<String>>>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

/// How an engine is opened.
#[derive(Clone, Copy)]
enum Opening<'a> {
    /// When no process has a lease on the place.
    IfSilent,
    /// The same, also on a database that is closed.
    Repair,
    /// Only if the place still has this state.
    IfFree(&'a Vacancy),
}

impl Postgres {
    /// Connects to the database, checks its tables, and takes the place of the committer `name`: at once if it was given up, else after 5 s without a
    /// sign of life. So no other process has a lease.
    ///
    /// # Errors
    /// [`DatabaseError::InUse`]: another process has the place, and lives. [`DatabaseError::Schema`]: the tables are missing, of another version, or closed.
    /// [`DatabaseError::Unavailable`], [`DatabaseError::Refused`].
    pub fn open(address: &DatabaseAddress, name: &str, config: PostgresConfig) -> Result<Self, DatabaseError> {
        Self::open_for(address, name, config, Opening::IfSilent)?.ok_or_else(|| not_taken(address))
    }

    /// Like [`Postgres::open`], but takes the place only if it is as [`crate::PlaceWatch::look`] found it. `None`: another process has taken it, or the
    /// one that has it lives.
    ///
    /// # Errors
    /// As [`Postgres::open`]. After an error the place may have been taken for this process, which looks to others as if it had died.
    pub fn open_if_free(
        address: &DatabaseAddress,
        name: &str,
        config: PostgresConfig,
        vacancy: &Vacancy,
    ) -> Result<Option<Self>, DatabaseError> {
        Self::open_for(address, name, config, Opening::IfFree(vacancy))
    }

    /// Like [`Postgres::open`], also on a database that is closed: for the repair of its namespace.
    ///
    /// # Errors
    /// As [`Postgres::open`].
    pub fn open_closed(address: &DatabaseAddress, name: &str, config: PostgresConfig) -> Result<Self, DatabaseError> {
        Self::open_for(address, name, config, Opening::Repair)?.ok_or_else(|| not_taken(address))
    }

    fn open_for(
        address: &DatabaseAddress,
        name: &str,
        config: PostgresConfig,
        opening: Opening<'_>,
    ) -> Result<Option<Self>, DatabaseError> {
        let limits = Limits { statement: config.statement, lock: config.lock };
        let connector = Arc::new(Connector::new(address.clone(), limits));
        let (mut connection, shown) = (connector.connect_bare()?, address.to_string());
        let cluster = if matches!(opening, Opening::Repair) {
            connector.acknowledged.begin_repair();
            schema::check_version(&mut connection, &shown)?;
            schema::owner(&mut connection, &shown, "")?.cluster
        } else {
            schema::check(&mut connection, &shown)?
        };
        let vacancy = match opening {
            Opening::IfSilent | Opening::Repair => Vacancy(wait_for_silence(&mut connection, Some(name))?.place(name)),
            Opening::IfFree(vacancy) => vacancy.clone(),
        };
        drop(connection);
        let Some((place, session)) = Place::take(&connector, name, &vacancy)? else { return Ok(None) };
        let (lease, holder) = (Arc::clone(place.own.lease()), Arc::<Mutex<Option<String>>>::default());
        let failed =
            |error: &dyn std::fmt::Display| DatabaseError::Failed(format!("cannot start the committer: {error}"));
        let queue = Arc::new(Queue::new(config.queue_max));
        let responder = Responder::start(Arc::clone(&queue)).map_err(|error| failed(&error))?;
        let stats = Arc::<Mutex<PostgresStats>>::default();
        let end = Arc::<Mutex<Option<DatabaseError>>>::default();
        let away = Arc::<Away>::default();
        let cache = Arc::new(Cache::new(place.own.at(), config.cache_bytes));
        let row = SignedRow { name: name.into(), lease: Arc::clone(&lease), holder: Arc::clone(&holder) };
        let signs = (config.cache_bytes > 0).then(|| SignsOfLife::start(address, row)).transpose();
        let signs = signs.map_err(|error| failed(&error))?;
        let pool = Pool::new(Arc::clone(&connector), config.connections, config.readers_patience);
        let committer = Committer {
            connector: Arc::clone(&connector),
            queue: Arc::clone(&queue),
            stats: Arc::clone(&stats),
            config,
            place,
            session: Some(session),
            away: Arc::clone(&away),
            cache: Arc::clone(&cache),
            end: Arc::clone(&end),
            holder: Arc::clone(&holder),
            signs,
        };
        let answers = responder.answers();
        let thread = std::thread::Builder::new().name("committer".into()).spawn(move || committer.run(answers));
        let committer = Mutex::new(Some(thread.map_err(|error| failed(&error))?));
        let watch = Watch::start(address.clone())
            .map_err(|error| DatabaseError::Failed(format!("cannot start the watch over the database: {error}")))?;
        Ok(Some(Self {
            connector,
            pool,
            queue,
            responder,
            stats,
            cluster,
            end,
            watch,
            away,
            cache,
            lease,
            holder,
            committer,
        }))
    }

    /// Whether this process may act as the one that has the place. It holds for 4 s after the sending of the last change of the row that the database
    /// has confirmed; the committer changes it at least once a second.
    #[must_use]
    pub fn lease(&self) -> PlaceLease {
        self.lease.lock().at(Instant::now())
    }

    /// The fence of this process, and the last acknowledged batch.
    #[must_use]
    pub fn acknowledged(&self) -> (i64, i64) {
        let at = self.connector.acknowledged.least();
        (at.fence, at.batch)
    }

    /// What has changed, for another process: see [`crate::PostgresReader::ask_with`]. `None`: there is no lease, so that process may know more.
    #[must_use]
    pub fn tell_changes(&self, question: Question) -> Option<Told> {
        let at = |(fence, batch)| Seen { batch, fence };
        self.cache.saw(at(question.seen));
        let told = self.cache.changes_since(at(question.since)).map_or(Told::Later, Told::Changes);
        // Looked at last: nobody else can have committed anything before.
        self.lease().is_held().then_some(told)
    }

    /// What other processes are told about this one ([`crate::Standing::Held`]). It is in the database after a second or two.
    pub fn set_holder(&self, holder: &Holder) {
        let text = holder.to_text();
        if text.is_none() {
            tracing::error!("the addresses of this process are too long to be told to others");
        }
        *self.holder.lock() = text;
    }

    fn source(&self, may_be_cached: bool) -> Source<'_> {
        Source { pool: &self.pool, cache: &self.cache, may_be_cached, changes: Changes::Own(&self.lease) }
    }

    /// The cluster whose namespace the database has. `None` before [`Postgres::claim`].
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Notes that the database has the namespace of `cluster`, unless it has another one's. Returns whose it is.
    ///
    /// # Errors
    /// Those of the database.
    pub fn claim(&self, cluster: ClusterId) -> Result<ClusterId, DatabaseError> {
        let found = schema::claim(&mut self.connector.connect_bare()?, &self.address(), cluster)?;
        Ok(found.unwrap_or(cluster))
    }

    /// What a connection of this engine waits for at a commit, in the words of the database.
    ///
    /// # Errors
    /// Those of the database.
    pub fn synchronous_commit(&self) -> Result<String, DatabaseError> {
        let rows = self.connector.connect_bare()?.query("SHOW synchronous_commit", &[])?;
        Ok(rows.first().map(|row| row.get(0)).unwrap_or_default())
    }

    /// Makes `hook` run after the completions of each batch.
    pub fn on_batch_done(&self, hook: BatchDone) {
        self.responder.set_hook(hook);
    }

    /// Why no operation is committed any more, if that is so. Acknowledged operations are durable.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.queue.broken().or_else(|| self.connector.acknowledged.lost().map(|error| error.to_string()))
    }

    /// The database's reason for [`Postgres::broken`]: another process commits in this one's place, or the database has lost changes.
    #[must_use]
    pub fn end(&self) -> Option<DatabaseError> {
        self.end.lock().clone().or_else(|| self.connector.acknowledged.lost())
    }

    /// The address, without a password.
    #[must_use]
    pub fn address(&self) -> String {
        self.connector.address.to_string()
    }

    /// Whether the database is away, or accepts no changes. It is noticed within seconds, whether or not anybody asks for something.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.watch.outage().or_else(|| self.away.outage())
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> PostgresStats {
        PostgresStats { round_trips: self.connector.round_trips.load(Ordering::Relaxed), ..*self.stats.lock() }
    }

    /// Stops committing: all waiting and later operations fail at once, for this reason. Readers go on until [`Postgres::stop`].
    pub fn break_off(&self, why: &str) {
        self.queue.break_off(why);
    }

    /// Commits and answers all queued operations, gives the place up, and ends the threads. Operations and completions must not call this.
    pub fn stop(&self) {
        self.queue.close();
        if let Some(committer) = self.committer.lock().take() {
            // Panics of operations are caught. The panic hook has reported one of the committer itself.
            let _ = committer.join();
        }
        self.responder.stop();
        self.watch.stop();
    }
}

fn not_taken(address: &DatabaseAddress) -> DatabaseError {
    DatabaseError::InUse(format!(
        "another process has just become active on the database {address}; stop it, and try again"
    ))
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Kv for Postgres {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        Box::new(Snapshot::new(self.source(false)))
    }

    fn cached_snapshot(&self) -> Box<dyn Read + Send + '_> {
        Box::new(Snapshot::new(self.source(true)))
    }

    // A database has one kind of commit.
    fn submit(&self, durability: Durability, op: Op, done: OpDone) {
        self.queue.push(Request { durability, urgent: false, op, done });
    }
}
