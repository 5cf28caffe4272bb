//! `weir drop-caches`: makes the next reads come from the disks.

use std::fs;
use std::io::{self, Write as _};

use control::ControlRequest;
use control::client::ask;

use crate::Failure;
use crate::cli::DropCachesArgs;
use crate::exit::Exit;

/// Empties the page cache: `Documentation/admin-guide/sysctl/vm.rst` of Linux.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Runs the command.
pub(crate) fn run(args: &DropCachesArgs) -> Result<Exit, Failure> {
    ask(&args.data, &ControlRequest::ForgetRecent).map_err(|error| Failure::new(Exit::Failed, error))?;
    // What is not on the disk yet would stay.
    rustix::fs::sync();
    fs::write(DROP_CACHES, "3").map_err(|error| {
        let doing = format!(
            "the node has forgotten its data, but cannot empty this machine's page cache ({DROP_CACHES}; root can)"
        );
        Failure::new(Exit::Failed, error).while_doing(&doing)
    })?;
    writeln!(io::stdout(), "the node's memory and this machine's page cache are empty")
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}
