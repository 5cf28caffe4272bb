//! The target of a third-party copy: a thread fetches the file into its writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use types::ErrorCode;

use super::{Cancelled, Pull, PullLeave, PullSink, PullSource, ThirdParty};
use crate::answer::{Answer, AnyAnswer};
use crate::error::Error;
use crate::fair::Class;
use crate::lease::{Lease, WriteAccess};
use crate::names::wall_clock;
use crate::sharers::ShareId;
use crate::shares::{Shares, network};
use crate::transfers::UserKey;
use crate::writers::Owner;

/// Maximum number of syncs that wait for the end of one copy.
const WAITERS_MAX: usize = 16;

/// The copies into a node.
pub(crate) struct Pulls {
    with: Option<Arc<dyn Pull>>,
    /// Copies in progress, counted by the client's machine, because a source may be slow or may never answer.
    shares: Shares,
    /// When closed, no copy writes any more.
    gate: RwLock<Gate>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
}

impl Pulls {
    /// Fetches using `with`, at most `max` files at a time.
    pub(crate) fn new(with: Option<Arc<dyn Pull>>, max: usize) -> Self {
        Self { with, shares: Shares::new(max), gate: RwLock::new(Gate::Open) }
    }

    /// Whether this node can fetch files.
    pub(crate) fn is_offered(&self) -> bool {
        self.with.is_some()
    }

    /// Stops all copies. After the return none of them touches the store.
    pub(crate) fn stop(&self) {
        *self.gate.write() = Gate::Closed;
    }

    /// Fails for a source that the configuration does not permit.
    pub(crate) fn allow(&self, server: &str) -> Result<(), Error> {
        let Some(with) = &self.with else { return Err(Error::unsupported("A third-party copy")) };
        with.may_fetch_from(server).map_err(|why| Error::new(ErrorCode::Denied, why))
    }

    fn are_over(&self) -> bool {
        *self.gate.read() == Gate::Closed
    }
}

/// One copy into this node.
pub(crate) struct PullJob {
    source: PullSource,
    lease: Arc<Lease>,
    owner: Owner,
    share: ShareId,
    cancelled: AtomicBool,
    state: Mutex<State>,
}

enum State {
    /// No sync has arrived.
    Ready,
    /// In progress, with the syncs that wait for its end.
    Running(Vec<Box<dyn AnyAnswer<()>>>),
    /// The result.
    Done(Result<(), Error>),
}

impl PullJob {
    /// Prepares a copy of `source` into the writer of `lease`. Until it is done, the file cannot be closed as
    /// complete.
    pub(crate) fn new(source: PullSource, lease: Arc<Lease>, (owner, share): (Owner, ShareId)) -> Arc<Self> {
        lease.missing.lock().refused(0, u64::MAX, ErrorCode::InProgress);
        let (cancelled, state) = (AtomicBool::new(false), Mutex::new(State::Ready));
        Arc::new(Self { source, lease, owner, share, cancelled, state })
    }

    /// Syncs the handle. The first sync starts the copy. Later ones are answered at its end, within about `seconds`
    /// ([`Answer::put_off`]).
    pub(crate) fn sync(self: &Arc<Self>, copies: &Arc<ThirdParty>, mut answer: impl Answer<()>, seconds: u32) {
        let mut state = self.state.lock();
        let outcome = match &mut *state {
            State::Done(result) => result.clone(),
            State::Running(waiters) if waiters.len() < WAITERS_MAX => {
                answer.put_off(seconds);
                waiters.push(Box::new(answer));
                return;
            }
            State::Running(_) => {
                let text = "Too many requests wait for the end of this third-party copy";
                Err(Error::new(ErrorCode::Overloaded, text))
            }
            State::Ready => self.start(copies).map(|()| *state = State::Running(Vec::new())),
        };
        drop(state);
        answer.give(outcome);
    }

    fn start(self: &Arc<Self>, copies: &Arc<ThirdParty>) -> Result<(), Error> {
        let Some(with) = copies.pulls.with.clone() else {
            return Err(Error::unsupported("A third-party copy"));
        };
        if !copies.pulls.shares.take(self.source.client) {
            let text = format!(
                "Your machine has its share of the {} third-party copies that this server does at a time",
                copies.pulls.shares.most()
            );
            return Err(Error::Wait { seconds: 5, text });
        }
        let (job, inner) = (Arc::clone(self), Arc::clone(copies));
        let spawned = std::thread::Builder::new().name("pull".into()).spawn(move || job.run(&inner, &*with));
        if let Err(error) = spawned {
            copies.pulls.shares.give_back(self.source.client);
            let text = format!("Cannot begin the third-party copy: no thread can be started: {error}");
            return Err(Error::new(ErrorCode::Internal, text));
        }
        Ok(())
    }

    fn run(self: Arc<Self>, copies: &Arc<ThirdParty>, with: &dyn Pull) {
        let access = WriteAccess::new((self.owner, self.share), Arc::clone(&self.lease), false);
        let caller = &self.lease.caller;
        let user = (caller.principal, (caller.client.user.clone(), network(self.source.client)));
        let mut sink = Sink { job: &self, copies, access, user, refused: None };
        let (job, over) = (Arc::clone(&self), Arc::clone(copies));
        let cancelled: Cancelled = Arc::new(move || job.is_cancelled() || over.pulls.are_over());
        // The waiting syncs depend on this thread, so it must survive a panic.
        let work = std::panic::AssertUnwindSafe(|| {
            self.source.leave.check(wall_clock())?;
            with.pull(&self.source, cancelled, &mut sink)
        });
        let done = std::panic::catch_unwind(work).unwrap_or_else(|_| Err("the copy panicked, a bug".to_owned()));
        let result = if self.is_cancelled() { Err("it was stopped".to_owned()) } else { done };
        let path = &self.lease.path;
        // A new owner of the upload has its own mark.
        let result = result.and_then(|()| {
            let _hold = sink.access.hold().map_err(|error| error.text().to_owned())?;
            self.lease.missing.lock().written(0, u64::MAX);
            Ok(())
        });
        let result = match result {
            Ok(()) => {
                tracing::info!(%path, server = %self.source.server.escape_debug(), "fetched");
                Ok(())
            }
            Err(why) => {
                tracing::info!(%path, server = %self.source.server.escape_debug(), why, "not fetched");
                let code = if self.is_cancelled() { Some(ErrorCode::Cancelled) } else { sink.refused };
                let code = code.unwrap_or(ErrorCode::Internal);
                Err(Error::new(code, format!("Cannot copy {path} from {}: {why}", self.source.server)))
            }
        };
        copies.pulls.shares.give_back(self.source.client);
        let before = std::mem::replace(&mut *self.state.lock(), State::Done(result.clone()));
        if let State::Running(waiters) = before {
            waiters.into_iter().for_each(|waiter| waiter.give_boxed(result.clone()));
        }
    }

    /// Whether it reads the source with a delegated proxy.
    pub(crate) fn is_by_proxy(&self) -> bool {
        matches!(self.source.leave, PullLeave::Proxy(_))
    }

    /// Stops the copy if it is not done.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Why the target is incomplete, if it is.
    pub(crate) fn doubt(&self) -> Option<Error> {
        match &*self.state.lock() {
            State::Done(result) => result.clone().err(),
            State::Ready | State::Running(_) => {
                let (path, server) = (&self.lease.path, &self.source.server);
                let text = format!("Cannot close {path} as complete: its copy from {server} has not come to its end");
                Some(Error::new(ErrorCode::Cancelled, text))
            }
        }
    }
}

struct Sink<'a> {
    job: &'a PullJob,
    copies: &'a ThirdParty,
    access: WriteAccess,
    /// The user that requested the copy.
    user: UserKey,
    /// Why the target could not be written.
    refused: Option<ErrorCode>,
}

impl PullSink for Sink<'_> {
    fn put(&mut self, offset: u64, data: &[u8]) -> Result<(), String> {
        // The data of a striped file goes to other servers, which may need a slot of this one. So hold none while it
        // is written.
        let is_striped = self.access.lease.is_striped;
        let bytes = if is_striped { 0 } else { data.len() };
        // Wait for the slot before taking the gate, so that a stop need not wait for it.
        let mut turn = self.copies.transfers.of_user(self.user.clone(), self.job.owner.0, Class::Move, bytes);
        turn.take(|| bytes as u64);
        let gate = self.copies.pulls.gate.read();
        if *gate == Gate::Closed {
            return Err("the server stops".to_owned());
        }
        let _gate = (!is_striped).then_some(gate);
        if self.job.is_cancelled() {
            return Err("it was stopped".to_owned());
        }
        self.access.reserve(offset.saturating_add(data.len() as u64)).map_err(|error| {
            self.refused = (error.code() == ErrorCode::Quota).then_some(ErrorCode::Quota);
            error.text().to_owned()
        })?;
        let hold = self.access.hold().map_err(|error| error.text().to_owned())?;
        self.copies.counters.written(data.len() as u64);
        hold.writer_to_change().write(offset, data, None).map_err(|error| {
            let refused = error.told(&format_args!("write {}", self.access.lease.path));
            match refused {
                // The source permits the copy to this server only.
                Error::Redirect(_) => {
                    self.refused = Some(ErrorCode::Unavailable);
                    "its store has no room any more or has failed, and another server would have to go on; copy it again".to_owned()
                }
                _ => {
                    self.refused = (refused.code() == ErrorCode::NoSpace).then_some(ErrorCode::NoSpace);
                    error.to_string()
                }
            }
        })
    }
}
