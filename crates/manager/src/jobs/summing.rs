//! Computes the checksums of files that have none. A disk server that may read the object reads it through and reports the checksums. While a client
//! waits, the manager repeats its request. So a lost request or answer leaves nobody waiting, and a read that nobody wants any more stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use types::{DigestKind, ErrorCode, NodeId, NsPath, ObjectId};

use crate::open::OpenService;
use crate::tracked::Tracked;
use crate::{OpenRequest, OpeningError, World};
use node::{ChecksumFailure, FromManager, SumRequest, Summed};

/// The most characters shown of a disk server's message.
const TEXT_MAX: usize = 512;
/// How often the manager repeats a request.
const AGAIN: Duration = Duration::from_secs(2);

/// A file whose checksums a client asks for.
#[derive(Clone, Debug)]
pub struct Unsummed {
    /// The client's request.
    pub open_request: OpenRequest,
    /// The file's path.
    pub path: NsPath,
    /// The object that the path must point to.
    pub object: ObjectId,
    /// A checksum to compute beside those that are always kept.
    pub digest: Option<DigestKind>,
}

/// Why an object was not read through.
#[derive(Debug, thiserror::Error)]
pub enum SumError {
    /// No disk server may read it.
    #[error(transparent)]
    Opening(#[from] OpeningError),
    /// A disk server tried and failed.
    #[error("the disk server at {host}: {why}")]
    NotRead {
        /// The disk server's host.
        host: String,
        /// Its reason.
        why: ChecksumFailure,
    },
}

impl SumError {
    /// The error code for protocols.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Opening(error) => error.code(),
            Self::NotRead { why, .. } => why.code,
        }
    }
}

/// A client that asks again gets the present object.
fn gone() -> SumError {
    OpeningError::wait("its name is not that of the same file any more").into()
}

/// A disk server's message, shortened and without control characters, so that a terminal cannot misread it.
fn shown(text: &str) -> String {
    link::printable(text.chars().take(TEXT_MAX).collect::<String>().as_bytes())
}

/// Called with the checksums.
type Then = Box<dyn FnOnce(Result<Summed, SumError>) + Send>;

/// See the module.
pub(crate) struct Summing {
    world: Arc<dyn World>,
    /// Decides which disk server may read a file.
    open: Arc<OpenService>,
    state: Tracked<State>,
}

/// Reads in progress.
struct State {
    last: u64,
    asked: BTreeMap<u64, Asked>,
}

struct Asked {
    file: Unsummed,
    is_wanted: Box<dyn Fn() -> bool + Send>,
    then: Then,
    node: NodeId,
    host: String,
    request: SumRequest,
    told: Time,
}

impl Summing {
    pub(crate) fn new(world: Arc<dyn World>, open: Arc<OpenService>) -> Self {
        // A random number separates this manager's requests from those of an earlier run.
        let state = State { last: world.random(), asked: BTreeMap::new() };
        Self { world, open, state: Tracked::new(state) }
    }

    /// Has a disk server read a file through. Calls `then` once, in any thread; it must not wait. Calls `is_wanted` from time to time to learn
    /// whether anyone still waits.
    pub(crate) fn sum(
        &self,
        file: Unsummed,
        is_wanted: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<Summed, SumError>) + Send + 'static,
    ) {
        self.begin_sum(file, Box::new(is_wanted), Box::new(then), None);
    }

    /// Sends the request to a disk server. `failed`: why an earlier server did not answer it.
    fn begin_sum(&self, file: Unsummed, is_wanted: Box<dyn Fn() -> bool + Send>, then: Then, failed: Option<SumError>) {
        let to = match self.open.decide_read(&file.open_request, &file.path, false, None) {
            Ok(to) if to.object == file.object => to,
            Ok(_) => return then(Err(gone())),
            // Others may have asked for the object by its present path.
            Err(error) if error.code() == ErrorCode::NotFound => return then(Err(gone())),
            Err(error) => return then(Err(error.into())),
        };
        // All other holders have failed too.
        let host = to.addresses.first().map(|address| address.host.clone()).unwrap_or_default();
        if let Some(failed) = failed.filter(|_| file.open_request.tried.contains(&host)) {
            return then(Err(failed));
        }
        let told = self.world.now();
        let mut state = self.state.lock();
        state.last = state.last.wrapping_add(1);
        let number = state.last;
        let request =
            SumRequest { number, capability: to.capability, path: file.path.as_bytes().to_vec(), digest: file.digest };
        self.world.send(to.node, FromManager::Sum(request.clone()));
        let asked = Asked { file, is_wanted, then, node: to.node, host, request, told };
        state.asked.insert(number, asked);
    }

    /// A disk server reports the checksums, or why it has none.
    pub(crate) fn summed(&self, node: NodeId, number: u64, found: Result<Summed, ChecksumFailure>) {
        // The text goes to a client and into the log.
        let found = found.map_err(|why| ChecksumFailure { text: shown(&why.text), ..why });
        let asked = {
            let mut state = self.state.lock();
            // Ignore answers of nodes that were not asked.
            let is_of = state.asked.get(&number).is_some_and(|asked| asked.node == node);
            if is_of { state.asked.remove(&number) } else { None }
        };
        let Some(Asked { mut file, is_wanted, then, host, .. }) = asked else { return };
        match found {
            Ok(whole) => then(Ok(whole)),
            Err(why) if why.code == ErrorCode::Overloaded => then(Err(OpeningError::wait(why.text).into())),
            Err(why) => {
                tracing::warn!(path = %file.path, host, %why, "a file was not read for its checksum");
                file.open_request.tried.push(host.clone());
                self.begin_sum(file, is_wanted, then, Some(SumError::NotRead { host, why }));
            }
        }
    }

    /// Repeats requests, drops those that nobody waits for, and fails those whose disk server has gone.
    pub(crate) fn tick(&self, now: Time) {
        let ended: Vec<Asked> = {
            let mut state = self.state.lock();
            let asked = &mut state.asked;
            let mut ended = Vec::new();
            for (number, asked) in asked.iter_mut() {
                let is_up = self.world.is_up(asked.node);
                if is_up && now.since(asked.told) < AGAIN {
                    continue;
                }
                asked.told = now;
                if is_up && (asked.is_wanted)() {
                    self.world.send(asked.node, FromManager::Sum(asked.request.clone()));
                } else {
                    ended.push(*number);
                }
            }
            ended.iter().filter_map(|number| asked.remove(number)).collect()
        };
        for Asked { then, host, .. } in ended {
            then(Err(OpeningError::wait(format!("the disk server at {host} has just gone away")).into()));
        }
    }
}
