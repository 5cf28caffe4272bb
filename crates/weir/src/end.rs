//! Why a running node ends, and what its run ends with.

use std::path::PathBuf;

use database::DatabaseError;
use foundation::{DirWatch, Displaced, Foundation, NamesEngine, exit_of_database};

use crate::Failure;
use crate::exit::Exit;

/// Why a node ends.
pub(crate) enum End {
    /// A signal asked for it.
    Asked,
    /// A disk of the node has failed.
    DiskFailed {
        /// What failed.
        reason: String,
        /// The directory on this disk.
        at: PathBuf,
    },
    /// One of the node's own threads has died.
    Broken(String),
    /// The database under the namespace cannot be used any more: it has lost changes, for example.
    Database(DatabaseError),
    /// Another manager is active, or may be.
    StandsDown(String),
    /// The cluster refuses the node as it is.
    Refused(Failure),
    /// A directory of the node is not what its path names any more.
    Displaced(Displaced),
}

impl End {
    /// The reason that a stopped journal gives for the end.
    pub(crate) fn of_journal<N, O>(of: &Foundation<N, O>) -> Option<Self> {
        let journal = &of.journal;
        let reason = journal.poisoned()?;
        let at = of.watch.path().to_owned();
        tracing::error!("the journal in {} has stopped: {reason}", at.display());
        Some(if reason == journal::WRITER_DIED { Self::Broken(reason) } else { Self::DiskFailed { reason, at } })
    }

    /// Whether the path of a directory still names it.
    pub(crate) fn of_directory(watch: &DirWatch) -> Option<Self> {
        let displaced = watch.look().err()?;
        tracing::error!("{displaced}");
        Some(Self::Displaced(displaced))
    }

    /// Whether what holds a manager's names commits nothing any more.
    pub(crate) fn of_names(engine: &NamesEngine) -> Option<Self> {
        let reason = engine.broken()?;
        Some(match engine.database().and_then(|database| database.end()) {
            None => Self::Broken(reason),
            Some(error) => Self::of_database(error),
        })
    }

    fn of_database(error: DatabaseError) -> Self {
        match error {
            DatabaseError::TakenOver(why) => Self::StandsDown(why),
            error => Self::Database(error),
        }
    }

    /// Whether a manager has had no lease for so long that it should be a standby, where there are others.
    pub(crate) fn of_lease(engine: &NamesEngine, are_others: bool) -> Option<Self> {
        let lasted = engine.database()?.lease().is_over().filter(|_| are_others)?;
        Some(Self::StandsDown(format!(
            "the database has confirmed nothing for {} s, and another manager may be active",
            lasted.as_secs()
        )))
    }

    /// Why a manager that ends this way goes on as a standby; `None`: its process ends.
    pub(crate) fn stands_down(&self) -> Option<&str> {
        match self {
            Self::StandsDown(why) => Some(why),
            _ => None,
        }
    }

    /// The exit code if the stop hangs.
    pub(crate) fn late(&self) -> Exit {
        match self {
            // Started again, the manager is a standby.
            Self::Asked | Self::StandsDown(_) => Exit::Unclean,
            Self::DiskFailed { .. } => Exit::DiskFailed,
            Self::Broken(_) => Exit::Broken,
            Self::Database(error) => exit_of_database(error),
            Self::Refused(failure) => failure.exit,
            Self::Displaced(_) => Exit::DataDirectory,
        }
    }

    /// Ends the run after everything has stopped; `close` closes the stores and indexes.
    pub(crate) fn finish(self, close: impl FnOnce() -> Result<(), Failure>) -> Result<Exit, Failure> {
        let late = self.late();
        match self {
            Self::Asked => {
                close().map_err(|failure| {
                    failure.while_doing(
                        "the clean stop did not work; nothing acknowledged is lost, the next start recovers",
                    )
                })?;
                tracing::info!("stopped cleanly");
                Ok(Exit::Done)
            }
            Self::Displaced(displaced) => {
                // What was opened still works, so the stop is a clean one.
                if let Err(error) = close() {
                    tracing::warn!("the stop was not clean, the next start recovers: {error}");
                }
                Err(Failure::message(Exit::DataDirectory, format!("stopped, because {displaced}")))
            }
            Self::Refused(failure) => {
                // Closing is best effort here: the reason for the end matters more.
                if let Err(error) = close() {
                    tracing::warn!("the stop was not clean, the next start recovers: {error}");
                }
                Err(failure)
            }
            Self::DiskFailed { reason, at } => Err(Failure::message(
                Exit::DiskFailed,
                format!(
                    "stopped, because the disk under {} failed: {reason}. What was acknowledged as durable is there; look at the disk, then start again",
                    at.display()
                ),
            )),
            Self::Database(error) => {
                // Nothing more can be committed; the directory has nothing that is not durable.
                if let Err(error) = close() {
                    tracing::warn!("the stop was not clean, the next start recovers: {error}");
                }
                let what = format!("stopped, because {error} (docs/how-to/database.md)");
                Err(Failure::message(late, what))
            }
            Self::StandsDown(why) => Err(Failure::message(late, format!("stopped, because {why}"))),
            Self::Broken(what) => Err(Failure::message(
                Exit::Broken,
                format!(
                    "stopped, because {what}: a bug of weir, please report it with the log. What was acknowledged as durable is there; start again"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_another_one_has_replaced_is_started_again() {
        let unit = include_str!("../../../packaging/weir.service");
        let kept_from = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
        let is_kept = |end: &End| kept_from.split(' ').any(|code| code == end.late().code().to_string());
        for end in [End::of_database(DatabaseError::TakenOver(String::new())), End::StandsDown(String::new())] {
            assert!(end.stands_down().is_some() && !is_kept(&end));
            assert_eq!(end.finish(|| Ok(())).unwrap_err().exit, Exit::Unclean);
        }
        let lost = End::of_database(DatabaseError::LostTransactions(String::new()));
        assert!(lost.stands_down().is_none() && is_kept(&lost));
    }
}
