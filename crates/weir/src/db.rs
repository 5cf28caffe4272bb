//! `weir db`: makes, checks and changes weir's tables in a database.

use std::io::Write as _;

use config::{Config, units::show_size};
use database::{DatabaseAddress, DatabaseError, READ_ONLY, SCHEMA_VERSION, Schema, SchemaReport, SchemaState};
use foundation::exit_of_database;
use serde::Serialize;

use crate::cli::{DbAddressArgs, DbArgs, DbCommand};
use crate::exit::Exit;
use crate::{Failure, database_settings, db_copy, logging};

/// Runs the command.
pub fn run(args: &DbArgs) -> Result<Exit, Failure> {
    logging::start("warn")?;
    match &args.command {
        DbCommand::Init(args) => init(&address_of(&args.database)?, args.grant_to.as_deref()),
        DbCommand::Check(args) => check(&address_of(&args.database)?, args.json),
        DbCommand::Migrate(args) => migrate(&address_of(args)?),
        DbCommand::Copy(command) => db_copy::run(command),
    }
}

/// The database that the command line or the file names.
fn address_of(args: &DbAddressArgs) -> Result<DatabaseAddress, Failure> {
    settings(args).map(|(_, address)| address)
}

/// The same, with the settings of the node.
pub(crate) fn settings(args: &DbAddressArgs) -> Result<(Config, DatabaseAddress), Failure> {
    let config = Config::load(args.config.as_deref()).map_err(|error| Failure::new(Exit::Usage, error))?;
    let url = args.database.as_ref().or(config.database.as_ref()).ok_or_else(|| {
        Failure::message(
            Exit::Usage,
            "no database given; say --database URL, or set `database.url` in the file --config",
        )
    })?;
    let address = database_settings::address(url)?;
    Ok((config, address))
}

fn failed(error: DatabaseError) -> Failure {
    Failure::new(exit_of_database(&error), error)
}

fn say(text: &str) -> Result<Exit, Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}

fn init(address: &DatabaseAddress, grant_to: Option<&str>) -> Result<Exit, Failure> {
    let doing = |failure: Failure| failure.while_doing(format!("cannot make the tables in the database {address}"));
    let before =
        Schema::connect(address).and_then(|mut schema| schema.init(grant_to)).map_err(failed).map_err(doing)?;
    let what = match before {
        SchemaState::Empty => "made the tables",
        SchemaState::Version(_) => "the tables are there already, and stay as they are,",
    };
    let granted = grant_to.map_or_else(String::new, |role| format!("; {role} may run managers on them"));
    say(&format!("{what} in the database {address}: version {SCHEMA_VERSION}{granted}"))
}

fn migrate(address: &DatabaseAddress) -> Result<Exit, Failure> {
    let doing = |failure: Failure| failure.while_doing(format!("cannot change the tables in the database {address}"));
    let before = Schema::connect(address).and_then(|mut schema| schema.migrate()).map_err(failed).map_err(doing)?;
    say(&match before {
        SCHEMA_VERSION => {
            format!("the tables in the database {address} are of version {SCHEMA_VERSION} already; nothing was changed")
        }
        before => format!(
            "the tables in the database {address} were of version {before}, and are of version {SCHEMA_VERSION} now"
        ),
    })
}

/// What `weir db check` shows.
#[derive(Serialize)]
struct Checked {
    database: String,
    server: String,
    /// The version of the tables; `None`: there are none.
    tables: Option<i32>,
    /// The version that this weir needs.
    tables_needed: i32,
    cluster: Option<String>,
    /// Estimates.
    entries: u64,
    bytes: u64,
    is_encrypted: bool,
    is_read_only: bool,
    closed: Option<String>,
    /// Why no manager can start on it; `None`: a manager can.
    refused: Option<String>,
}

impl Checked {
    fn of(address: &DatabaseAddress, report: SchemaReport) -> Self {
        let refused = refusal(&report);
        Self {
            database: address.to_string(),
            server: report.server,
            tables: match report.state {
                SchemaState::Empty => None,
                SchemaState::Version(version) => Some(version),
            },
            tables_needed: SCHEMA_VERSION,
            cluster: report.cluster.map(|cluster| cluster.to_string()),
            entries: report.entries,
            bytes: report.bytes,
            is_encrypted: address.is_encrypted(),
            is_read_only: report.is_read_only,
            closed: report.closed,
            refused,
        }
    }

    fn lines(&self) -> Vec<String> {
        let tables = self.tables.map_or_else(|| "none".into(), |version| format!("version {version}"));
        let encrypted = match self.is_encrypted {
            true => "always encrypted, and the server's certificate is checked",
            false => "not encrypted, or only if the server offers it",
        };
        let verdict = match &self.refused {
            None => "a manager can start on it".to_owned(),
            Some(why) => format!("no manager can start on it: {why}"),
        };
        vec![
            format!("database:    {}", self.database),
            format!("server:      {}", self.server),
            format!("connections: {encrypted}"),
            format!("tables:      {tables}; this weir needs version {}", self.tables_needed),
            format!("cluster:     {}", self.cluster.as_deref().unwrap_or("none yet")),
            format!("entries:     about {}, {} on the database's disk", self.entries, show_size(self.bytes)),
            format!("changes:     {}", if self.is_read_only { "refused, it is read-only" } else { "accepted" }),
            verdict,
        ]
    }
}

/// Why no manager can start on the database, and what would help.
fn refusal(report: &SchemaReport) -> Option<String> {
    match report.state {
        SchemaState::Empty => return Some("it has no tables of weir; run `weir db init`".into()),
        SchemaState::Version(version) if version > SCHEMA_VERSION => {
            return Some("its tables are of a newer weir; use that one".into());
        }
        SchemaState::Version(version) if version < SCHEMA_VERSION => {
            return Some("its tables are of an older weir; stop all managers and run `weir db migrate`".into());
        }
        SchemaState::Version(_) => {}
    }
    report.closed.clone().or_else(|| report.is_read_only.then(|| READ_ONLY.into()))
}

fn check(address: &DatabaseAddress, json: bool) -> Result<Exit, Failure> {
    // A replica can be looked at.
    let connected = Schema::connect(address).or_else(|_| Schema::connect_to_any(address));
    let report = connected.and_then(|mut schema| schema.report()).map_err(failed)?;
    let checked = Checked::of(address, report);
    if json {
        let text = serde_json::to_string(&checked).map_err(|error| Failure::new(Exit::Failed, error))?;
        say(&text)?;
    } else {
        say(&checked.lines().join("\n"))?;
    }
    Ok(if checked.refused.is_none() { Exit::Done } else { Exit::Wrong })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_refused_for_the_first_thing_that_must_be_done() {
        let good = SchemaReport {
            state: SchemaState::Version(SCHEMA_VERSION),
            cluster: None,
            closed: None,
            entries: 0,
            bytes: 0,
            server: "PostgreSQL 15".into(),
            is_read_only: false,
        };
        assert_eq!(refusal(&good), None);
        let said = |report: SchemaReport| refusal(&report).unwrap();
        let state = |state| SchemaReport { state, is_read_only: true, closed: Some("no".into()), ..good.clone() };
        assert!(said(state(SchemaState::Empty)).contains("weir db init"));
        assert!(said(state(SchemaState::Version(SCHEMA_VERSION + 1))).contains("newer"));
        assert!(said(state(SchemaState::Version(0))).contains("weir db migrate"));
        assert_eq!(said(state(SchemaState::Version(SCHEMA_VERSION))), "no");
        assert!(said(SchemaReport { is_read_only: true, ..good.clone() }).contains("replica"));
    }
}
