//! `weir fsck`, `backup`, `restore` and `export`: the command line and the configuration for the crate `maintenance`, and the running node
//! for a backup.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use config::Config;
use control::client::{AskError, ask};
use control::{ControlRequest, Reply};
use journal::Seq;
use kv::{BackupHead, JournaledIndex};
use maintenance::backup::{self, BackupOptions, restore};
use maintenance::export::{self, ExportOptions};
use maintenance::fsck::{self, FsckOptions};
use serde_json::json;

use crate::cli::{BackupArgs, ExportArgs, FsckArgs, IfDamaged, RestoreArgs, usual_data};
use crate::context::watched;
use crate::exit::Exit;
use crate::init::Owner;
use crate::{Failure, logging};

/// Runs `weir fsck`.
pub fn fsck(args: &FsckArgs) -> Result<Exit, Failure> {
    let config = begin(args.config.as_ref())?;
    let options = FsckOptions {
        repair: args.repair,
        remove_unreferenced: args.remove_unreferenced,
        quick: args.quick,
        repair_journal: args.repair_journal,
        rebuild_store: args.rebuild_store,
        reset_journal: args.reset_journal,
        json: args.json,
        list: args.list,
    };
    let Some(data) = &args.data else { return Err(Failure::message(Exit::Usage, "--data is missing")) };
    fsck::run(data, &config.foundation(), config.grace, &options).map_err(failed)
}

/// Runs `weir backup`.
pub fn backup(args: &BackupArgs) -> Result<Exit, Failure> {
    let data = args.data.clone().unwrap_or_else(usual_data);
    become_owner(&data, &args.target)?;
    let config = begin(args.config.as_ref())?;
    let options = BackupOptions {
        target: args.target.clone(),
        data: data.clone(),
        full: args.full,
        keep: args.keep,
        json: args.json,
    };
    backup::run(&options, &config.foundation(), &mut |since| ask_node(&data, since)).map_err(failed)
}

/// If root runs this for the node of another user, and that user's is the place for the backup too, it starts again as that user: the timer, as that
/// user, must be able to go on in the same folder, and root must not write through a link that the user puts in the way.
fn become_owner(data: &Path, target: &Path) -> Result<(), Failure> {
    let Some(owner) = Owner::of(data) else { return Ok(()) };
    let place =
        target.ancestors().find(|place| place.exists() && !place.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some((uid, gid)) = owner.other_than_root().filter(|_| Owner::of(place) == Some(owner)) else { return Ok(()) };
    // By this link, as the user may not have access to the directory of the program.
    let error = Command::new("/proc/self/exe").arg0("weir").args(std::env::args_os().skip(1)).uid(uid).gid(gid).exec();
    let what = format!("cannot run as the user {uid}, to whom {} belongs", data.display());
    Err(Failure::new(Exit::Failed, error).while_doing(what))
}

/// Runs `weir restore`.
pub fn restore(args: &RestoreArgs) -> Result<Exit, Failure> {
    let config = begin(args.config.as_ref())?;
    let options = restore::RestoreOptions {
        target: args.target.clone(),
        data: args.data.clone(),
        until: args.until.clone(),
        list: args.list,
        verify: args.verify,
        json: args.json,
        list_max: args.list_max,
    };
    restore::run(&options, &config.foundation()).map_err(failed)
}

/// Runs `weir export`.
pub fn export(args: &ExportArgs) -> Result<Exit, Failure> {
    let config = begin(args.config.as_ref())?;
    let options = ExportOptions {
        target: args.target.clone(),
        without_namespace: args.without_namespace,
        owners: args.owners,
        damaged: match args.damaged {
            IfDamaged::Suffix => export::IfDamaged::Suffix,
            IfDamaged::LeaveOut => export::IfDamaged::LeaveOut,
        },
        json: args.json,
        list: args.list,
    };
    export::run(&args.data, &config.foundation(), config.grace, &options).map_err(failed)
}

fn failed(error: maintenance::Error) -> Failure {
    Failure::new(error.exit(), error)
}

/// Reads the configuration of the node and starts the log.
fn begin(config: Option<&PathBuf>) -> Result<Config, Failure> {
    let config = Config::load(config.map(PathBuf::as_path)).map_err(|error| Failure::new(Exit::Usage, error))?;
    logging::start("warn")?;
    Ok(config)
}

/// A backup from the running node: its head, and its bytes.
type NodeBackup = (BackupHead, Box<dyn Read>);

/// Asks the running node for a backup of what changed since; `None` where none is running.
fn ask_node(
    data: &Path,
    since: Option<(Seq, u64)>,
) -> Result<Option<NodeBackup>, Box<dyn std::error::Error + Send + Sync>> {
    let request = ControlRequest::Backup { since: since.map(|(seq, log)| (seq.0, log)) };
    let (at, of) = (format!("the node on {}", data.display()), data.to_owned());
    match watched(at, move || ask(&of, &request)) {
        Ok((head, content)) => {
            let head = head_of(&head).ok_or("the node's answer does not read; is it of another version?")?;
            Ok(Some((head, Box::new(content))))
        }
        Err(AskError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The node's answer to a request for a backup: a line that describes it, then its bytes.
pub(crate) fn back_up(namespace: &JournaledIndex, since: Option<(u64, u64)>) -> Reply {
    let backup = match namespace.backup(since.map(|(seq, incarnation)| (Seq(seq), incarnation))) {
        Ok(backup) => backup,
        Err(error) => {
            tracing::error!("a backup of the namespace was asked for and cannot be made: {error}");
            return Reply::Refused(format!("the backup cannot be made: {error}"));
        }
    };
    let head = head_value(&backup.head());
    let write = move |out: &mut dyn io::Write| {
        backup.write_to(out).map_err(|error| {
            tracing::warn!("a backup of the namespace broke off: {error}");
            io::Error::other(error.to_string())
        })
    };
    Reply::Stream(head, Box::new(write))
}

/// The answer on the control socket that precedes a backup's bytes.
fn head_value(head: &BackupHead) -> serde_json::Value {
    json!({ "after": head.after.map(|seq| seq.0), "upto": head.upto.0, "incarnation": head.incarnation })
}

fn head_of(value: &serde_json::Value) -> Option<BackupHead> {
    let number = |name: &str| value.get(name)?.as_u64();
    Some(BackupHead {
        after: number("after").map(Seq),
        upto: Seq(number("upto")?),
        incarnation: number("incarnation")?,
    })
}
