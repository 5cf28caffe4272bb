//! `weir stores`, `weir status`, `weir file`, `weir policy`: what the running manager says of its cluster, as tables or as JSON.

mod drain;
mod file;
mod members;
mod policy;
mod repair;
mod status;
mod stores;

use std::io::Write as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;
use crate::cli::ManagerArgs;
use crate::control::Ask;
use crate::control::client::{AskError, ask_long};
use crate::exit::Exit;

pub(crate) use drain::run as drain;
pub(crate) use file::run as file;
pub(crate) use members::{node, store};
pub(crate) use policy::run as policy;
pub(crate) use repair::run as repair;
pub(crate) use status::run as status;
pub(crate) use stores::run as stores;

/// Asks the manager, and prints its answer: as it is, or in the words of `shown`.
fn show<T: Serialize + DeserializeOwned>(
    args: &ManagerArgs,
    what: &Ask,
    shown: impl FnOnce(&T) -> Vec<String>,
) -> Result<Exit, Failure> {
    let answer: T = asked(&args.data, what)?;
    let lines = if args.json {
        vec![serde_json::to_string(&answer).map_err(|error| Failure::new(Exit::Failed, error))?]
    } else {
        shown(&answer)
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let printed = lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    match printed {
        // A reader that has gone away (`| head`) is no error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(Exit::Failed, error)),
        _ => Ok(Exit::Done),
    }
}

/// The answer of the manager that runs on `data`.
pub(crate) fn asked<T: DeserializeOwned>(data: &Path, what: &Ask) -> Result<T, Failure> {
    ask_long(data, what).map_err(|error| {
        let (exit, not_running) = match &error {
            AskError::Absent(_) => (Exit::NotFound, false),
            error => (Exit::Failed, matches!(error, AskError::NotRunning { .. })),
        };
        let failure = Failure::new(exit, error);
        if not_running { failure.while_doing("this is answered by a running manager") } else { failure }
    })
}

/// `1 store`, `2 stores`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
