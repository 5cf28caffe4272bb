//! Checksums of files that have none: a disk server that may read the content reads it through, and says what it found. As long as somebody waits for
//! that, it is asked again and again: neither a lost question nor a lost answer leaves anybody waiting, and a reading that nobody wants any more stops.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::Time;
use cluster::replication::ObjectDigest;
use types::{ErrorCode, NodeId, NsPath, ObjectId};

use crate::{Manager, OpenRequest, OpeningError};
use node::{FromManager, NotSummed, SumRequest};

/// Characters of what a disk server says that are shown.
const TEXT_MAX: usize = 512;
/// How often a disk server is asked for the same.
const AGAIN: Duration = Duration::from_secs(2);

/// A file whose checksums are asked for.
#[derive(Clone, Debug)]
pub struct Unsummed {
    /// Who asks.
    pub open_request: OpenRequest,
    /// Its name.
    pub path: NsPath,
    /// The content that the name is to have.
    pub object: ObjectId,
}

/// Why a content was not read through.
#[derive(Debug, thiserror::Error)]
pub enum SumError {
    /// No disk server may.
    #[error(transparent)]
    Opening(#[from] OpeningError),
    /// One has tried.
    #[error("the disk server at {host}: {why}")]
    NotRead {
        /// Which.
        host: String,
        /// What it says.
        why: NotSummed,
    },
}

impl SumError {
    /// For protocols.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Opening(error) => error.code(),
            Self::NotRead { why, .. } => why.code,
        }
    }
}

/// Whoever asks again is told what is there now.
fn gone() -> SumError {
    OpeningError::wait("its name is not that of the same file any more").into()
}

/// What a disk server says to people: so much of it, and nothing that a terminal would take for something else.
fn shown(text: &str) -> String {
    link::printable(text.chars().take(TEXT_MAX).collect::<String>().as_bytes())
}

/// Who is told what was found.
type Then = Box<dyn FnOnce(Result<ObjectDigest, SumError>) + Send>;

/// What is being read.
pub(crate) struct Summing {
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
    /// `random`: what a manager before has asked is not taken for one's own.
    pub(crate) fn new(random: u64) -> Self {
        Self { last: random, asked: BTreeMap::new() }
    }
}

impl Manager {
    /// Has a disk server read a file through. `then` is called once, in whichever thread, and must not wait; `is_wanted` is asked now and then whether
    /// anybody waits for it.
    pub fn sum(
        &self,
        file: Unsummed,
        is_wanted: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<ObjectDigest, SumError>) + Send + 'static,
    ) {
        self.begin_sum(file, Box::new(is_wanted), Box::new(then), None);
    }

    /// `failed`: why it comes here again.
    fn begin_sum(&self, file: Unsummed, is_wanted: Box<dyn Fn() -> bool + Send>, then: Then, failed: Option<SumError>) {
        let to = match self.open_read(&file.open_request, &file.path, false, None) {
            Ok(to) if to.object == file.object => to,
            Ok(_) => return then(Err(gone())),
            // Others may have asked for it by the name that it has now.
            Err(error) if error.code() == ErrorCode::NotFound => return then(Err(gone())),
            Err(error) => return then(Err(error.into())),
        };
        // Whoever else has it has failed as well.
        if let Some(failed) = failed.filter(|_| file.open_request.tried.contains(&to.host)) {
            return then(Err(failed));
        }
        let told = self.world.now();
        let mut summing = self.summing.lock();
        summing.last = summing.last.wrapping_add(1);
        let number = summing.last;
        let request = SumRequest { number, capability: to.capability, path: file.path.as_bytes().to_vec() };
        self.world.send(to.node, FromManager::Sum(request.clone()));
        let asked = Asked { file, is_wanted, then, node: to.node, host: to.host, request, told };
        summing.asked.insert(number, asked);
    }

    /// A disk server has read one, or not.
    pub(crate) fn summed(&self, node: NodeId, number: u64, found: Result<ObjectDigest, NotSummed>) {
        // It goes to a client, and into the log.
        let found = found.map_err(|why| NotSummed { text: shown(&why.text), ..why });
        let asked = {
            let mut summing = self.summing.lock();
            // Nobody else was asked.
            let is_of = summing.asked.get(&number).is_some_and(|asked| asked.node == node);
            if is_of { summing.asked.remove(&number) } else { None }
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

    /// Asks again, gives up what nobody waits for, and tells those whose disk server has gone.
    pub(crate) fn look_at_sums(&self, now: Time) {
        let ended: Vec<Asked> = {
            let mut summing = self.summing.lock();
            let asked = &mut summing.asked;
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
