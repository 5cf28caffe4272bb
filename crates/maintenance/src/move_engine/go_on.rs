//! `weir db continue --after-restore`: continues a database that has lost transactions, or was restored to an earlier time, above everything that
//! it may have handed out since. The steps are those of a manager's restore ([`crate::backup::manager`]).

use std::sync::Arc;

use console::Exit;
use console::time_text::parse_time;
use database::{Copying, DatabaseAddress, Postgres, PostgresConfig};
use foundation::COMMITTER;
use kv::Kv;
use namespace::{Namespace, NamespaceConfig};
use serde_json::json;
use types::Timestamp;

use super::say;
use crate::backup::manager::continue_above;
use crate::backup::restore::LOST_BY_A_MANAGER;
use crate::{Error, now};

/// Why the database is closed meanwhile.
const CLOSED: &str =
    "it is being continued after a restore, and that was not finished; run `weir db continue --after-restore` again";

/// The database to continue.
#[derive(Clone, Debug)]
pub struct ContinueOptions {
    /// The database.
    pub database: DatabaseAddress,
    /// The time whose state it has. `None`: it is not known.
    pub as_of: Option<String>,
    /// Print the result as JSON.
    pub json: bool,
}

/// Continues the database and prints the result.
///
/// # Errors
///
/// The database was refused, or the work was interrupted. Run it again.
pub fn run(args: &ContinueOptions) -> Result<Exit, Error> {
    let as_of = args.as_of.as_deref().map(parse_time).transpose().map_err(Error::AsOf)?;
    let words = above_everything(&args.database, as_of.unwrap_or_else(now))?;
    say(args.json, &json!({ "database": args.database.to_string(), "continued": true }), &words)
}

/// Continues `database`, which has the state of the time `taken`, and opens it to managers. Returns what the operator must know.
pub(super) fn above_everything(database: &DatabaseAddress, taken: Timestamp) -> Result<Vec<String>, Error> {
    let mut copying = Copying::connect(database)?;
    copying.begin_repair(CLOSED)?;
    let engine = Arc::new(Postgres::open_closed(database, COMMITTER, PostgresConfig::default())?);
    let continued = Namespace::open(Arc::clone(&engine) as Arc<dyn Kv>, now(), NamespaceConfig::default())
        .map_err(Error::RaiseNumbers)
        .and_then(|namespace| continue_above(&namespace, taken));
    engine.stop();
    let incarnation = continued?;
    copying.end_repair(CLOSED)?;
    let mut words = vec![incarnation];
    words.extend(LOST_BY_A_MANAGER.map(str::to_owned));
    Ok(words)
}
