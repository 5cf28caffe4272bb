//! Writes small files in batches ([`wire::batch`]): each with its path and content in one entry, hundreds of entries in one request.
//!
//! In a cluster the manager gets the names, and says of each who takes its content; those get the contents, each in batches of its own.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use wire::batch::{DATA_MAX, Takes};
use wire::request::{Query, QueryKind};
use wire::response::ConfigReply;
use wire::{FileHandle, Request, Response};

use super::lane::{Answered, Lane, NotPut, Sending};
use super::take_due;
use super::upload::SmallFile;
use crate::fs::follow;
use crate::many::Written;
use crate::pace::Waits;
use crate::session::{Answer, any_ready};
use crate::{BatchLimits, ClientError, Endpoint, Session, Settings, Url};

/// Files of one batch, if the server takes as many: more would gain nothing, and wait longer for each other.
const FILES: usize = 256;
/// The same where they are dealt out to several servers afterwards.
const FILES_DEALT: usize = 512;
/// How long a server that could not be reached is not tried again.
const UNREACHABLE: Duration = Duration::from_secs(10);
/// Batches under way: while the server does one, the next is on its way and another is being made.
const BATCHES: usize = 3;

/// Writes small files in batches. It is used as [`super::ManyWriter`] is. What was acknowledged is durable. After a lost connection the
/// caller gets back what was not answered ([`BatchWriter::unfinished`]): any of it may be there, whole, and nothing of it in part but in a cluster,
/// where a file that was opened for us ([`SmallFile::opened`]) may stand there without its content.
///
/// In a cluster the connection to one of several servers may be lost: then those files alone come back, with an error of the connection.
#[derive(Debug)]
pub struct BatchWriter<T> {
    home: Lane<T>,
    /// Who takes contents that the home does not take itself.
    places: HashMap<Endpoint, Lane<T>>,
    /// Who could not be reached, and until when that is not tried again: each of hundreds of files would wait as long for the same.
    unreachable: HashMap<Endpoint, Instant>,
    settings: Settings,
    user: String,
    done: VecDeque<Written<T>>,
    /// What a server has put off.
    later: Vec<Box<Sending<T>>>,
    /// Bytes of all that are under way.
    bytes: usize,
}

impl<T> BatchWriter<T> {
    /// Longest file that goes into a batch.
    pub const LEN_MAX: usize = DATA_MAX as usize;

    /// Over this connection, to a server that takes such batches. Where it sends elsewhere, `settings` and the user of `url` are for that.
    #[must_use]
    pub fn new(session: Session, limits: BatchLimits, settings: &Settings, url: &Url) -> Self {
        let files = if limits.takes == Takes::Names { FILES_DEALT } else { FILES };
        Self {
            home: Lane::new(session, limits, files),
            places: HashMap::new(),
            unreachable: HashMap::new(),
            settings: settings.clone(),
            user: url.user.clone().unwrap_or_else(|| settings.user.clone()),
            done: VecDeque::new(),
            later: Vec::new(),
            bytes: 0,
        }
    }

    /// Files under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let sent: usize = self.lanes().map(Lane::under_way).sum();
        sent + self.later.len() + self.done.len()
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane<T>> {
        std::iter::once(&self.home).chain(self.places.values())
    }

    /// Is more to be given to it before the next [`BatchWriter::wait`]?
    #[must_use]
    pub fn has_room(&self) -> bool {
        let (files, bytes) = (self.home.files_max(), self.home.limits.bytes as usize);
        self.under_way() < BATCHES * files && self.bytes < BATCHES * bytes
    }

    /// Begins with a file.
    ///
    /// # Errors
    /// Of the connection; the file is then among [`BatchWriter::unfinished`].
    pub fn put(&mut self, file: SmallFile<T>) -> Result<(), ClientError> {
        self.bytes += file.data.len();
        self.gather(Box::new(Sending { file, waits: Waits::default(), to: None }))
    }

    /// Puts a file into the next batch that goes where it is to go. An error is the home's.
    fn gather(&mut self, sending: Box<Sending<T>>) -> Result<(), ClientError> {
        match sending.to.as_ref().map(|(place, _)| place.clone()) {
            None => match put(&mut self.home, sending) {
                Ok(()) => Ok(()),
                Err(NotSent::Refused(sending, error)) => {
                    self.finish(*sending, Err(error));
                    Ok(())
                }
                Err(NotSent::Broken(sending, error)) => {
                    self.later.push(sending);
                    Err(error)
                }
            },
            Some(place) => {
                let lane = match self.lane(&place) {
                    Ok(lane) => lane,
                    Err(error) => return self.lost(&place, error, vec![sending]),
                };
                match put(lane, sending) {
                    Ok(()) => Ok(()),
                    Err(NotSent::Refused(sending, error)) => {
                        self.finish(*sending, Err(error));
                        Ok(())
                    }
                    Err(NotSent::Broken(sending, error)) => self.lost(&place, error, vec![sending]),
                }
            }
        }
    }

    /// The connection to a server that takes contents.
    fn lane(&mut self, place: &Endpoint) -> Result<&mut Lane<T>, ClientError> {
        if !self.places.contains_key(place) {
            if self.unreachable.get(place).is_some_and(|until| Instant::now() < *until) {
                let source = io::ErrorKind::TimedOut.into();
                return Err(ClientError::Connect { server: place.clone(), source });
            }
            let lane = self.connected(place).inspect_err(|_| {
                self.unreachable.insert(place.clone(), Instant::now() + UNREACHABLE);
            })?;
            self.places.insert(place.clone(), lane);
        }
        // It is there since just now.
        self.places.get_mut(place).ok_or_else(|| ClientError::Moved { server: place.clone() })
    }

    fn connected(&self, place: &Endpoint) -> Result<Lane<T>, ClientError> {
        let mut session = Session::connect(place, &self.user, &self.settings)?;
        let limits = limits_of(&mut session)?.filter(|limits| limits.takes == Takes::Contents);
        let limits = limits.ok_or_else(|| ClientError::Unexpected {
            server: place.clone(),
            what: "a batch is sent there, and it takes none".to_owned(),
        })?;
        Ok(Lane::new(session, limits, FILES_DEALT))
    }

    /// A server that takes contents is not to be reached (any more): its files are the caller's again. An error comes back if that is none of this
    /// server alone.
    fn lost(&mut self, place: &Endpoint, error: ClientError, also: Vec<Box<Sending<T>>>) -> Result<(), ClientError> {
        let files: Vec<_> = self.places.remove(place).into_iter().flat_map(Lane::unanswered).chain(also).collect();
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
                _ => ClientError::Lost { server: place.clone(), source: io::ErrorKind::ConnectionAborted.into() },
            };
            self.finish(*sending, Err(error));
        }
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
            if self.done.is_empty() {
                self.receive()?;
            }
        }
    }

    /// Sends what is gathered.
    fn send(&mut self) -> Result<(), ClientError> {
        self.home.send()?;
        let mut broken = Vec::new();
        for (place, lane) in &mut self.places {
            if let Err(error) = lane.send() {
                broken.push((place.clone(), error));
            }
        }
        broken.into_iter().try_for_each(|(place, error)| self.lost(&place, error, Vec::new()))
    }

    /// Waits for an answer, from wherever, or until something that was put off is due.
    fn receive(&mut self) -> Result<(), ClientError> {
        let due = self.later.iter().filter_map(|sending| sending.waits.until()).min();
        if self.places.is_empty() {
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
        let places = self.places.iter_mut().filter(|(_, lane)| lane.awaits());
        awaited.extend(places.map(|(place, lane)| (Some(place.clone()), &mut lane.session)));
        let which = any_ready(&mut awaited, end, &self.settings.stop)?;
        let from = match which {
            Some(which) => awaited.swap_remove(which).0,
            None if due.is_some_and(|due| due <= Instant::now()) || awaited.is_empty() => return Ok(()),
            // All are silent: one of them says so itself when it has been waited for.
            None => awaited.swap_remove(0).0,
        };
        let Some(place) = from else {
            let answered = self.home.receive()?;
            return self.home_answered(answered);
        };
        let Some(lane) = self.places.get_mut(&place) else { return Ok(()) };
        match lane.receive() {
            Ok(answered) => {
                for (sending, answer) in answered {
                    self.answered(sending, answer, &place);
                }
                Ok(())
            }
            Err(error) => self.lost(&place, error, Vec::new()),
        }
    }

    fn home_answered(&mut self, answered: Answered<T>) -> Result<(), ClientError> {
        let home = self.home.session.server().clone();
        let mut opened = Vec::new();
        for (mut sending, answer) in answered {
            match answer {
                Response::Redirect(redirect) if self.home.limits.takes == Takes::Names => {
                    let at = Url { server: home.clone(), user: None, path: "/".to_owned(), opaque: None };
                    match follow(&at, &redirect) {
                        Ok(to) => {
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
        // All that are opened have to be kept before the first of them can fail.
        let mut opened = opened.into_iter();
        while let Some(sending) = opened.next() {
            if let Err(error) = self.gather(sending) {
                self.later.extend(opened);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The answer to an entry that is no redirect of a manager's.
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
            // Somebody else has to be asked than the one whom the manager has named.
            Response::Redirect(_) if sending.to.is_some() => Err(ClientError::Moved { server: server.clone() }),
            other => Err(ClientError::refused(server, &what, other)),
        };
        self.finish(*sending, result);
    }

    fn finish(&mut self, Sending { file, .. }: Sending<T>, result: Result<(), ClientError>) {
        self.bytes = self.bytes.saturating_sub(file.data.len());
        self.done.push_back(Written { file, result });
    }

    /// After an error of the connection: the files of which nobody knows whether they are there.
    #[must_use]
    pub fn unfinished(self) -> Vec<SmallFile<T>> {
        let lanes = std::iter::once(self.home).chain(self.places.into_values());
        let unanswered = lanes.flat_map(Lane::unanswered).chain(self.later).map(|sending| sending.file);
        // Nobody has been told of these; whether they are there can be seen.
        unanswered.chain(self.done.into_iter().map(|done| done.file)).collect()
    }

    /// The connection, when nothing is under way.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.home.session
    }
}

/// Why a file was not put into a batch.
enum NotSent<T> {
    /// No batch takes it.
    Refused(Box<Sending<T>>, ClientError),
    /// The connection is lost.
    Broken(Box<Sending<T>>, ClientError),
}

/// Puts a file into the next batch, after sending a full one.
fn put<T>(lane: &mut Lane<T>, sending: Box<Sending<T>>) -> Result<(), NotSent<T>> {
    let sending = match lane.put(sending) {
        Ok(()) => return Ok(()),
        Err((sending, NotPut::Never(source))) => return Err(never(sending, source)),
        Err((sending, NotPut::Full)) => sending,
    };
    if let Err(error) = lane.send() {
        return Err(NotSent::Broken(sending, error));
    }
    match lane.put(sending) {
        Ok(()) => Ok(()),
        Err((sending, NotPut::Never(source))) => Err(never(sending, source)),
        Err((sending, NotPut::Full)) => {
            let source = wire::WireError::Unsendable { what: "an entry of a batch", why: "the batch is full" };
            Err(never(sending, source))
        }
    }
}

fn never<T>(sending: Box<Sending<T>>, source: wire::WireError) -> NotSent<T> {
    let what = sending.what();
    NotSent::Refused(sending, ClientError::Unsendable { what, source })
}

/// The batches that the server at the other end takes.
fn limits_of(session: &mut Session) -> Result<Option<BatchLimits>, ClientError> {
    let args = wire::batch::CONFIG_KEY.as_bytes().to_vec();
    let request = Request::Query(Query { kind: QueryKind::Config, handle: FileHandle::default(), args });
    let Answer::Done(body) = session.call("query config", &request)? else { return Ok(None) };
    let reply = ConfigReply::decode(&body).map_err(|source| session.malformed(source))?;
    Ok(reply.values.first().and_then(|value| BatchLimits::parse(&String::from_utf8_lossy(value))))
}
