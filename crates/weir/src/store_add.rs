//! `weir store add`: makes a store of a disk server in a directory. The server may run; it takes the store at its next start.

use std::io::{self, Write as _};

use foundation::{DataDir, DataDirError, DirRole, IfNew};
use types::ClusterId;

use crate::Failure;
use crate::cli::AddStoreArgs;
use crate::exit::Exit;

/// Runs the command.
pub(crate) fn run(args: &AddStoreArgs) -> Result<Exit, Failure> {
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let missing = || DataDirError::Missing { path: args.data.clone() };
    let format = foundation::datadir::format_of(&args.data).map_err(refused)?.ok_or_else(missing).map_err(refused)?;
    if format.role != DirRole::Disk || format.cluster == 0 {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "cannot make a store for {}: it is {}{}; give the data directory of a disk server that has joined its cluster",
                args.data.display(),
                format.role,
                if format.role == DirRole::Disk { " that has not joined a cluster yet" } else { "" }
            ),
        ));
    }
    let cluster = Some(ClusterId(format.cluster));
    let now = crate::serve::now();
    let store = DataDir::open_as(&args.dir, DirRole::Store, cluster, IfNew::Make, now).map_err(refused)?;
    let what = if store.fresh { "made" } else { "is there already" };
    let next = "with its [[store]] in the configuration, the disk server uses it from its next start on";
    writeln!(io::stdout(), "{}: {what}; store {}; {next}", args.dir.display(), store.format.store)
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}
