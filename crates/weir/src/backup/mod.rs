//! `weir backup` and `weir restore`: the namespace of a node, as of one record of its log, in a folder elsewhere.
//!
//! A backup is complete in itself: a full one, then what changed since, each file checksummed and read back before it counts. The bytes of
//! files are not in it. [`target`] is the folder, [`restore`] the way back.

pub mod manifest;
mod place;
pub mod restore;
pub mod target;
mod under_way;

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

use journal::Seq;
use kv::BackupHead;
use serde_json::json;
use types::Timestamp;

use crate::Failure;
use crate::cli::BackupArgs;
use crate::config::Config;
use crate::config::units::show_size;
use crate::control::Ask;
use crate::control::client::{AskError, ask};
use crate::datadir::{self, DataDirError, IfNew};
use crate::exit::Exit;
use crate::foundation::{Foundation, Purpose};
use crate::logging;
use crate::serve::{now, open_data_dir, refused};

use manifest::{Kind, Manifest};
use target::{Target, TargetError};

/// What is said of a backup through the control socket, before its bytes.
#[must_use]
pub fn head_value(head: &BackupHead) -> serde_json::Value {
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

/// Runs `weir backup`.
pub fn run(args: &BackupArgs) -> Result<Exit, Failure> {
    let config = Config::load(args.config.as_deref()).map_err(|error| Failure::new(Exit::Usage, error))?;
    logging::start("warn")?;
    let missing = || DataDirError::Missing { path: args.data.clone() };
    let format = datadir::format_of(&args.data)
        .and_then(|format| format.ok_or_else(missing))
        .map_err(|error| Failure::new(error.exit(), error))?;
    let mut target = Target::open(&args.target, Some(&format)).map_err(of_target)?;
    let since = if args.full { None } else { target.continues_at() };
    let made = match ask(&args.data, &Ask::Backup { since: since.map(|(seq, log)| (seq.0, log)) }) {
        Ok((head, mut content)) => {
            let head = head_of(&head).ok_or_else(|| {
                Failure::message(Exit::Failed, "the node's answer does not read; is it of another version?")
            })?;
            take(&mut target, head, now(), &mut |file| io::copy(&mut (&mut content as &mut dyn Read), file).map(drop))
        }
        Err(AskError::NotRunning { .. }) => stopped_node(args, &config, &mut target, since),
        Err(error) => Err(Failure::new(Exit::Failed, error)),
    }?;
    let removed = args.keep.map_or(Ok(0), |keep| target.keep(keep)).map_err(of_target)?;
    say(args, &made, removed).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}

/// Of a node that is not running, from its data directory.
fn stopped_node(
    args: &BackupArgs,
    config: &Config,
    target: &mut Target,
    since: Option<(Seq, u64)>,
) -> Result<Manifest, Failure> {
    let data = open_data_dir(Some(&args.data), IfNew::Refuse)?;
    let foundation = Foundation::open(&data, config, Purpose::Check, now()).map_err(|error| refused(&data, error))?;
    let backup = foundation.namespace_index.backup(since);
    let backup = backup.map_err(|error| {
        Failure::new(Exit::Damaged, error).while_doing("the backup cannot be made; `weir fsck` says more")
    })?;
    let head = backup.head();
    let mut backup = Some(backup);
    let made = take(target, head, now(), &mut |file| match backup.take() {
        Some(backup) => backup.write_to(file).map_err(|error| io::Error::other(error.to_string())),
        None => Ok(()),
    });
    foundation
        .close()
        .map_err(|error| Failure::new(error.exit(), error).while_doing("cannot close the data directory"))?;
    made
}

/// Takes one backup in: written, synced, read back, and only then counted.
fn take(
    target: &mut Target,
    head: BackupHead,
    taken: Timestamp,
    content: &mut dyn FnMut(&mut File) -> io::Result<()>,
) -> Result<Manifest, Failure> {
    target.add(head, taken, content).map_err(|error| {
        of_target(error).while_doing("the backup was not taken; earlier ones are unchanged; run it again")
    })
}

fn of_target(error: TargetError) -> Failure {
    Failure::new(error.exit(), error)
}

fn say(args: &BackupArgs, made: &Manifest, removed: usize) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if args.json {
        let mut value = made.to_json();
        if let Some(object) = value.as_object_mut() {
            object.insert("removed".into(), removed.into());
        }
        writeln!(stdout, "{value}")?;
        return stdout.flush();
    }
    let what = match made.kind {
        Kind::Full => "everything".to_owned(),
        Kind::Delta => format!("what changed after record {}", made.after),
    };
    writeln!(
        stdout,
        "backup {} in {}: {what}, as of record {}; {} keys, {}, read back and whole",
        made.number,
        show(&args.target),
        made.upto,
        made.entries,
        show_size(made.bytes)
    )?;
    if removed > 0 {
        writeln!(stdout, "{removed} older backups were removed")?;
    }
    stdout.flush()
}

fn show(path: &Path) -> std::path::Display<'_> {
    path.display()
}
