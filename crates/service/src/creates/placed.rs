//! New files whose names are the manager's: each comes with its permission and its whole content. They are written and closed side by side, so that they
//! share the syncs of all stores that take part, and the manager's commits.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk_server::{PendingWrite, PlacedError, WriteGrant};
use types::{NsPath, Timestamp};

use super::{Creates, SIDE_BY_SIDE};
use crate::answer::Answer;
use crate::error::Error;
use crate::lease::{Lease, LeaseFacts, LeaseState};
use crate::making::Making;

/// Bytes of one batch that are on their way to other stores, not answered: what goes to one node is bounded for all who send there.
const ON_THEIR_WAY: usize = 1 << 20;
/// Contents of one batch that are on their way there: a store that has too many to begin with does not answer in time, and is left out.
const CONTENTS_ON_THEIR_WAY: usize = 32;

/// A store that has not answered for so long is not waited for with the rest of a batch.
const SILENT: Duration = Duration::from_secs(1);

/// A new file that the manager has opened.
pub(crate) struct PlacedCreate<A> {
    pub(crate) path: NsPath,
    /// To write it.
    pub(crate) grant: WriteGrant,
    /// What its last change is to be, if the client says so.
    pub(crate) mtime: Option<Timestamp>,
    /// Where its content is in what stands behind the batch's header.
    pub(crate) data: Range<usize>,
    /// Told what came of it.
    pub(crate) answer: A,
}

impl<A: Answer<()>> Creates<A> {
    /// Writes and closes all of them.
    pub(crate) fn begin_placed(self: &Arc<Self>, wanted: Vec<PlacedCreate<A>>) {
        self.on_workers(wanted, |one| one.data.len(), |this, job| this.fill_placed(job));
    }

    /// On a worker.
    fn fill_placed(&self, job: Vec<PlacedCreate<A>>) {
        let (mut on_their_way, mut bytes) = (VecDeque::new(), 0);
        // A store that does not answer is left out of each content by itself, which takes its time: others need this thread meanwhile.
        let mut is_patient = true;
        for create in job {
            let len = create.data.len();
            if let Some(writing) = self.fill_one(create) {
                bytes += len;
                on_their_way.push_back((writing, len));
            }
            while (bytes > ON_THEIR_WAY || on_their_way.len() > CONTENTS_ON_THEIR_WAY)
                && let Some((oldest, len)) = on_their_way.pop_front()
            {
                bytes -= len;
                let begun = Instant::now();
                if is_patient {
                    // Its close has the answer for its client.
                    let _: Result<(), PlacedError> = PendingWrite::wait(oldest);
                }
                is_patient &= begun.elapsed() < SILENT;
            }
        }
        // A large one is a job of its own: as many as there are workers are on their way.
        for (writing, _) in on_their_way.into_iter().filter(|(_, len)| *len > SIDE_BY_SIDE) {
            let _: Result<(), PlacedError> = writing.wait();
        }
    }

    /// Writes and closes one; tells what others have still to answer of it.
    fn fill_one(&self, create: PlacedCreate<A>) -> Option<PendingWrite> {
        let PlacedCreate { path, grant, mtime, data, answer } = create;
        let node = &self.node;
        let doing = format!("make {path}");
        let len = data.len() as u64;
        let placed = match grant.attach(path.as_bytes(), Some(len)) {
            Ok(placed) => placed,
            Err(error) => {
                answer.give(Err(Error::of_placed(&doing, &error)));
                return None;
            }
        };
        let facts = LeaseFacts {
            path,
            caller: Arc::clone(&self.caller),
            fresh: true,
            begun: false,
            expected_len: Some(len),
            boot: node.settings.config.boot,
            // The batch's own stands for all of them.
            room: None,
        };
        let making = Some(Making::Placed(Arc::clone(&placed)));
        let state = LeaseState { owner: Some(self.owner), token: placed.writer(), writer: making };
        let object = placed.replica().object;
        let lease = Lease::new((placed.ino(), object), facts, state);
        if let Some(mtime) = mtime {
            lease.set_mtime(mtime);
        }
        {
            // In closing standing from the beginning: nobody can take it up, and whatever its end is, it has one.
            let mut writers = node.writes.lock();
            if writers.lease(object).is_some() {
                drop(writers);
                let text = format!("Cannot {doing} now: it is being written already");
                answer.give(Err(Error::Wait { seconds: 1, text }));
                return None;
            }
            writers.attach(object, self.owner, Arc::clone(&lease));
            writers.begin_close(object, self.owner);
        }
        let (writing, doubt) = match placed.write_whole(&self.behind[data]) {
            Ok(writing) => (writing, None),
            Err(error) => (None, Some(Error::of_placed(&doing, &error))),
        };
        drop(placed);
        node.endings.close(&lease, doubt, answer);
        writing
    }
}
