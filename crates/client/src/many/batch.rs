//! Writes small files in batches ([`wire::batch`]): each with its path and content in one entry, hundreds of entries in one request.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use types::Crc32c;
use wire::batch::{self, DATA_MAX, List, Op};
use wire::{PathArg, Request, Response, StreamId};

use super::take_due;
use super::upload::SmallFile;
use crate::many::Written;
use crate::pace::Waits;
use crate::{BatchLimits, ClientError, Session};

/// Files of one batch, if the server takes as many: more would gain nothing, and wait longer for each other.
const FILES: usize = 256;
/// Batches under way: while the server does one, the next is on its way and another is being made.
const BATCHES: usize = 3;

/// Writes small files in batches. It is used as [`super::ManyWriter`] is. What was acknowledged is durable. After a lost connection the
/// caller gets back what was not answered ([`BatchWriter::unfinished`]): any of it may be there, whole, and nothing of it in part.
#[derive(Debug)]
pub struct BatchWriter<T> {
    session: Session,
    limits: BatchLimits,
    /// What goes into the next batch.
    list: List,
    gathered: Vec<Sending<T>>,
    sent: HashMap<StreamId, Vec<Sending<T>>>,
    done: VecDeque<Written<T>>,
    /// What the server has put off.
    later: Vec<Sending<T>>,
    /// Bytes of all that are under way.
    bytes: usize,
}

#[derive(Debug)]
struct Sending<T> {
    file: SmallFile<T>,
    waits: Waits,
}

impl<T> Sending<T> {
    fn what(&self) -> String {
        format!("make {}", self.file.path)
    }
}

impl<T> BatchWriter<T> {
    /// Longest file that goes into a batch.
    pub const LEN_MAX: usize = DATA_MAX as usize;

    /// Over this connection, to a server that takes such batches.
    #[must_use]
    pub fn new(session: Session, limits: BatchLimits) -> Self {
        Self {
            session,
            limits,
            list: List::default(),
            gathered: Vec::new(),
            sent: HashMap::new(),
            done: VecDeque::new(),
            later: Vec::new(),
            bytes: 0,
        }
    }

    /// Files under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.gathered.len() + self.sent.values().map(Vec::len).sum::<usize>() + self.later.len() + self.done.len()
    }

    /// Is more to be given to it before the next [`BatchWriter::wait`]?
    #[must_use]
    pub fn has_room(&self) -> bool {
        let (files, bytes) = (self.files_max(), self.limits.bytes as usize);
        self.under_way() < BATCHES * files && self.bytes < BATCHES * bytes
    }

    fn files_max(&self) -> usize {
        FILES.min(self.limits.entries as usize)
    }

    /// Begins with a file.
    ///
    /// # Errors
    /// Of the connection; the file is then among [`BatchWriter::unfinished`].
    pub fn put(&mut self, file: SmallFile<T>) -> Result<(), ClientError> {
        self.bytes += file.data.len();
        self.gather(Sending { file, waits: Waits::default() })
    }

    fn gather(&mut self, mut sending: Sending<T>) -> Result<(), ClientError> {
        let SmallFile { path, mode, data, replace, words, .. } = &sending.file;
        let opaque = words.as_deref().and_then(|words| wire::Opaque::parse(words.as_bytes()).ok());
        let mut target = Vec::new();
        PathArg { path: path.clone().into_bytes(), opaque }.write(&mut target);
        let op = Op::Create { replace: *replace, mode: *mode, crc32c: Crc32c::of(data).0 };
        let len = data.len();
        sending.waits.sent();
        let in_all = self.list.request().len as usize + List::cost(target.len(), len);
        if self.gathered.len() >= self.files_max() || in_all > self.limits.bytes as usize {
            let sent = self.send();
            if sent.is_err() {
                self.later.push(sending);
                return sent;
            }
        }
        match self.list.push(op, &target, len) {
            Ok(()) => self.gathered.push(sending),
            Err(source) => {
                let what = sending.what();
                self.finish(sending, Err(ClientError::Unsendable { what, source }));
            }
        }
        Ok(())
    }

    /// Sends what is gathered.
    fn send(&mut self) -> Result<(), ClientError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let list = std::mem::take(&mut self.list);
        let mut parts = Vec::with_capacity(1 + self.gathered.len());
        parts.push(list.bytes());
        parts.extend(self.gathered.iter().map(|sending| sending.file.data.as_slice()));
        let stream = self.session.send(&Request::Batch(list.request()), &parts)?;
        self.sent.insert(stream, std::mem::take(&mut self.gathered));
        Ok(())
    }

    /// Waits until one more file is done with; `None`: nothing is under way.
    ///
    /// # Errors
    /// Of the connection: nothing more comes over it.
    pub fn wait(&mut self) -> Result<Option<Written<T>>, ClientError> {
        loop {
            if let Some(done) = self.done.pop_front() {
                return Ok(Some(done));
            }
            let now = Instant::now();
            while let Some(sending) = take_due(&mut self.later, now, |sending| &sending.waits) {
                self.gather(sending)?;
            }
            self.send()?;
            if self.under_way() == 0 {
                return Ok(None);
            }
            let next = self.later.iter().filter_map(|sending| sending.waits.until()).min();
            if self.done.is_empty() && self.session.ready_or_due(next, !self.sent.is_empty())? {
                let (stream, response) = self.session.response()?;
                self.answered(stream, response)?;
            }
        }
    }

    /// The answer to a batch is here.
    fn answered(&mut self, stream: StreamId, response: Response) -> Result<(), ClientError> {
        let Some(batch) = self.sent.remove(&stream) else {
            let what = "an answer to a question that was not asked".to_owned();
            return Err(ClientError::Unexpected { server: self.session.server().clone(), what });
        };
        let answers = match response {
            Response::WaitResp { .. } => {
                self.sent.insert(stream, batch);
                return Ok(());
            }
            Response::Ok(body) => match batch::answers(&body, batch.len()) {
                Ok(answers) => answers,
                Err(source) => {
                    self.sent.insert(stream, batch);
                    return Err(self.session.malformed(source));
                }
            },
            // It holds for all of them.
            all => vec![all; batch.len()],
        };
        for (mut sending, answer) in batch.into_iter().zip(answers) {
            let what = sending.what();
            let result = match answer {
                Response::Ok(_) => Ok(()),
                Response::Wait { seconds, text } => {
                    match self.session.put_off(&mut sending.waits, &what, seconds, &text) {
                        Ok(()) => {
                            self.later.push(sending);
                            continue;
                        }
                        Err(waited) => Err(waited),
                    }
                }
                other => Err(ClientError::refused(self.session.server(), &what, other)),
            };
            self.finish(sending, result);
        }
        Ok(())
    }

    fn finish(&mut self, sending: Sending<T>, result: Result<(), ClientError>) {
        self.bytes = self.bytes.saturating_sub(sending.file.data.len());
        self.done.push_back(Written { file: sending.file, result });
    }

    /// After an error of the connection: the files of which nobody knows whether they are there.
    #[must_use]
    pub fn unfinished(self) -> Vec<SmallFile<T>> {
        let sent = self.sent.into_values().flatten();
        sent.chain(self.gathered).chain(self.later).map(|sending| sending.file).collect()
    }

    /// The connection, when nothing is under way.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.session
    }
}
