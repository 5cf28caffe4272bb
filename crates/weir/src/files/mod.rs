//! Commands on names: `ls`, `stat`, `cat`, `mkdir`, `mv`, `rm`, `du`, `df`, `find`, `checksum`, `touch`, `ln`, `xattr`. Each accepts local
//! paths and `root://` places of any server.

mod ls;
mod names;
mod output;
mod show;

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use client::{Client, Settings};
use output::Output;
use transfer::TransferError;
use transfer::tree::Tree;

use crate::Failure;
use crate::cli::FileCommand;
use crate::exit::Exit;
use crate::logging;

/// Runs one of them.
pub fn run(command: &FileCommand) -> Result<Exit, Failure> {
    logging::start("warn")?;
    let mut tree = Tree::new(Client::new(Settings::default()));
    let mut out = Output::new();
    let done = match command {
        FileCommand::Ls(args) => ls::ls(&mut tree, args, &mut out),
        FileCommand::Find(args) => ls::find(&mut tree, args, now(), &mut out),
        FileCommand::Du(args) => ls::du(&mut tree, args, &mut out),
        FileCommand::Stat(args) => names::stat(&mut tree, args, &mut out),
        FileCommand::Cat(args) => names::cat(&mut tree, args, &mut out),
        FileCommand::Mkdir(args) => names::mkdir(&mut tree, args),
        FileCommand::Mv(args) => names::mv(&mut tree, args),
        FileCommand::Rm(args) => {
            let mut say = |error: &TransferError| _ = writeln!(std::io::stderr(), "weir rm: {error}");
            return Ok(transfer::remove(&mut tree, &args.places, args.recursive, args.force, &mut say));
        }
        FileCommand::Df(args) => names::df(&mut tree, args, &mut out),
        FileCommand::Checksum(args) => names::checksum(&mut tree, args, &mut out),
        FileCommand::Touch(args) => names::touch(&mut tree, args),
        FileCommand::Ln(args) => names::ln(&mut tree, args),
        FileCommand::Xattr(args) => names::xattr(&mut tree, &args.command, &mut out),
    };
    match done.and_then(|()| out.end()) {
        // The reader of our output has read enough.
        Ok(()) | Err(TransferError::Stopped) => Ok(Exit::Done),
        Err(error) => Err(Failure::new(error.exit(), error)),
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
