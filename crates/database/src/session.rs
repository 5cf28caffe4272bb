//! A connection to the database. Each has its own event loop, which runs on the thread that uses the connection.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, join4, join5};
use kv::{Chain, ScanOrder};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Row};

use crate::cache::Seen;
use crate::chains::behind;
use crate::error::sorted;
use crate::fetched::Fetched;
use crate::needs::Needs;
use crate::place_lease::OwnLease;
use crate::statements::Statements;
use crate::{DatabaseAddress, DatabaseError, schema, tls};

/// What a warning of the server at a commit means.
const UNCONFIRMED: &str = "a commit is on the primary only: the wait for a standby was cancelled";
/// How long a connection to one host may take.
const CONNECT: Duration = Duration::from_secs(3);
/// An answer that has not come some time after the database gave up on its statement will not come any more.
const ANSWER_LATE: Duration = Duration::from_secs(5);

/// How connections behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How long a statement may run.
    pub(crate) statement: Duration,
    /// How long it may wait for a lock.
    pub(crate) lock: Duration,
}

impl Limits {
    /// For commands: nobody waits for them in the middle of other work.
    pub(crate) const COMMAND: Self = Self { statement: Duration::from_secs(600), lock: Duration::from_secs(30) };
    /// For looks: short, so that a database that hangs is noticed soon.
    pub(crate) const LOOK: Self = Self { statement: Duration::from_secs(3), lock: Duration::from_secs(3) };
}

/// What is known of the committer whose process this is: a reader's connection must not lead to a database without its changes.
#[derive(Default)]
pub(crate) struct Acknowledged {
    /// Its name; nothing is compared before it has one.
    name: OnceLock<String>,
    /// Its last acknowledged batch, and its fence.
    batch: AtomicI64,
    fence: AtomicI64,
    /// Raised whenever the committer connects again: earlier connections may lead to another server.
    generation: AtomicU64,
    /// Its lease.
    lease: OnceLock<Arc<Mutex<OwnLease>>>,
    /// Why nobody may use the database any more.
    lost: OnceLock<DatabaseError>,
    /// Whether this process works on a database that is closed to managers.
    is_repair: AtomicBool,
    /// Whether another process makes the changes: what is known of them is what readers have seen.
    follows: AtomicBool,
}

impl Acknowledged {
    pub(crate) fn begin(&self, name: &str, lease: Arc<Mutex<OwnLease>>) {
        let _ = self.lease.set(lease);
        let _ = self.name.set(name.to_owned());
    }

    /// Another process makes the changes, under this name.
    pub(crate) fn begin_to_follow(&self, name: &str) {
        self.follows.store(true, Ordering::SeqCst);
        let _ = self.name.set(name.to_owned());
    }

    /// This process works on a database that is closed to managers.
    pub(crate) fn begin_repair(&self) {
        self.is_repair.store(true, Ordering::SeqCst);
    }

    /// This batch and all before it are acknowledged, and this fence was taken.
    pub(crate) fn note(&self, at: Seen) {
        self.batch.fetch_max(at.batch, Ordering::SeqCst);
        self.fence.fetch_max(at.fence, Ordering::SeqCst);
    }

    /// What the database has at least.
    pub(crate) fn least(&self) -> Seen {
        Seen { batch: self.batch(), fence: self.fence.load(Ordering::SeqCst) }
    }

    /// The last batch that is known to be acknowledged.
    pub(crate) fn batch(&self) -> i64 {
        self.batch.load(Ordering::SeqCst)
    }

    /// The committer has connected again.
    pub(crate) fn connected_again(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Why nobody may use the database any more.
    pub(crate) fn lost(&self) -> Option<DatabaseError> {
        self.lost.get().cloned()
    }

    pub(crate) fn set_lost(&self, error: &DatabaseError) {
        // First: whoever sees the loss must not see a lease after it.
        if let Some(lease) = self.lease.get() {
            lease.lock().end(Instant::now());
        }
        let _ = self.lost.set(error.clone());
    }
}

/// Makes connections to one database.
pub(crate) struct Connector {
    pub(crate) address: DatabaseAddress,
    pub(crate) limits: Limits,
    pub(crate) acknowledged: Acknowledged,
    /// Round trips of all connections since the start.
    pub(crate) round_trips: AtomicU64,
    /// The host that was reached last: it is tried first.
    last_host: AtomicUsize,
    /// The text and the account of the address.
    place: (String, String),
}

impl Connector {
    pub(crate) fn new(address: DatabaseAddress, limits: Limits) -> Self {
        let place = (address.to_string(), address.user().to_owned());
        let (acknowledged, round_trips, last_host) = (Acknowledged::default(), AtomicU64::new(0), AtomicUsize::new(0));
        Self { address, limits, acknowledged, round_trips, last_host, place }
    }

    /// An error of the client library, sorted.
    pub(crate) fn sorted(&self, error: &tokio_postgres::Error) -> DatabaseError {
        sorted(error, (&self.place.0, &self.place.1))
    }

    pub(crate) fn unavailable(&self, reason: impl Into<String>) -> DatabaseError {
        DatabaseError::Unavailable { address: self.place.0.clone(), reason: reason.into() }
    }

    /// Connects to the first host that is there and accepts changes. The connection has no prepared statements, so the database may lack weir's tables.
    pub(crate) fn connect_bare(self: &Arc<Self>) -> Result<Connection, DatabaseError> {
        let hosts = self.address.hosts();
        let first = self.last_host.load(Ordering::Relaxed);
        let mut failed = self.unavailable("the address has no host");
        for place in 0..hosts.len() {
            let place = (first + place) % hosts.len();
            let Some(host) = hosts.get(place) else { continue };
            match self.connect_to(host) {
                Ok(connection) => {
                    self.last_host.store(place, Ordering::Relaxed);
                    return Ok(connection);
                }
                // Another host may say something that helps more.
                Err(error) if matches!(failed, DatabaseError::Unavailable { .. }) => failed = error,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    fn connect_to(self: &Arc<Self>, host: &Config) -> Result<Connection, DatabaseError> {
        let failed = |error: std::io::Error| DatabaseError::Failed(format!("cannot start an event loop: {error}"));
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
        let tls = tls::connector(&self.address)?;
        let (client, mut incoming) = {
            let connecting = async { tokio::time::timeout(CONNECT, host.connect(tls)).await };
            match runtime.block_on(connecting) {
                Ok(Ok(connected)) => connected,
                ended => {
                    // Looking a name up may take longer than anybody waits.
                    runtime.shutdown_background();
                    return Err(match ended {
                        Ok(Err(error)) => self.sorted(&error),
                        _ => self.unavailable(format!("no connection within {} s", CONNECT.as_secs())),
                    });
                }
            }
        };
        let warned = Arc::<AtomicBool>::default();
        let noticed = Arc::clone(&warned);
        let ended = Arc::<Mutex<Option<String>>>::default();
        let end = Arc::clone(&ended);
        runtime.spawn(async move {
            loop {
                match poll_fn(|context| incoming.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notice(notice))) => {
                        let is_warning = notice.parsed_severity() == Some(Severity::Warning);
                        if is_warning || notice.code().code().starts_with("01") {
                            noticed.store(true, Ordering::Release);
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        *end.lock() = Some(error.to_string());
                        return;
                    }
                    None => return,
                }
            }
        });
        let connector = Arc::clone(self);
        let patience = self.limits.statement.max(self.limits.lock) + ANSWER_LATE;
        let mut connection =
            Connection { client, runtime: Some(runtime), connector, warned, ended, is_broken: false, patience };
        let milliseconds = |time: Duration| time.as_millis();
        connection.execute(&format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
             SET default_transaction_isolation = 'read committed'",
            milliseconds(self.limits.statement),
            milliseconds(self.limits.lock),
            milliseconds(self.limits.statement * 2),
        ))?;
        // An account or a database may be set to answer before a commit is on the disk.
        let synchronous = connection.query("SHOW synchronous_commit", &[]);
        let value = synchronous.ok().and_then(|rows| rows.first().map(|row| row.get::<_, String>(0)));
        if value.is_some_and(|value| value == "off" || value == "local") {
            connection.execute("SET synchronous_commit = on")?;
        }
        Ok(connection)
    }

    /// Connects, for work on entries.
    pub(crate) fn connect(self: &Arc<Self>) -> Result<Session, DatabaseError> {
        let generation = self.acknowledged.generation();
        let mut connection = self.connect_bare()?;
        // A small table tempts the planner to read all of it, and then the transaction counts as having seen all of it. Databases that do not
        // know the setting plan as they do.
        let _ = connection.execute("SET enable_seqscan = off");
        // Its compiler takes longer than any of the statements here.
        let _ = connection.execute("SET jit = off");
        let statements = connection.run(async |client| Statements::prepare(client).await)?;
        Ok(Session { connection, statements, generation })
    }

    /// Connects, for a reader. Refuses a database that is closed, or lacks what this process has acknowledged.
    pub(crate) fn connect_to_read(self: &Arc<Self>) -> Result<Session, DatabaseError> {
        if let Some(lost) = self.acknowledged.lost() {
            return Err(lost);
        }
        let known = self.acknowledged.batch();
        let mut session = self.connect()?;
        let Some(name) = self.acknowledged.name.get() else { return Ok(session) };
        let rows = session.connection.query(
            "SELECT s.closed, (SELECT c.batch FROM weir.committers c WHERE c.name = $1) FROM weir.schema s",
            &[name],
        )?;
        let row = rows.first().ok_or_else(|| schema::no_tables(&self.place.0))?;
        if let Some(closed) = row.get::<_, Option<String>>(0)
            && !self.acknowledged.is_repair.load(Ordering::SeqCst)
        {
            return Err(schema::cannot_be_used(&self.place.0, &closed));
        }
        let batch = row.get::<_, Option<i64>>(1).unwrap_or(-1);
        if batch < known && self.acknowledged.follows.load(Ordering::SeqCst) {
            // Perhaps it is an old primary that nobody has stopped yet. Whoever makes the changes finds out.
            return Err(session.connection.is_behind());
        }
        if batch < known {
            self.acknowledged.set_lost(&self.lost_batches(known - batch));
            // The process ends soon, and the next one must not start here.
            return Err(self.close_as_lost(known - batch));
        }
        Ok(session)
    }

    /// Keeps every manager from starting on the database.
    pub(crate) fn close(self: &Arc<Self>, reason: &str) -> Result<(), DatabaseError> {
        schema::close(&mut self.connect_bare()?, Some(reason))
    }

    /// The database has lost at least so many batches: keeps every manager from starting on it. Returns the error that says so.
    pub(crate) fn close_as_lost(self: &Arc<Self>, batches: i64) -> DatabaseError {
        let lost = self.lost_batches(batches);
        if let DatabaseError::LostTransactions(reason) = &lost
            && let Err(error) = self.close(reason)
        {
            tracing::error!("cannot note in the database that it has lost changes: {error}");
        }
        lost
    }

    pub(crate) fn lost_batches(&self, batches: i64) -> DatabaseError {
        DatabaseError::LostTransactions(format!(
            "the database {} has lost at least {batches} acknowledged batches of changes, as after a failover to a replica that was behind, or a restore; \
             no manager may go on with it as if nothing had happened",
            self.place.0
        ))
    }
}

/// A connection.
pub(crate) struct Connection {
    client: Client,
    /// There until the connection is dropped.
    runtime: Option<Runtime>,
    connector: Arc<Connector>,
    /// The server has sent a warning.
    warned: Arc<AtomicBool>,
    /// Why the server ended the connection.
    ended: Arc<Mutex<Option<String>>>,
    is_broken: bool,
    /// How long an answer may take.
    patience: Duration,
}

impl Connection {
    /// The address of its database, without a password.
    pub(crate) fn address(&self) -> String {
        self.connector.address.to_string()
    }

    /// It is of no use any more.
    pub(crate) fn give_up(&mut self) {
        self.is_broken = true;
    }

    /// The error about a server that lacks changes which readers have seen elsewhere.
    pub(crate) fn is_behind(&self) -> DatabaseError {
        self.connector.unavailable("this server lacks changes that another one has shown")
    }

    /// From now on, nobody waits longer than this for an answer.
    pub(crate) fn limit_patience(&mut self, most: Duration) {
        self.patience = self.patience.min(most);
    }

    /// Whether it is of no use any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken || self.client.is_closed()
    }

    /// One round trip.
    fn flight<T>(&mut self, work: impl AsyncFnOnce(&Client) -> T) -> Result<T, DatabaseError> {
        self.connector.round_trips.fetch_add(1, Ordering::Relaxed);
        self.send(work)
    }

    /// Sends requests, and waits for the answers. Breaks the connection if they do not come.
    fn send<T>(&mut self, work: impl AsyncFnOnce(&Client) -> T) -> Result<T, DatabaseError> {
        let patience = self.patience;
        let client = &self.client;
        let Some(runtime) = &self.runtime else { return Err(self.connector.unavailable("the connection is closed")) };
        match runtime.block_on(async { tokio::time::timeout(patience, work(client)).await }) {
            Ok(done) => Ok(done),
            Err(_) => {
                self.is_broken = true;
                Err(self.connector.unavailable(format!("no answer within {} s", patience.as_secs())))
            }
        }
    }

    /// Runs requests that are sent together.
    pub(crate) fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, DatabaseError> {
        let done = self.flight(work)?;
        done.map_err(|error| self.sorted(&error))
    }

    /// Sorts an error, and remembers whether the connection survives it.
    fn sorted(&mut self, error: &tokio_postgres::Error) -> DatabaseError {
        let mut sorted = self.connector.sorted(error);
        if let (DatabaseError::Unavailable { reason, .. }, Some(ended)) = (&mut sorted, self.ended.lock().clone())
            && error.is_closed()
        {
            *reason = ended;
        }
        // An unexpected error may come from a statement that was prepared for tables as they were.
        self.is_broken |= sorted.ends_connection() || error.is_closed() || matches!(sorted, DatabaseError::Failed(_));
        sorted
    }

    /// Runs statements without parameters.
    pub(crate) fn execute(&mut self, sql: &str) -> Result<(), DatabaseError> {
        self.run(async |client| client.batch_execute(sql).await)
    }

    /// Runs one statement, and returns its rows.
    pub(crate) fn query(&mut self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, DatabaseError> {
        self.run(async |client| client.query(sql, parameters).await)
    }

    /// Runs one statement that changes something outside of a transaction. A warning means that a standby has not confirmed it: somebody cancelled the
    /// wait. The counter of round trips tells what operations cost, so it does not count these.
    pub(crate) fn change(&mut self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, DatabaseError> {
        self.confirmed(|connection| {
            let done = connection.send(async |client| client.query(sql, parameters).await)?;
            done.map_err(|error| connection.sorted(&error))
        })
    }

    /// Commits a transaction that has changed something. A warning means the same as for [`Connection::change`].
    pub(crate) fn commit(&mut self) -> Result<(), DatabaseError> {
        self.confirmed(|connection| connection.execute("COMMIT"))
    }

    /// Does `work`, and fails if the server has warned meanwhile.
    fn confirmed<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        self.warned.store(false, Ordering::Release);
        let done = work(self)?;
        if self.warned.load(Ordering::Acquire) {
            self.is_broken = true;
            return Err(self.connector.unavailable(UNCONFIRMED));
        }
        Ok(done)
    }

    /// Ends a transaction without waiting for the answer. Its error does not matter: the transaction changed nothing.
    fn end_soon(&mut self) {
        if self.is_broken() {
            return;
        }
        let client = &self.client;
        let Some(runtime) = &self.runtime else { return };
        runtime.block_on(async {
            let mut ending = std::pin::pin!(client.batch_execute("COMMIT"));
            // The first poll hands the request over, and yielding lets the event loop send it. The answer comes with the next use.
            poll_fn(|context| {
                let _ = ending.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
            tokio::task::yield_now().await;
        });
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a fetch begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    /// A transaction that only reads.
    Reading,
    /// A transaction that may write.
    Changing,
    /// Nothing: the transaction has begun.
    Not,
}

/// How a commit ended.
#[derive(Debug)]
pub(crate) enum Commit {
    /// The changes are durable.
    Done,
    /// None of them was made.
    Undone(DatabaseError),
    /// It is not known: the connection was lost on the way.
    Unknown(DatabaseError),
}

/// A connection with the statements that work on entries.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    statements: Statements,
    /// [`Acknowledged::generation`] when it was made.
    pub(crate) generation: u64,
}

impl Session {
    /// Begins a transaction that only reads, and fetches `needs`, in one round trip. Returns which of the committer's changes it sees; `None` if
    /// this process has no committer.
    pub(crate) fn fetch_first(&mut self, needs: &Needs, known: &mut Fetched) -> Result<Option<Seen>, DatabaseError> {
        self.fetch_with(Begin::Reading, needs, known)
    }

    /// Fetches `needs` in one round trip, and adds the answers to `known`.
    pub(crate) fn fetch(&mut self, begin: Begin, needs: &Needs, known: &mut Fetched) -> Result<(), DatabaseError> {
        self.fetch_with(begin, needs, known).map(drop)
    }

    fn fetch_with(&mut self, begin: Begin, needs: &Needs, known: &mut Fetched) -> Result<Option<Seen>, DatabaseError> {
        let connector = Arc::clone(&self.connection.connector);
        let committer = connector.acknowledged.name.get().filter(|_| begin == Begin::Reading);
        let keys: Vec<&[u8]> = needs.keys.iter().map(Vec::as_slice).collect();
        let chains: Vec<ChainRequest<'_>> = ChainRequest::all(&needs.chains);
        let statements = &self.statements;
        let answers = self.connection.flight(async |client| {
            let beginning = async {
                match begin {
                    Begin::Not => Ok(()),
                    Begin::Reading => client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await,
                    Begin::Changing => client.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE").await,
                }
            };
            let entries =
                async { if keys.is_empty() { Ok(Vec::new()) } else { client.query(&statements.get, &[&keys]).await } };
            let ranges = join_all(needs.ranges.iter().map(async |range| {
                let scan = match range.order {
                    ScanOrder::Ascending => &statements.scan,
                    ScanOrder::Descending => &statements.scan_down,
                };
                client.query(scan, &[&range.start, &range.end, &i64::from(range.most)]).await
            }));
            let chains = join_all(chains.iter().map(async |chain| chain.send(client, &statements.chain).await));
            let batch = async {
                match committer {
                    Some(name) => client.query_opt(&statements.batch, &[name]).await,
                    None => Ok(None),
                }
            };
            join5(beginning, entries, chains, ranges, batch).await
        })?;
        let mut sort = |error: tokio_postgres::Error| self.connection.sorted(&error);
        let (beginning, entries, chain_rows, ranges, batch) = answers;
        beginning.map_err(&mut sort)?;
        let batch = batch.map_err(&mut sort)?.map(|row| Seen { batch: row.get(0), fence: row.get(1) });
        let entries = entries.map_err(&mut sort)?;
        let chain_rows = chain_rows.into_iter().collect::<Result<Vec<_>, _>>().map_err(&mut sort)?;
        let ranges = ranges.into_iter().collect::<Result<Vec<_>, _>>().map_err(&mut sort)?;

        for key in &keys {
            known.insert(key, None);
        }
        for row in &entries {
            let (key, value) = entry(row)?;
            known.insert(key, Some(value));
        }
        for (chain, rows) in chains.iter().zip(&chain_rows) {
            let rows = rows.iter().map(entry).collect::<Result<BTreeMap<_, _>, _>>()?;
            for chain in &chain.chains {
                known.insert_chain(chain, &rows);
            }
        }
        for (range, rows) in needs.ranges.iter().zip(&ranges) {
            let rows = rows.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
            known.insert_range(range, rows.into_iter());
        }
        Ok(batch)
    }

    /// The first entries of a range in its order, for scans that remember nothing.
    pub(crate) fn scan(
        &mut self,
        (start, end): (&[u8], &[u8]),
        order: ScanOrder,
        most: u32,
    ) -> Result<Vec<Row>, DatabaseError> {
        let statements = &self.statements;
        self.connection.run(async |client| {
            let scan = match order {
                ScanOrder::Ascending => &statements.scan,
                ScanOrder::Descending => &statements.scan_down,
            };
            client.query(scan, &[&start, &end, &i64::from(most)]).await
        })
    }

    /// Ends a transaction that only read.
    pub(crate) fn end_reading(&mut self) {
        self.connection.end_soon();
    }

    /// Ends a transaction that changed nothing, and waits: only then it is sure that what it read belongs together.
    pub(crate) fn end_unchanged(&mut self) -> Result<(), DatabaseError> {
        self.connection.execute("COMMIT")
    }

    /// Undoes the transaction.
    pub(crate) fn roll_back(&mut self) -> Result<(), DatabaseError> {
        self.connection.execute("ROLLBACK")
    }

    /// Writes the changes of a batch and commits, in one round trip. `place` is the name and the fence of the committer.
    pub(crate) fn commit(&mut self, place: (&str, i64), batch: i64, changes: &kv::Batch, is_begun: bool) -> Commit {
        let mut removed: Vec<&[u8]> = Vec::new();
        let (mut keys, mut values): (Vec<&[u8]>, Vec<&[u8]>) = (Vec::new(), Vec::new());
        for (key, value) in changes.iter() {
            match value {
                Some(value) => {
                    keys.push(key);
                    values.push(value);
                }
                None => removed.push(key),
            }
        }
        let statements = &self.statements;
        let (name, fence) = place;
        // Alone: if it failed, the others would each commit by themselves.
        if !is_begun && let Err(error) = self.connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE") {
            return Commit::Undone(error);
        }
        self.connection.warned.store(false, Ordering::Release);
        let flown = self.connection.flight(async |client| {
            let advance = async { client.query(&statements.advance, &[&name, &fence, &batch]).await };
            let delete = async {
                if removed.is_empty() { Ok(0) } else { client.execute(&statements.delete, &[&removed]).await }
            };
            let put = async {
                if keys.is_empty() { Ok(0) } else { client.execute(&statements.put, &[&keys, &values]).await }
            };
            let commit = client.batch_execute("COMMIT");
            join4(advance, delete, put, commit).await
        });
        let (advance, delete, put, commit) = match flown {
            Ok(answers) => answers,
            Err(error) => return Commit::Unknown(error),
        };
        // If a statement fails, all later ones fail as well, and COMMIT undoes the transaction. The first error says why.
        let before = [advance.err(), delete.err(), put.err()].into_iter().flatten().next();
        if let Some(error) = before {
            let sorted = self.connection.sorted(&error);
            return match error.as_db_error() {
                Some(db) if *db.code() == tokio_postgres::error::SqlState::DIVISION_BY_ZERO => {
                    Commit::Undone(DatabaseError::TakenOver(format!(
                        "another process commits in the place of {name} at the database {}; this one stops",
                        self.connection.connector.address
                    )))
                }
                Some(_) if !sorted.ends_connection() => Commit::Undone(sorted),
                // The connection broke, here or behind a proxy: the rest may have arrived.
                _ => Commit::Unknown(sorted),
            };
        }
        match commit {
            Ok(()) if self.connection.warned.load(Ordering::Acquire) => {
                Commit::Unknown(self.connection.connector.unavailable(UNCONFIRMED))
            }
            Ok(()) => Commit::Done,
            // Only a collision says that nothing was committed. Everything else is looked up.
            Err(error) => match self.connection.sorted(&error) {
                sorted @ DatabaseError::Conflict(_) => Commit::Undone(sorted),
                sorted => Commit::Unknown(sorted),
            },
        }
    }
}

/// The key and the value of a row.
pub(crate) fn entry(row: &Row) -> Result<(&[u8], &[u8]), DatabaseError> {
    let column = |place| {
        row.try_get::<_, &[u8]>(place)
            .map_err(|error| DatabaseError::Failed(format!("an entry has another form than expected: {error}")))
    };
    Ok((column(0)?, column(1)?))
}

/// The parameters for chains that have the same form.
struct ChainRequest<'a> {
    chains: Vec<&'a Chain>,
}

impl<'a> ChainRequest<'a> {
    fn all(chains: &'a [Chain]) -> Vec<Self> {
        let mut requests: Vec<Self> = Vec::new();
        for chain in chains {
            let same = requests.iter_mut().find(|request| {
                request.chains.first().is_some_and(|one| one.prefix == chain.prefix && one.id_at == chain.id_at)
            });
            match same {
                Some(request) => request.chains.push(chain),
                None => requests.push(Self { chains: vec![chain] }),
            }
        }
        requests
    }

    async fn send(
        &self,
        client: &Client,
        statement: &tokio_postgres::Statement,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let (mut of, mut steps, mut names) = (Vec::new(), Vec::new(), Vec::<&[u8]>::new());
        let (mut starts, mut ids) = (Vec::new(), Vec::<&[u8]>::new());
        let (mut follow_of, mut after, mut most) = (Vec::new(), Vec::new(), Vec::new());
        let (mut prefixes, mut suffixes) = (Vec::<&[u8]>::new(), Vec::<&[u8]>::new());
        let (mut ids_at, mut seconds_at, mut rests_at) = (Vec::new(), Vec::new(), Vec::new());
        let from_one = |at: Option<u32>| at.map_or(0, |at| i32::try_from(at).unwrap_or(i32::MAX - 8) + 1);
        let (mut prefix, mut id_at) = (&[] as &[u8], 0);
        for (place, chain) in self.chains.iter().enumerate() {
            (prefix, id_at) = (&chain.prefix, chain.id_at);
            starts.push(number(place));
            ids.push(&chain.first);
            for (step, name) in chain.names.iter().enumerate() {
                of.push(number(place));
                steps.push(number(step));
                names.push(name);
            }
            for follow in &chain.follow {
                follow_of.push(number(place));
                after.push(i32::try_from(follow.after).unwrap_or(i32::MAX));
                prefixes.push(&follow.prefix);
                suffixes.push(&follow.suffix);
                ids_at.push(from_one(follow.ids_at.first().copied()));
                seconds_at.push(from_one(follow.ids_at.get(1).copied()));
                rests_at.push(from_one(follow.rest_at));
                most.push(follow.most.map_or(0, |most| i32::try_from(most.max(1)).unwrap_or(i32::MAX)));
            }
        }
        let id_at = from_one(Some(id_at));
        client
            .query(
                statement,
                &[
                    &of,
                    &steps,
                    &names,
                    &starts,
                    &ids,
                    &prefix,
                    &id_at,
                    &follow_of,
                    &after,
                    &prefixes,
                    &suffixes,
                    &most,
                    &ids_at,
                    &seconds_at,
                    &rests_at,
                    &behind(),
                ],
            )
            .await
    }
}
