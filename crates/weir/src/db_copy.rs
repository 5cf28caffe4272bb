//! `weir db import`, `export`, `dump` and `continue`: the command line for the crate `maintenance`.

use maintenance::move_engine::dump::{self, DumpOptions};
use maintenance::move_engine::export::{self, ExportOptions};
use maintenance::move_engine::go_on::{self, ContinueOptions};
use maintenance::move_engine::import::{self, ImportFrom, ImportOptions};

use crate::Failure;
use crate::cli::{DbCopyCommand, usual_data};
use crate::db::settings;
use crate::exit::Exit;

/// Runs one of the commands.
pub(crate) fn run(command: &DbCopyCommand) -> Result<Exit, Failure> {
    let done = match command {
        DbCopyCommand::Import(args) if args.cancel => {
            import::cancel(&settings(&args.database)?.1, args.data.as_deref(), args.json)
        }
        DbCopyCommand::Import(args) => {
            let (config, database) = settings(&args.database)?;
            let from = match &args.backup {
                Some(backup) => ImportFrom::Backup(backup.clone()),
                None => ImportFrom::Directory(args.directory()),
            };
            let options = ImportOptions { database, from, replace: args.replace, json: args.json };
            import::run(&options, &config.foundation())
        }
        DbCopyCommand::Export(args) if args.cancel => import::cancel(&settings(&args.database)?.1, None, args.json),
        DbCopyCommand::Export(args) => {
            let (config, database) = settings(&args.database)?;
            let data = args.data.clone().unwrap_or_else(usual_data);
            let options = ExportOptions { database, data, json: args.json };
            export::run(&options, &config.foundation())
        }
        DbCopyCommand::Dump(args) => dump::run(&DumpOptions {
            database: settings(&args.database)?.1,
            target: args.target.clone(),
            data: args.data.clone(),
            keep: args.keep,
            json: args.json,
        }),
        DbCopyCommand::Continue(args) => {
            let (_, database) = settings(&args.database)?;
            go_on::run(&ContinueOptions { database, as_of: args.as_of.clone(), json: args.json })
        }
    };
    done.map_err(|error| Failure::new(error.exit(), error))
}
