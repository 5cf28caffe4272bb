//! `weir db import`, `export`, `dump` and `continue`: the command line for the crate `maintenance`.

use std::path::PathBuf;

use config::Config;
use database::DatabaseAddress;
use maintenance::move_engine::dump::{self, DumpOptions};
use maintenance::move_engine::export::{self, ExportOptions};
use maintenance::move_engine::go_on::{self, ContinueOptions};
use maintenance::move_engine::import::{self, ImportFrom, ImportOptions};

use crate::cli::{CopyDatabaseArgs, DbCopyCommand, usual_data};
use crate::exit::Exit;
use crate::{Failure, logging};

/// Runs one of the commands.
pub(crate) fn run(command: &DbCopyCommand) -> Result<Exit, Failure> {
    let done = match command {
        DbCopyCommand::Import(args) if args.cancel => {
            begin(args.config.as_ref())?;
            import::cancel(&address(&args.database)?, args.json)
        }
        DbCopyCommand::Import(args) => {
            let config = begin(args.config.as_ref())?;
            let from = match &args.backup {
                Some(backup) => ImportFrom::Backup(backup.clone()),
                None => ImportFrom::Directory(args.directory()),
            };
            let options =
                ImportOptions { database: address(&args.database)?, from, replace: args.replace, json: args.json };
            import::run(&options, &config.foundation())
        }
        DbCopyCommand::Export(args) if args.cancel => {
            begin(args.config.as_ref())?;
            import::cancel(&address(&args.database)?, args.json)
        }
        DbCopyCommand::Export(args) => {
            let config = begin(args.config.as_ref())?;
            let data = args.data.clone().unwrap_or_else(usual_data);
            let options = ExportOptions { database: address(&args.database)?, data, json: args.json };
            export::run(&options, &config.foundation())
        }
        DbCopyCommand::Dump(args) => {
            begin(None)?;
            dump::run(&DumpOptions {
                database: address(&args.database)?,
                target: args.target.clone(),
                data: args.data.clone(),
                keep: args.keep,
                json: args.json,
            })
        }
        DbCopyCommand::Continue(args) => {
            begin(None)?;
            let database = address(&args.database)?;
            go_on::run(&ContinueOptions { database, as_of: args.as_of.clone(), json: args.json })
        }
    };
    done.map_err(|error| Failure::new(error.exit(), error))
}

/// The database that the command names.
fn address(args: &CopyDatabaseArgs) -> Result<DatabaseAddress, Failure> {
    args.database.parse::<DatabaseAddress>().map_err(|error| Failure::new(Exit::Usage, error))
}

/// Reads the configuration of the node and starts the log.
fn begin(config: Option<&PathBuf>) -> Result<Config, Failure> {
    let config = Config::load(config.map(PathBuf::as_path)).map_err(|error| Failure::new(Exit::Usage, error))?;
    logging::start("warn")?;
    Ok(config)
}
