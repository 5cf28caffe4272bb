//! Writes small files in batches ([`wire::batch`]). Each entry holds a path and the file's bytes, and one request
//! carries hundreds of entries.
//!
//! In a cluster the manager gets the names, and returns for each file the server that takes its bytes. Those
//! servers get the bytes, each in batches of its own.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use wire::batch::{DATA_MAX, Takes};
use wire::request::{Query, QueryKind};
use wire::response::ConfigReply;
use wire::{FileHandle, Request, Response};

use super::lane::{Answered, Lane, NotQueued, Sending};
use super::take_due;
use super::upload::SmallFile;
use crate::fs::follow;
use crate::many::SmallFileResult;
use crate::pace::WaitLimit;
use crate::session::{Answer, any_ready};
use crate::{BatchLimits, ClientError, Endpoint, Session, Settings, Url};

/// The number of files in one batch, if the server takes as many. With more, the files would only wait longer for
/// each other.
const FILES: usize = 256;
/// The same for batches to a manager, whose files then go to several servers.
const FILES_DEALT: usize = 512;
/// How long the client does not try again to reach an unreachable server.
const UNREACHABLE: Duration = Duration::from_secs(10);
/// Batches under way. While the server handles one, the next is on its way and another is being filled.
const BATCHES: usize = 3;

/// Writes small files in batches. It is used like [`super::ManyWriter`]. Acknowledged files are durable.
///
/// After a lost connection the caller gets back the files without an answer ([`BatchWriter::unfinished`]). Each of
/// them may exist completely or not at all. Only in a cluster, a file that the manager has opened
/// ([`SmallFile::opened`]) may exist without its bytes.
///
/// In a cluster the connection to one of several servers may be lost. Then only its files come back, with an error
/// of the connection.
#[derive(Debug)]
pub struct BatchWriter<T> {
    home: Lane<T>,
    /// Connections to servers that take files for the home.
    servers: HashMap<Endpoint, Lane<T>>,
    /// Servers that could not be reached, and until when they are not tried again. Otherwise each of hundreds of
    /// files would wait for the same timeout.
    unreachable: HashMap<Endpoint, Instant>,
    settings: Settings,
    /// The home's address: its user, and whether connections must be encrypted.
    at: Url,
    done: VecDeque<SmallFileResult<T>>,
    /// Files that a server has deferred.
    later: Vec<Box<Sending<T>>>,
    /// Bytes of all files under way.
    bytes: usize,
}

impl<T> BatchWriter<T> {
    /// The length of the longest file that goes into a batch, in bytes.
    pub const LEN_MAX: usize = DATA_MAX as usize;

    /// Uses this connection to a server that takes batches. `settings`, and the user and the TLS of `url`, are for the
    /// servers that it redirects to.
    #[must_use]
    pub fn new(session: Session, limits: BatchLimits, settings: &Settings, url: &Url) -> Self {
        let files = if limits.takes == Takes::Names { FILES_DEALT } else { FILES };
        Self {
            home: Lane::new(session, limits, files),
            servers: HashMap::new(),
            unreachable: HashMap::new(),
            settings: settings.clone(),
            at: Url { path: "/".to_owned(), opaque: None, ..url.clone() },
            done: VecDeque::new(),
            later: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the number of files under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let sent: usize = self.lanes().map(Lane::under_way).sum();
        sent + self.later.len() + self.done.len()
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane<T>> {
        std::iter::once(&self.home).chain(self.servers.values())
    }

    /// Whether the caller should give more files before the next [`BatchWriter::wait`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        let (files, bytes) = (self.home.files_max(), self.home.limits.bytes as usize);
        self.under_way() < BATCHES * files && self.bytes < BATCHES * bytes
    }

    /// Starts with a file.
    ///
    /// # Errors
    /// The connection fails. Then the file is among [`BatchWriter::unfinished`].
    pub fn put(&mut self, file: SmallFile<T>) -> Result<(), ClientError> {
        self.bytes += file.data.len();
        self.gather(Box::new(Sending { file, waits: WaitLimit::default(), to: None }))
    }

    /// Puts a file into the next batch for its server. Errors are those of the home.
    fn gather(&mut self, sending: Box<Sending<T>>) -> Result<(), ClientError> {
        match sending.to.as_ref().map(|(server, _)| server.clone()) {
            None => match put(&mut self.home, sending) {
                Ok(()) => Ok(()),
                Err(NotBatched::Refused(sending, error)) => {
                    self.finish(*sending, Err(error));
                    Ok(())
                }
                Err(NotBatched::Broken(sending, error)) => {
                    self.later.push(sending);
                    Err(error)
                }
            },
            Some(server) => {
                let lane = match self.lane(&server) {
                    Ok(lane) => lane,
                    Err(error) => return self.lost(&server, error, vec![sending]),
                };
                match put(lane, sending) {
                    Ok(()) => Ok(()),
                    Err(NotBatched::Refused(sending, error)) => {
                        self.finish(*sending, Err(error));
                        Ok(())
                    }
                    Err(NotBatched::Broken(sending, error)) => self.lost(&server, error, vec![sending]),
                }
            }
        }
    }

    /// Returns the connection to a server that takes files.
    fn lane(&mut self, server: &Endpoint) -> Result<&mut Lane<T>, ClientError> {
        if !self.servers.contains_key(server) {
            if self.unreachable.get(server).is_some_and(|until| Instant::now() < *until) {
                let source = io::ErrorKind::TimedOut.into();
                return Err(ClientError::Connect { server: server.clone(), source });
            }
            let lane = self.connected(server).inspect_err(|_| {
                self.unreachable.insert(server.clone(), Instant::now() + UNREACHABLE);
            })?;
            self.servers.insert(server.clone(), lane);
        }
        // It was added just now.
        self.servers.get_mut(server).ok_or_else(|| ClientError::Moved { server: server.clone() })
    }

    fn connected(&self, server: &Endpoint) -> Result<Lane<T>, ClientError> {
        let at = self.at.at(server.clone());
        let mut session = Session::connect(&at, &self.settings)?;
        let limits = limits_of(&mut session)?.filter(|limits| limits.takes == Takes::Contents);
        let limits = limits.ok_or_else(|| ClientError::Unexpected {
            server: server.clone(),
            what: "a batch is sent there, and it takes none".to_owned(),
        })?;
        Ok(Lane::new(session, limits, FILES_DEALT))
    }

    /// A server that takes files cannot be reached. Its files go back to the caller. Returns errors that concern
    /// more than this server.
    fn lost(&mut self, server: &Endpoint, error: ClientError, also: Vec<Box<Sending<T>>>) -> Result<(), ClientError> {
        let files: Vec<_> = self.servers.remove(server).into_iter().flat_map(Lane::unanswered).chain(also).collect();
        if matches!(error, ClientError::Stopped) {
            self.later.extend(files);
            return Err(error);
        }
        tracing::info!(%error, "{} files were under way there", files.len());
        for sending in files {
            let error = match &error {
                ClientError::Connect { server, source } => {
                    ClientError::Connect { server: server.clone(), source: source.kind().into() }
                }
                _ => ClientError::Lost { server: server.clone(), source: io::ErrorKind::ConnectionAborted.into() },
            };
            self.finish(*sending, Err(error));
        }
        Ok(())
    }

    /// Waits until one more file has a result. `None`: no file is under way.
    ///
    /// # Errors
    /// The connection fails, and can no longer be used.
    pub fn wait(&mut self) -> Result<Option<SmallFileResult<T>>, ClientError> {
        let now = Instant::now();
        self.lanes_mut().for_each(|lane| lane.session.deadline_mut().resume(now));
        let written = self.next_written();
        let now = Instant::now();
        self.lanes_mut().for_each(|lane| lane.session.deadline_mut().pause(now));
        written
    }

    fn lanes_mut(&mut self) -> impl Iterator<Item = &mut Lane<T>> {
        std::iter::once(&mut self.home).chain(self.servers.values_mut())
    }

    fn next_written(&mut self) -> Result<Option<SmallFileResult<T>>, ClientError> {
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
            if self.done.is_empty() {
                self.receive()?;
            }
        }
    }

    /// Sends the batches that are being filled.
    fn send(&mut self) -> Result<(), ClientError> {
        self.home.send()?;
        let mut broken = Vec::new();
        for (server, lane) in &mut self.servers {
            if let Err(error) = lane.send() {
                broken.push((server.clone(), error));
            }
        }
        broken.into_iter().try_for_each(|(server, error)| self.lost(&server, error, Vec::new()))
    }

    /// Waits for an answer from any server, or until a deferred file is due.
    fn receive(&mut self) -> Result<(), ClientError> {
        let due = self.later.iter().filter_map(|sending| sending.waits.until()).min();
        if self.servers.is_empty() {
            if self.home.session.ready_or_due(due, self.home.awaits())? {
                let answered = self.home.receive()?;
                self.home_answered(answered)?;
            }
            return Ok(());
        }
        let patience = Instant::now() + self.settings.silence_max.max(Duration::from_secs(1));
        let end = due.map_or(patience, |due| due.min(patience));
        let mut awaited: Vec<(Option<Endpoint>, &mut Session)> = Vec::new();
        if self.home.awaits() {
            awaited.push((None, &mut self.home.session));
        }
        let servers = self.servers.iter_mut().filter(|(_, lane)| lane.awaits());
        awaited.extend(servers.map(|(server, lane)| (Some(server.clone()), &mut lane.session)));
        let which = any_ready(&mut awaited, end, &self.settings.stop)?;
        let from = match which {
            Some(which) => awaited.swap_remove(which).0,
            None if due.is_some_and(|due| due <= Instant::now()) || awaited.is_empty() => return Ok(()),
            // All servers are silent. One of them will report that itself when its time is over.
            None => awaited.swap_remove(0).0,
        };
        let Some(server) = from else {
            let answered = self.home.receive()?;
            return self.home_answered(answered);
        };
        let Some(lane) = self.servers.get_mut(&server) else { return Ok(()) };
        match lane.receive() {
            Ok(answered) => {
                for (sending, answer) in answered {
                    self.answered(sending, answer, &server);
                }
                Ok(())
            }
            Err(error) => self.lost(&server, error, Vec::new()),
        }
    }

    fn home_answered(&mut self, answered: Answered<T>) -> Result<(), ClientError> {
        let home = self.home.session.server().clone();
        let mut opened = Vec::new();
        for (mut sending, answer) in answered {
            match answer {
                Response::Redirect(redirect) if self.home.limits.takes == Takes::Names => {
                    match follow(&self.at, &redirect) {
                        Ok(to) => {
                            // If one server must be asked with TLS, so are all that are connected to later.
                            self.at.tls |= to.tls;
                            sending.file.opened = true;
                            sending.to = Some((to.server, to.opaque.unwrap_or_default()));
                            opened.push(sending);
                        }
                        Err(error) => self.finish(*sending, Err(error)),
                    }
                }
                answer => self.answered(sending, answer, &home),
            }
        }
        // All opened files must be stored before the first of them can fail.
        let mut opened = opened.into_iter();
        while let Some(sending) = opened.next() {
            if let Err(error) = self.gather(sending) {
                self.later.extend(opened);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Handles the answer to an entry, unless it is a redirect from a manager.
    fn answered(&mut self, mut sending: Box<Sending<T>>, answer: Response, server: &Endpoint) {
        let what = sending.what();
        let result = match answer {
            Response::Ok(_) if self.home.limits.takes == Takes::Names && sending.to.is_none() => {
                Err(ClientError::Unexpected { server: server.clone(), what: format!("no word where to {what}") })
            }
            Response::Ok(_) => Ok(()),
            Response::Wait { seconds, text } => {
                match self.home.session.put_off(&mut sending.waits, &what, seconds, &text) {
                    Ok(()) => return self.later.push(sending),
                    Err(waited) => Err(waited),
                }
            }
            // The server redirects although the manager has named it.
            Response::Redirect(_) if sending.to.is_some() => Err(ClientError::Moved { server: server.clone() }),
            other => Err(ClientError::refused(server, &what, other)),
        };
        self.finish(*sending, result);
    }

    fn finish(&mut self, Sending { file, .. }: Sending<T>, result: Result<(), ClientError>) {
        self.bytes = self.bytes.saturating_sub(file.data.len());
        self.done.push_back(SmallFileResult { file, result });
    }

    /// After an error of the connection: returns the files of which it is not known whether they exist.
    #[must_use]
    pub fn unfinished(self) -> Vec<SmallFile<T>> {
        let lanes = std::iter::once(self.home).chain(self.servers.into_values());
        let unanswered = lanes.flat_map(Lane::unanswered).chain(self.later).map(|sending| sending.file);
        // The caller has not been told of these. It can check whether they exist.
        unanswered.chain(self.done.into_iter().map(|done| done.file)).collect()
    }

    /// Returns the connection, when no file is under way.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.home.session
    }
}

/// Why a file was not put into a batch.
enum NotBatched<T> {
    /// No batch can take it.
    Refused(Box<Sending<T>>, ClientError),
    /// The connection is lost.
    Broken(Box<Sending<T>>, ClientError),
}

/// Puts a file into the next batch. A full batch is sent first.
fn put<T>(lane: &mut Lane<T>, sending: Box<Sending<T>>) -> Result<(), NotBatched<T>> {
    let sending = match lane.put(sending) {
        Ok(()) => return Ok(()),
        Err((sending, NotQueued::Never(source))) => return Err(unsendable_entry(sending, source)),
        Err((sending, NotQueued::Full)) => sending,
    };
    if let Err(error) = lane.send() {
        return Err(NotBatched::Broken(sending, error));
    }
    match lane.put(sending) {
        Ok(()) => Ok(()),
        Err((sending, NotQueued::Never(source))) => Err(unsendable_entry(sending, source)),
        Err((sending, NotQueued::Full)) => {
            let source = wire::WireError::Unsendable { what: "an entry of a batch", why: "the batch is full" };
            Err(unsendable_entry(sending, source))
        }
    }
}

fn unsendable_entry<T>(sending: Box<Sending<T>>, source: wire::WireError) -> NotBatched<T> {
    let what = sending.what();
    NotBatched::Refused(sending, ClientError::Unsendable { what, source })
}

/// Returns the limits of the server's batches.
fn limits_of(session: &mut Session) -> Result<Option<BatchLimits>, ClientError> {
    let args = wire::batch::CONFIG_KEY.as_bytes().to_vec();
    let request = Request::Query(Query { kind: QueryKind::Config, handle: FileHandle::default(), args });
    let Answer::Done(body) = session.call("query config", &request)? else { return Ok(None) };
    let reply = ConfigReply::decode(&body).map_err(|source| session.malformed(source))?;
    Ok(reply.values.first().and_then(|value| BatchLimits::parse(&String::from_utf8_lossy(value))))
}
