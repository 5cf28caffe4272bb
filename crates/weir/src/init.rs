//! `weir init`: makes a data directory and nothing else.

use std::io::{self, Write as _};
use std::path::Path;

use foundation::{DataDir, IfNew};

use crate::Failure;
use crate::exit::Exit;

/// Makes the data directory at `path`, unless it exists.
pub fn run(path: &Path) -> Result<Exit, Failure> {
    let data =
        DataDir::open(path, IfNew::Make, crate::serve::now()).map_err(|error| Failure::new(error.exit(), error))?;
    let what = if data.fresh { "made" } else { "is there already" };
    writeln!(io::stdout(), "{}: {what}; store {}", path.display(), data.format.store)
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}
