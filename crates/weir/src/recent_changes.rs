//! What managers tell each other about the changes of the namespace, so that a standby one can answer readers without the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use database::{AskChanges, Postgres, RecentChanges};
use node::links::Links;
use node::{ChangedEntries, ChangedEntry, Committed, registration};
use parking_lot::Mutex;
use types::NodeId;

use crate::standby::Known;

/// How long the active manager may take to answer. Then readers read in the database.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long it is not asked again after it has not answered.
const PAUSE: Duration = Duration::from_secs(1);

/// What the active manager tells another one that knows of `since`. `None` while it has no lease.
pub(crate) fn of(database: &Postgres, since: Committed) -> Option<ChangedEntries> {
    let RecentChanges { fence, batch, entries } = database.changes_since(since.fence, since.batch)?;
    let entry = |database::ChangedEntry { key, now }| ChangedEntry { key, now };
    let entries = entries.map(|entries| entries.into_iter().map(entry).collect());
    Some(ChangedEntries { committed: Committed { fence, batch }, entries })
}

/// How a standby manager asks the active one.
pub(crate) fn asking(known: &Arc<Known>, links: &Arc<Links>) -> AskChanges {
    let (known, links) = (Arc::clone(known), Arc::clone(links));
    let paused_until = Mutex::new(None::<Instant>);
    Box::new(move |fence, batch| {
        let active = NodeId(known.holder()?.node);
        let is_paused = paused_until.lock().is_some_and(|until| Instant::now() < until);
        if is_paused || !links.is_up(active) {
            return None;
        }
        match registration::changes(&links, active, Committed { fence, batch }, PATIENCE) {
            Ok(ChangedEntries { committed, entries }) => {
                let entry = |ChangedEntry { key, now }| database::ChangedEntry { key, now };
                let entries = entries.map(|entries| entries.into_iter().map(entry).collect());
                Some(RecentChanges { fence: committed.fence, batch: committed.batch, entries })
            }
            Err(error) => {
                tracing::debug!("readers read in the database: {error}");
                *paused_until.lock() = Some(Instant::now() + PAUSE);
                None
            }
        }
    })
}
