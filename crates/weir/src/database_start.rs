//! What a manager looks at in its database before it is a standby or active: whether the two belong together, and whether it is a member of the cluster.

use std::time::{Duration, Instant};

use console::signals::Signal;
use database::{DatabaseError, PlaceWatch, Standing, read_once};
use foundation::{DataDir, DatabaseSettings, OpenError};
use link::Roles;
use namespace::MemberEntry;
use types::NodeId;

use crate::cluster_node::in_words;
use crate::exit::Exit;
use crate::manager_identity::{NODES_UNREADABLE, names_failed, own_node};
use crate::manager_process::ManagerProcess;
use crate::not_active::NotActive;
use crate::serve_manager::cannot_open;
use crate::{Failure, supervisor};

/// The wait between two attempts to reach the database.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// Looks at the place in the database. Waits while the database cannot be reached, except with a directory that has not been used before: then the
/// settings may be wrong. `None`: the process must end.
pub(crate) fn first_look(
    process: &ManagerProcess,
    database: &DatabaseSettings,
    watch: &mut PlaceWatch,
) -> Result<Option<Standing>, Failure> {
    let mut away_since = None;
    loop {
        let looked = foundation::check_database(&process.data, database).and_then(|()| Ok(watch.look()?));
        let error = match looked {
            Ok(standing) => {
                if let Some(since) = away_since {
                    tracing::info!("the database answers, after {:.1} s", Instant::elapsed(&since).as_secs_f64());
                }
                return Ok(Some(standing));
            }
            Err(error) if process.data.fresh || !may_come_back(&error) => {
                return Err(cannot_open(&process.data, error));
            }
            Err(error) => error,
        };
        if away_since.is_none() {
            away_since = Some(Instant::now());
            tracing::warn!("{error}; this manager waits until the database answers");
            supervisor::say("waits for its database, which cannot be reached; the log says why");
        }
        if let Ok(Signal::Stop(signal)) = process.stop.recv_timeout(BETWEEN_ATTEMPTS) {
            tracing::info!("{signal}: stopping");
            return Ok(None);
        }
    }
}

/// Whether the database may answer later without anybody changing the settings.
fn may_come_back(error: &OpenError) -> bool {
    use DatabaseError::{Conflict, Full, Timeout, Unavailable};
    matches!(error, OpenError::Database(Unavailable { .. } | Full { .. } | Timeout(_) | Conflict(_)))
}

/// Why the manager `own` may not work in its cluster, if `members` say that it was removed.
pub(crate) fn was_removed(own: NodeId, members: &[MemberEntry]) -> Option<Failure> {
    let member = members.iter().find(|member| member.node == own);
    let is_none = member.is_none() && !members.is_empty();
    let is_other = member.is_some_and(|member| member.roles != Roles::MANAGER.bits());
    (is_none || is_other).then(|| {
        Failure::message(
            Exit::DataDirectory,
            format!(
                "this manager, node {own}, was removed from its cluster; nothing was changed. Let it join again with an empty data directory (`weir token create --role manager`)"
            ),
        )
    })
}

/// Refuses a manager that is no member, as the database has it now, before it takes the place there. Reads alone, so that it disturbs no other manager.
pub(crate) fn check_member(data: &DataDir, database: &DatabaseSettings) -> Result<(), NotActive> {
    let own = own_node(&data.held()).map_err(|failure| in_words(data, &failure))?;
    let members = read_once(&database.address, |read| namespace::members(read));
    let members = members.map_err(|error| names_failed(error, NODES_UNREADABLE))?;
    was_removed(own, &members).map_or(Ok(()), |failure| Err(failure.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_waited_for() {
        let why = || "why".to_owned();
        let away = DatabaseError::Unavailable { address: why(), reason: why() };
        for error in [away, DatabaseError::Timeout(why()), DatabaseError::Conflict(why())] {
            assert!(may_come_back(&OpenError::Database(error)));
        }
        let wrong = DatabaseError::Refused { address: why(), reason: why() };
        for error in [wrong, DatabaseError::Schema(why()), DatabaseError::LostTransactions(why())] {
            assert!(!may_come_back(&OpenError::Database(error)));
        }
        assert!(!may_come_back(&OpenError::InDatabase { address: why() }));
    }
}
