//! One connection for batches: the batch that is being filled, the batches that were sent, and their answers.

use std::collections::HashMap;
use std::time::Instant;

use types::Crc32c;
use wire::batch::{self, List, Op};
use wire::{PathArg, Request, Response, StreamId, WireError};

use super::upload::SmallFile;
use crate::pace::WaitLimit;
use crate::{BatchLimits, ClientError, Endpoint, Session};

/// A file on its way.
#[derive(Debug)]
pub(super) struct Sending<T> {
    pub(super) file: SmallFile<T>,
    pub(super) waits: WaitLimit,
    /// In a cluster, after the manager has opened the file: the server that takes its bytes, and the words for that
    /// server.
    pub(super) to: Option<(Endpoint, String)>,
}

impl<T> Sending<T> {
    pub(super) fn what(&self) -> String {
        format!("make {}", self.file.path)
    }

    /// The path with its words.
    fn target(&self) -> Vec<u8> {
        let words = self.file.words.as_deref().into_iter().chain(self.to.as_ref().map(|(_, words)| words.as_str()));
        let words = words.collect::<Vec<_>>().join("&");
        let opaque = if words.is_empty() { None } else { wire::Opaque::parse(words.as_bytes()).ok() };
        let mut target = Vec::new();
        PathArg { path: self.file.path.clone().into_bytes(), opaque }.write(&mut target);
        target
    }
}

/// Files with their answers.
pub(super) type Answered<T> = Vec<(Box<Sending<T>>, Response)>;

/// Why an entry is not in the next batch.
pub(super) enum NotQueued {
    /// The batch is full, and must be sent first.
    Full,
    /// No batch can take it.
    Never(WireError),
}

/// One connection for batches. See the module.
#[derive(Debug)]
pub(super) struct Lane<T> {
    pub(super) session: Session,
    pub(super) limits: BatchLimits,
    /// The most files of one batch.
    files_max: usize,
    list: List,
    gathered: Vec<Box<Sending<T>>>,
    /// Whether batches carry the files' bytes, or only names.
    with_contents: bool,
    sent: HashMap<StreamId, Vec<Box<Sending<T>>>>,
}

impl<T> Lane<T> {
    pub(super) fn new(session: Session, limits: BatchLimits, files_max: usize) -> Self {
        Self {
            session,
            limits,
            files_max: files_max.min(limits.entries as usize),
            list: List::default(),
            gathered: Vec::new(),
            with_contents: limits.takes != batch::Takes::Names,
            sent: HashMap::new(),
        }
    }

    pub(super) fn files_max(&self) -> usize {
        self.files_max
    }

    /// The number of files in the batch that is being filled and in unanswered batches.
    pub(super) fn under_way(&self) -> usize {
        self.gathered.len() + self.sent.values().map(Vec::len).sum::<usize>()
    }

    /// Whether an answer is due.
    pub(super) fn awaits(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Puts a file into the next batch.
    pub(super) fn put(&mut self, mut sending: Box<Sending<T>>) -> Result<(), (Box<Sending<T>>, NotQueued)> {
        let SmallFile { mode, data, replace, .. } = &sending.file;
        let target = sending.target();
        let (op, len) = if self.with_contents {
            (Op::Create { replace: *replace, mode: *mode, crc32c: Crc32c::of(data).0 }, data.len())
        } else {
            (Op::Open { replace: *replace, mode: *mode, len: u32::try_from(data.len()).unwrap_or(u32::MAX) }, 0)
        };
        let in_all = self.list.request().len as usize + List::cost(target.len(), len);
        if self.gathered.len() >= self.files_max || !self.gathered.is_empty() && in_all > self.limits.bytes as usize {
            return Err((sending, NotQueued::Full));
        }
        sending.waits.sent();
        match self.list.push(op, &target, len) {
            Ok(()) => {
                self.gathered.push(sending);
                Ok(())
            }
            Err(error) => Err((sending, NotQueued::Never(error))),
        }
    }

    /// Sends the batch that is being filled.
    pub(super) fn send(&mut self) -> Result<(), ClientError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let list = std::mem::take(&mut self.list);
        let mut parts = Vec::with_capacity(1 + self.gathered.len());
        parts.push(list.bytes());
        if self.with_contents {
            parts.extend(self.gathered.iter().map(|sending| sending.file.data.as_slice()));
        }
        if self.sent.is_empty() {
            self.session.take_up("write small files", self.session.deadline());
        }
        self.session.has_asked(!self.sent.is_empty());
        let stream = self.session.send(&Request::Batch(list.request()), &parts)?;
        self.sent.insert(stream, std::mem::take(&mut self.gathered));
        self.session.flush()
    }

    /// Takes the next answer, and returns the answered files. Returns none if the server defers the whole batch or
    /// has not answered completely.
    pub(super) fn receive(&mut self) -> Result<Answered<T>, ClientError> {
        let (stream, response) = self.session.response()?;
        let Some(batch) = self.sent.remove(&stream) else {
            let what = "an answer to a request that was not sent".to_owned();
            return Err(ClientError::Unexpected { server: self.session.server().clone(), what });
        };
        if !matches!(response, Response::WaitResp { .. }) {
            self.session.has_moved();
        }
        let answers = match response {
            Response::WaitResp { .. } => {
                self.session.deadline_mut().put_off(Instant::now());
                self.sent.insert(stream, batch);
                return Ok(Vec::new());
            }
            Response::Ok(body) => match batch::answers(&body, batch.len()) {
                Ok(answers) => answers,
                Err(source) => {
                    self.sent.insert(stream, batch);
                    return Err(self.session.malformed(source));
                }
            },
            // The answer holds for all files of the batch.
            all => vec![all; batch.len()],
        };
        Ok(batch.into_iter().zip(answers).collect())
    }

    /// Returns all unanswered files.
    pub(super) fn unanswered(self) -> impl Iterator<Item = Box<Sending<T>>> {
        self.sent.into_values().flatten().chain(self.gathered)
    }
}
