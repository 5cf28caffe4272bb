//! The scrub of a server's store: the real reading and the real reports, at a pace of one replica in each tick.

use std::collections::BTreeSet;

use store::{Scrubbed, Scrubber};
use types::ReplicaId;

use super::Server;
use crate::manager::{Env, store_of};

/// The state of the scrub of one store.
#[derive(Default)]
pub(super) struct StoreScrub {
    scrubber: Scrubber,
    /// The last replica of the present pass.
    position: Option<ReplicaId>,
    /// Replicas to read before others.
    suspects: BTreeSet<ReplicaId>,
}

impl Server {
    /// Reads the next replica and reports what it finds.
    pub(super) fn scrub(&mut self, env: &mut Env<'_>) {
        let Self { scrub: Some(scrub), shell, stored, index, .. } = self else { return };
        let (store_id, store) = (store_of(*index), stored.store());
        scrub.suspects.extend(shell.take_suspects(store_id));
        let replica = match scrub.suspects.pop_first() {
            Some(suspect) => suspect,
            None => {
                let next = store.replicas(scrub.position, 1).ok().and_then(|found| found.first().map(|(id, _)| *id));
                scrub.position = next;
                match next {
                    Some(next) => next,
                    None => return,
                }
            }
        };
        match store.scrub(replica, &mut scrub.scrubber, &mut |_| true) {
            Ok(Scrubbed::Whole(_)) => {
                shell.found_whole(store_id, replica);
            }
            // An open write, or a replica that was removed: a later pass comes to it.
            Ok(Scrubbed::Busy | Scrubbed::Stopped) => {}
            Err(error) if error.is_about_replica() => {
                env.counts.found_damaged += u64::from(shell.found_damaged(store_id, replica) == Ok(true));
            }
            Err(_) => {}
        }
    }
}
