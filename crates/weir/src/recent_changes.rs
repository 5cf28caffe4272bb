//! What managers tell each other about the changes of the namespace, so that a standby one can answer readers without the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use database::{AskChanges, Postgres, Question, RecentChanges, Told};
use node::links::Links;
use node::{ChangedEntries, ChangedEntry, Changes, Committed, registration};
use parking_lot::Mutex;
use types::NodeId;

use crate::standby::Known;

/// How long the active manager may take to answer. Then readers read in the database.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long it is not asked again after it has not answered.
const PAUSE: Duration = Duration::from_millis(250);

/// What the active manager tells another one that knows of `since`, and whose readers have seen `seen`. `None` while it has no lease.
pub(crate) fn of(database: &Postgres, since: Committed, seen: Committed) -> Option<Changes> {
    let pair = |committed: Committed| (committed.fence, committed.batch);
    Some(match database.tell_changes(Question { since: pair(since), seen: pair(seen) })? {
        Told::Later => Changes::Later,
        Told::Changes(RecentChanges { fence, batch, entries }) => {
            let entry = |database::ChangedEntry { key, now }| ChangedEntry { key, now };
            let entries = entries.map(|entries| entries.into_iter().map(entry).collect());
            Changes::Entries(ChangedEntries { committed: Committed { fence, batch }, entries })
        }
    })
}

/// How a standby manager asks the active one.
pub(crate) fn asking(known: &Arc<Known>, links: &Arc<Links>) -> AskChanges {
    let (known, links) = (Arc::clone(known), Arc::clone(links));
    let paused_until = Mutex::new(None::<Instant>);
    Box::new(move |Question { since, seen }| {
        let active = NodeId(known.holder()?.node);
        let is_paused = paused_until.lock().is_some_and(|until| Instant::now() < until);
        if is_paused || !links.is_up(active) {
            return None;
        }
        let committed = |(fence, batch)| Committed { fence, batch };
        match registration::changes(&links, active, (committed(since), committed(seen)), PATIENCE) {
            Ok(Changes::Later) => Some(Told::Later),
            Ok(Changes::Entries(ChangedEntries { committed, entries })) => {
                let entry = |ChangedEntry { key, now }| database::ChangedEntry { key, now };
                let entries = entries.map(|entries| entries.into_iter().map(entry).collect());
                let Committed { fence, batch } = committed;
                Some(Told::Changes(RecentChanges { fence, batch, entries }))
            }
            Err(error) => {
                tracing::debug!("readers read in the database: {error}");
                *paused_until.lock() = Some(Instant::now() + PAUSE);
                None
            }
        }
    })
}
