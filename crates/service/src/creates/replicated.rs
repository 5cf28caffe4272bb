//! New files of a cluster, each with its capability and its whole data. They are written and closed concurrently, so
//! that they share the syncs of all in-sync replicas and the manager's commits.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk_server::{DiskServerError, PendingWrite, WriteGrant};
use types::{ErrorCode, NsPath, Timestamp};

use super::{Creates, SIDE_BY_SIDE};
use crate::answer::Answer;
use crate::error::Error;
use crate::lease::{Lease, LeaseFacts, LeaseState};
use crate::names::wall_clock;
use crate::opening::to_manager;
use crate::service::Role;
use crate::write_target::WriteTarget;

/// Maximum number of unacknowledged bytes of one batch at other stores. All senders together have a limited window
/// for each node.
const ON_THEIR_WAY: usize = 1 << 20;
/// Maximum number of unacknowledged objects of one batch. A store that gets too many at once does not answer in time
/// and is removed from the in-sync replicas.
const CONTENTS_ON_THEIR_WAY: usize = 32;

/// After this time the rest of a batch no longer waits for a store that does not answer.
const SILENT: Duration = Duration::from_secs(1);

/// A new file that the manager has opened.
pub(crate) struct ReplicatedCreate<A> {
    pub(crate) path: NsPath,
    /// The permission to write it.
    pub(crate) grant: WriteGrant,
    /// The modification time that the client wants.
    pub(crate) mtime: Option<Timestamp>,
    /// The position of the data in the buffer of the batch.
    pub(crate) data: Range<usize>,
    /// Receives the result.
    pub(crate) answer: A,
}

impl<A: Answer<()>> Creates<A> {
    /// Writes and closes all files.
    pub(crate) fn begin_replicated(self: &Arc<Self>, wanted: Vec<ReplicatedCreate<A>>) {
        self.on_workers(wanted, |one| one.data.len(), |this, job| this.fill_replicated(job));
    }

    /// Writes and closes some of the files, on a worker.
    fn fill_replicated(&self, job: Vec<ReplicatedCreate<A>>) {
        let (mut on_their_way, mut bytes) = (VecDeque::new(), 0);
        // A silent store is removed from each object separately, which takes time. Do not block this thread for that:
        // others need it.
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
                    // The client gets the result from the close.
                    let _: Result<(), DiskServerError> = PendingWrite::wait(oldest);
                }
                is_patient &= begun.elapsed() < SILENT;
            }
        }
        // A large file has its own job, so the number of workers limits how many are written at a time.
        for (writing, _) in on_their_way.into_iter().filter(|(_, len)| *len > SIDE_BY_SIDE) {
            let _: Result<(), DiskServerError> = writing.wait();
        }
    }

    /// Writes and closes one file. Returns the write that other stores have not yet acknowledged.
    fn fill_one(&self, create: ReplicatedCreate<A>) -> Option<PendingWrite> {
        let ReplicatedCreate { path, grant, mtime, data, answer } = create;
        let node = &self.node;
        let doing = format!("make {path}");
        let (len, principal, may_reach) = (data.len() as u64, grant.principal(), grant.may_reach());
        let replicated = match grant.attach(path.as_bytes(), Some(len)) {
            Ok(replicated) => replicated,
            Err(error) => {
                answer.give(Err(self.elsewhere(&doing, &error)));
                return None;
            }
        };
        let facts = LeaseFacts {
            path,
            caller: Arc::new(self.caller.with_capability_of(principal)),
            fresh: true,
            begun: false,
            expected_len: Some(len),
            boot: node.settings.config.boot,
            opened: wall_clock(),
            // The batch has reserved the memory for all of its files.
            room: None,
            may_reach: node.growth.from(may_reach),
        };
        let write_target = Some(WriteTarget::Replicated(Arc::clone(&replicated)));
        let state = LeaseState { owner: Some(self.owner), token: replicated.writer(), writer: write_target };
        let object = replicated.replica().object;
        let lease = Lease::new((replicated.ino(), object), facts, state);
        if let Some(mtime) = mtime {
            lease.set_mtime(mtime);
        }
        {
            // The file is in the state `Closing` from the beginning, so nobody can take it over before it ends.
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
        let (writing, doubt) = match lease.reserve(len).map(|()| replicated.write_whole(&self.behind[data])) {
            Ok(Ok(writing)) => (writing, None),
            Ok(Err(error)) => (None, Some(self.elsewhere(&doing, &error))),
            Err(error) => (None, Some(error)),
        };
        drop(replicated);
        node.endings.close(&lease, doubt, None, answer);
        writing
    }

    /// The error for a file that cannot be written here. If the store has no space, the manager chooses another one: the
    /// client still has all the data.
    fn elsewhere(&self, doing: &str, error: &DiskServerError) -> Error {
        match &self.node.role {
            Role::Disk(disk) if error.code() == ErrorCode::NoSpace => to_manager(disk),
            _ => Error::of_disk_server(&doing, error),
        }
    }
}
