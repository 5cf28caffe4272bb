//! The engine `postgres` of [`kv::Kv`]: keys and values in a database that speaks PostgreSQL's protocol. This crate knows nothing of files or directories.
//!
//! - [`DatabaseAddress`]: where the database is, and how to reach it.
//! - [`Schema`]: makes, checks and changes the tables.
//! - [`Postgres`]: the engine.
//! - [`PostgresReader`]: the same for reading alone, where another process makes the changes.
//! - [`PlaceWatch`]: looks whether another process commits, and whether its place can be taken.
//! - [`Copying`]: moves a namespace into a database, and out of it.
//!
//! What is decided about the place and about lost answers is without I/O (`own_place.rs`, `place_lease.rs`, `attempts.rs`). With the feature `simulated`, a simulated
//! database and engine use these decisions, for simulations of whole clusters.
//!
//! # Promises
//!
//! - An operation that was answered as committed is durable as the database has it: in its log, and on the standbys that it waits for.
//! - An operation whose commit is not known ends as [`kv::KvError::MaybeCommitted`] only if the database does not come back in time. If it comes back, its
//!   own row says what happened ([`Postgres::open`] has the committer's name).
//! - A database that comes back without acknowledged changes is noticed, and nothing is committed there any more.
//! - A reader sees one committed state, with everything that was acknowledged before it began. With several committers this is not always a state that
//!   some order of all transactions has: readers run at REPEATABLE READ, so that they never collide.
//! - One process at a time commits under a name. Nobody takes the place from a process that gives signs of life. The last one that took it wins; the others
//!   notice with their next change of the row, and stop.
//! - The process that has the place has a lease ([`Postgres::lease`]): while it holds, no other process has taken the place, and no command has closed the
//!   database.
//!
//! # How an operation becomes a transaction
//!
//! The committer takes all queued operations, begins one SERIALIZABLE transaction, and runs them, each on a savepoint over the changes of the ones before it.
//! An operation that reads what is not known stops there. When all have run, what they lacked is fetched in one round trip, and all run again. What an
//! operation has announced ([`kv::Read::prefetch`]) and nobody knows is fetched with the first entry that it lacks, so it runs twice: once to ask, once to the
//! end. If it lacks nothing, what it has announced is not fetched: the announcement is a guess, and names more than is read. Then all changes and the commit
//! go out in one more round trip. A collision with another transaction (40001, 40P01) runs the batch again, and splits it after the third.
//!
//! # What is known without the database
//!
//! While this process has the place, it makes all changes. So the entries that it has written or read stay known, up to [`PostgresConfig::cache_bytes`]
//! (`cache.rs`). The committer decides by them: if another process had taken the place, the fence would keep the batch out, and a batch without changes is
//! answered only under the lease. Readers that can begin anew ([`kv::Kv::cached_snapshot`]) get them under the lease, and what they announce and do not read
//! is not fetched either. What readers find in the database counts only if they see the committer's own fence there: another server may have changes that
//! were never confirmed.
//!
//! A process whose readers follow the committer of another one ([`PostgresReader`]) keeps such entries, too. Before it uses them, it has that process asked
//! what has changed (`following.rs`).
//!
//! # Portable SQL
//!
//! Tables of byte strings, no extension, no trigger, no sequence, no notification, no advisory lock. `LOCK TABLE` in the commands alone. Settings that only PostgreSQL knows are optional.

mod address;
mod attempts;
mod away;
mod cache;
mod chains;
mod committer;
mod compare;
mod copying;
mod engine;
mod error;
mod fetched;
mod following;
mod holder;
mod kept;
mod needs;
mod own_place;
mod passfile;
mod pause;
mod pending;
mod place;
mod place_lease;
mod place_watch;
mod pool;
mod read_once;
mod reader;
mod schema;
mod session;
mod signs_of_life;
mod silence;
#[cfg(feature = "simulated")]
pub mod simulated;
mod snapshot;
mod statements;
mod tls;
mod watch;

pub use address::{AddressError, DatabaseAddress};
pub use away::Outage;
pub use cache::{ChangedEntry, RecentChanges};
pub use compare::{Compared, compare};
pub use copying::{Copying, DirectoryMark, IfThere, ImportSource, ImportState};
pub use engine::{Postgres, PostgresConfig, PostgresStats};
pub use error::{DatabaseError, READ_ONLY};
pub use following::{AskChanges, Question, Told};
pub use holder::Holder;
pub use place_lease::{PlaceLease, Vacancy};
pub use place_watch::{PlaceWatch, Standing};
pub use read_once::read_once;
pub use reader::PostgresReader;
pub use schema::{SCHEMA_VERSION, Schema, SchemaReport, SchemaState};
