//! The remedy for a data directory that cannot be opened: the command to run, in words for the operator.

use console::Exit;

use crate::datadir::DataDir;
use crate::error::OpenError;

/// A data directory that could not be opened, the remedy if there is one, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Refused {
    what: String,
    source: OpenError,
}

impl Refused {
    /// The exit code of the command.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.source.exit()
    }
}

/// Adds the remedy, if there is one, to the error of a command that could not open `data`.
#[must_use]
pub fn refused(data: &DataDir, error: OpenError) -> Refused {
    let data = data.path.display().to_string();
    let damage = error.is_journal_damage();
    let remedy = match &error {
        OpenError::Journal(journal::JournalError::Missing { .. }) => Some(format!(
            "The journal is gone, although there are names or objects that it held. Is the disk of {data}/journal \
             mounted? Otherwise put the folder back from the same backup as the rest. If it is lost for good, `weir \
             fsck --data {data} --reset-journal` continues with what the indexes hold, and without later changes \
             (docs/how-to/recover.md)"
        )),
        OpenError::JournalResetUnfinished => {
            Some(format!("Run `weir fsck --data {data} --reset-journal` again: it continues where it was interrupted"))
        }
        OpenError::RestoreInterrupted => {
            Some(format!("Run `weir restore TARGET --data {data}` again: it continues where it was interrupted"))
        }
        OpenError::Index { which: "namespace", source: kv::KvError::Lost(_) } => Some(format!(
            "The namespace is lost. `weir restore TARGET --data {data}` puts a backup of it back, and loses nothing \
             if the journal has everything since; without a backup, `weir export --without-namespace` saves the \
             objects (docs/how-to/recover.md)"
        )),
        OpenError::InDatabase { address } => Some(format!(
            "Start the manager with `--database {address}`, or with `database.url` in the configuration file. `weir db \
             export` moves the namespace back into this directory (docs/how-to/move-engine.md)"
        )),
        OpenError::JournalResetMark { .. } | OpenError::DatabaseMark { .. } => {
            Some("Put the file back as it was (docs/reference/formats.md), or from a backup".to_owned())
        }
        OpenError::OlderNamespace { .. } => Some(format!(
            "Put journal, namespace and store back from one backup. To go on with this older namespace run `weir \
             fsck --data {data} --repair-journal`: no number is then used twice, no object is removed, and objects \
             that the namespace does not know are listed (docs/how-to/recover.md)"
        )),
        OpenError::NotInDatabase { .. } => Some(format!(
            "Run `weir db import --data {data} --database URL` to move the namespace into the database, or start the manager without \
             --database (docs/how-to/database.md)"
        )),
        OpenError::OtherDatabase { .. } => Some(
            "The directory of a manager has the key and the identity of its cluster. Start the manager of the \
             database's cluster on its own directory or on a copy of it, and a new cluster on a new directory and an \
             empty database (docs/how-to/database.md)"
                .to_owned(),
        ),
        OpenError::EmptyDatabase { .. } => Some(
            "Name the database that has the namespace; if it is lost, restore it by PostgreSQL's own tools \
             (docs/how-to/database.md)"
                .to_owned(),
        ),
        OpenError::OlderDatabase { .. } => Some(
            "If another database has everything, name that one. Otherwise stop all managers and run `weir db continue \
             --after-restore --database URL`: it continues with this database above all numbers that may be in use; \
             changes that it lacks are lost (docs/how-to/database.md)"
                .to_owned(),
        ),
        error if error.is_lost_store() => Some(format!(
            "Put {data}/store/checkpoint back from a backup of the same time as {data}/journal. If there is none run \
             `weir fsck --data {data} --rebuild-store`: it builds the index again from the files of objects \
             (docs/how-to/recover.md)"
        )),
        _ => None,
    };
    let what = if damage {
        format!(
            "the journal of {data} is damaged, and the node does not start, because acknowledged changes would be \
             missing silently. If the disk can be mended or a copy of the segment exists, put it back. Otherwise \
             `weir fsck --data {data} --repair-journal` cuts off what cannot be read, saves it aside, and lists what \
             was lost (docs/how-to/recover.md)"
        )
    } else {
        let remedy = remedy.map_or_else(String::new, |remedy| format!(". {remedy}"));
        format!("cannot open {data}{remedy}")
    };
    Refused { what, source: error }
}
