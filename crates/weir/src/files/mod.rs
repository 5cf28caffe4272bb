//! Commands on names: `ls`, `stat`, `cat`, `mkdir`, `mv`, `rm`, `du`, `df`, `find`, `checksum`, `touch`, `ln`, `xattr`, `chown`,
//! `acl`. Most accept local paths and `root://` places of any server; the last two are for those of weir.

mod checksum;
mod errors;
mod ls;
mod names;
mod output;
mod rights;
mod show;

use std::time::{SystemTime, UNIX_EPOCH};

use client::{Client, Settings};
use errors::Errors;
use output::Output;
use transfer::tree::Tree;
use transfer::{Shown, TransferError, WaitNotices};

use crate::Failure;
use crate::cli::FileCommand;
use crate::exit::Exit;
use crate::logging;

/// Runs one of them.
pub fn run(command: &FileCommand) -> Result<Exit, Failure> {
    logging::start("warn")?;
    let watch = WaitNotices::new(Shown::On(name_of(command))).watch();
    let mut tree = Tree::new(Client::new(Settings { watch, ..Settings::default() }));
    let mut out = Output::new();
    let mut errors = Errors::of(name_of(command));
    let done = match command {
        FileCommand::Ls(args) => ls::ls(&mut tree, args, &mut out, &mut errors),
        FileCommand::Find(args) => ls::find(&mut tree, args, now(), &mut out, &mut errors),
        FileCommand::Du(args) => ls::du(&mut tree, args, &mut out, &mut errors),
        FileCommand::Stat(args) => names::stat(&mut tree, args, &mut out, &mut errors),
        FileCommand::Cat(args) => names::cat(&mut tree, args, &mut out, &mut errors),
        FileCommand::Mkdir(args) => names::mkdir(&mut tree, args, &mut out, &mut errors),
        FileCommand::Mv(args) => names::mv(&mut tree, args, &mut out, &mut errors),
        FileCommand::Rm(args) => names::rm(&mut tree, args, &mut out, &mut errors),
        FileCommand::Df(args) => names::df(&mut tree, args, &mut out, &mut errors),
        FileCommand::Checksum(args) => checksum::checksum(&mut tree, args, &mut out, &mut errors),
        FileCommand::Touch(args) => names::touch(&mut tree, args, &mut errors),
        FileCommand::Ln(args) => names::ln(&mut tree, args),
        FileCommand::Xattr(args) => names::xattr(&mut tree, &args.command, &mut out),
        FileCommand::Chmod(args) => rights::chmod(&mut tree, args, &mut errors),
        FileCommand::Chown(args) => rights::chown(&mut tree, args, &mut errors),
        FileCommand::Acl(args) => rights::acl(&mut tree, &args.command, &mut out, &mut errors),
    };
    match done.and_then(|()| out.end()) {
        Ok(()) => Ok(errors.exit()),
        // The reader of our output has read enough.
        Err(TransferError::Stopped) => Ok(Exit::Done),
        Err(error) => Err(Failure::new(error.exit(), error)),
    }
}

fn name_of(command: &FileCommand) -> &'static str {
    match command {
        FileCommand::Ls(_) => "ls",
        FileCommand::Find(_) => "find",
        FileCommand::Du(_) => "du",
        FileCommand::Stat(_) => "stat",
        FileCommand::Cat(_) => "cat",
        FileCommand::Mkdir(_) => "mkdir",
        FileCommand::Mv(_) => "mv",
        FileCommand::Rm(_) => "rm",
        FileCommand::Df(_) => "df",
        FileCommand::Checksum(_) => "checksum",
        FileCommand::Touch(_) => "touch",
        FileCommand::Ln(_) => "ln",
        FileCommand::Chmod(_) => "chmod",
        FileCommand::Chown(_) => "chown",
        FileCommand::Acl(_) => "acl",
        FileCommand::Xattr(_) => "xattr",
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
