//! `weir serve`.

use crate::Failure;
use crate::cli::ServeArgs;
use crate::config::Config;
use crate::exit::Exit;

/// Runs a node until it is told to stop.
pub fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let config =
        Config::load(args.config.as_deref()).map_err(|error| Failure::new(Exit::Usage, error))?.with_flags(args);
    let _ = (config, crate::signals::catch());
    Ok(Exit::Done)
}
