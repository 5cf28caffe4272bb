//! Operations on names. Each asks one server and follows its redirects.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use types::capability::{OBJECT_KEY, OPAQUE_KEY};
use wire::request::{
    Access, Chmod, Dirlist, DirlistOptions, Fattr, FattrOp, Mkdir, MkdirOptions, Mv, Open, OpenOptions, Query,
    QueryKind, Rm, Rmdir, Stat, StatOptions, Target, Truncate,
};
use wire::response::{
    ChecksumReply, ConfigReply, FattrList, FattrReply, OpenReply, Redirect, Response, SpaceReply, StatReply,
};
use wire::{ErrorNumber, FileHandle, Opaque, PathArg, Request};

use crate::deadline::{Bound, Deadline};
use crate::session::Answer;
use crate::waiting::Waiting;
use crate::{BatchLimits, ClientError, Endpoint, Entry, Kind, ListingParser, RemoteFile, Session, Settings, Url};

/// Pauses between attempts to connect again.
pub(crate) const PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// A server's space, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// The total.
    pub total: u64,
    /// The unused space.
    pub free: u64,
    /// The used space.
    pub used: u64,
}

/// Keeps connections and sends requests over them. One thread uses it.
#[derive(Debug, Default)]
pub struct Client {
    settings: Settings,
    sessions: HashMap<(Endpoint, Option<String>), Session>,
}

impl Client {
    /// Makes a client with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Returns its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Makes a new connection to the server of `url`.
    ///
    /// # Errors
    /// The same as those of [`Session::connect`].
    pub fn connect(&mut self, url: &Url) -> Result<Session, ClientError> {
        self.connect_within(url, ("connect", self.begin()))
    }

    fn connect_within(&mut self, url: &Url, within: (&str, Deadline)) -> Result<Session, ClientError> {
        let session = Session::connect_within(url, &self.settings, within)?;
        self.settings.met.add(session.server());
        Ok(session)
    }

    /// Returns how long a request that begins now may take.
    fn begin(&self) -> Deadline {
        Deadline::new(&self.settings, Instant::now())
    }

    /// Returns a connection for the caller alone, an existing one if possible.
    ///
    /// # Errors
    /// The same as those of [`Session::connect`].
    pub fn take_session(&mut self, url: &Url) -> Result<Session, ClientError> {
        self.session_for(url, ("connect", self.begin())).map(|(session, _)| session)
    }

    /// Returns a connection, and whether it existed already. Servers end idle connections after some hours. Such a
    /// connection is not used. No request was sent over it, so a new connection serves any request.
    fn session_for(&mut self, url: &Url, (what, until): (&str, Deadline)) -> Result<(Session, bool), ClientError> {
        for server in self.settings.met.in_order(url, Instant::now()) {
            let Some(mut session) = self.sessions.remove(&(server, url.user.clone())) else { continue };
            let is_safe = session.is_encrypted() || !url.tls;
            if is_safe && !session.is_stale() {
                session.take_up(what, until);
                return Ok((session, true));
            }
        }
        Ok((self.connect_within(url, (what, until))?, false))
    }

    /// Gives back a connection on which no request is under way.
    pub fn give_back(&mut self, session: Session, url: &Url) {
        self.sessions.insert((session.server().clone(), url.user.clone()), session);
    }

    /// A server of a list has sent no answer to a request that can be repeated: the next one is asked.
    fn leave(&self, silent: &Endpoint, failed: &ClientError, attempts: &mut Attempts<'_>) {
        tracing::info!(%failed, "the next server of the list is asked");
        let now = Instant::now();
        self.settings.met.ask_last(silent, now);
        attempts.deadline.moved(now);
    }

    /// Gives back a connection on which `at` has answered with a redirect. If that leads to another server of the list that was asked, that one knows more:
    /// the next request goes there at once.
    fn redirected_by(&mut self, session: Session, at: &Url, (asked, redirect): (&Url, &Redirect)) {
        let by = session.server().clone();
        if !asked.others.is_empty()
            && asked.is_at(&by)
            && follow(at, redirect).is_ok_and(|to| to.server != by && asked.is_at(&to.server))
        {
            self.settings.met.ask_last(&by, Instant::now());
        }
        self.give_back(session, at);
    }

    /// Returns the attributes of `url`.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn stat(&mut self, url: &Url) -> Result<StatReply, ClientError> {
        let stat = Stat { options: StatOptions::NONE, target: Target::Path(url.target()) };
        let (session, body) = self.ask(url, "stat", Request::Stat(stat), true)?;
        let reply = StatReply::decode(&body).map_err(|source| session.malformed(source));
        self.give_back(session, url);
        reply
    }

    /// Returns the attributes, or `None` if `url` does not exist.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn look(&mut self, url: &Url) -> Result<Option<StatReply>, ClientError> {
        match self.stat(url) {
            Ok(stat) => Ok(Some(stat)),
            Err(ClientError::Refused { number: ErrorNumber::NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists a directory with attributes. `each` gets the entries as they arrive. `options` adds to the attributes.
    ///
    /// # Errors
    /// The server refuses, the connection fails, or `each` returns an error.
    pub fn list<E: From<ClientError>>(
        &mut self,
        url: &Url,
        options: DirlistOptions,
        mut each: impl FnMut(Entry) -> Result<(), E>,
    ) -> Result<(), E> {
        let what = format!("list {url}");
        let (mut at, mut redirects, mut given) = (url.clone(), 0, false);
        let mut attempts = Attempts::new(&what, self.begin());
        let mut has_next = !url.others.is_empty();
        loop {
            // A redirect may lead to a manager that is gone. Its server notices that, or takes over.
            let known = self.settings.met.has_one_of(&at) || redirects > 0;
            let (mut session, kept) = match self.session_for(&at, attempts.within()) {
                Ok(session) => session,
                Err(failed) => {
                    attempts.next(failed, known && !given, &at, &self.settings)?;
                    (at, redirects) = (url.clone(), 0);
                    continue;
                }
            };
            let request = Request::Dirlist(Dirlist { options: options | DirlistOptions::DSTAT, target: at.target() });
            let mut each = |entry| {
                given = true;
                each(entry)
            };
            let may_leave = has_next && url.is_at(session.server()) && attempts.deadline.bound() == Bound::Answer;
            let hurried = may_leave.then(|| session.hurry(&self.settings));
            let listed = list_once(&mut session, (&what, self.settings.silence_max), &request, &mut each);
            session.deadline_mut().set_silence(self.settings.silence_max, Instant::now());
            attempts.deadline = session.deadline();
            match listed {
                Ok(None) => {
                    self.give_back(session, &at);
                    return Ok(());
                }
                Ok(Some(redirect)) => {
                    self.redirected_by(session, &at, (url, &redirect));
                    redirects += 1;
                    if redirects > self.settings.redirects_max {
                        let limit = self.settings.redirects_max;
                        return Err(ClientError::Redirects { server: at.server, what, limit }.into());
                    }
                    at = follow(&at, &redirect)?;
                }
                // Entries that `each` has got cannot be taken back, and a second listing may have another order.
                Err(ListingEnd::Client(failed)) if failed.may_help_to_retry() && !given => {
                    let silent = hurried.filter(|_| matches!(failed, ClientError::Silent { .. }));
                    if let Some(silent) = silent {
                        self.leave(&silent, &failed, &mut attempts);
                        has_next = false;
                    } else if !kept {
                        attempts.next(failed, true, &at, &self.settings)?;
                    }
                    (at, redirects) = (url.clone(), 0);
                }
                Err(ListingEnd::Client(failed)) => {
                    if matches!(failed, ClientError::Refused { .. }) {
                        self.give_back(session, &at);
                    }
                    return Err(failed.into());
                }
                Err(ListingEnd::Each(error)) => return Err(error),
            }
        }
    }

    /// Creates a directory, and with `parents` its parents.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn mkdir(&mut self, url: &Url, mode: u16, parents: bool) -> Result<(), ClientError> {
        let options = if parents { MkdirOptions::MKPATH } else { MkdirOptions::NONE };
        self.tell(url, "mkdir", Request::Mkdir(Mkdir { options, mode: Access(mode), target: url.target() }))
    }

    /// Renames within one server.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn mv(&mut self, from: &Url, to: &Url) -> Result<(), ClientError> {
        self.tell(from, "mv", Request::Mv(Mv { from: from.target(), to: to.target() }))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn rm(&mut self, url: &Url) -> Result<(), ClientError> {
        self.tell(url, "rm", Request::Rm(Rm { target: url.target() }))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn rmdir(&mut self, url: &Url) -> Result<(), ClientError> {
        self.tell(url, "rmdir", Request::Rmdir(Rmdir { target: url.target() }))
    }

    /// Sets permission bits.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn chmod(&mut self, url: &Url, mode: u16) -> Result<(), ClientError> {
        let request = Request::Chmod(Chmod { mode: Access(mode), target: url.target() });
        self.ask(url, "chmod", request, true).map(|(session, _)| self.give_back(session, url))
    }

    /// Sets a file's length, in bytes.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn truncate(&mut self, url: &Url, len: u64) -> Result<(), ClientError> {
        let request = Request::Truncate(Truncate { len, target: Target::Path(url.target()) });
        self.ask(url, "truncate", request, true).map(|(session, _)| self.give_back(session, url))
    }

    /// Returns the name and value of the checksum that the server keeps or computes. Without an `algorithm` the
    /// server chooses it.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn checksum(&mut self, url: &Url, algorithm: Option<&str>) -> Result<(String, String), ClientError> {
        let mut args = Vec::new();
        let mut target = url.clone();
        if let Some(algorithm) = algorithm {
            target.add_words(&format!("cks.type={algorithm}"));
        }
        target.target().write(&mut args);
        let body = self.query(url, "checksum", QueryKind::Checksum, args)?;
        let server = url.server.clone();
        let reply = ChecksumReply::decode(&body).map_err(|source| ClientError::Protocol { server, source })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((text(reply.algorithm), text(reply.value)))
    }

    /// Returns the server's answer for each of these configuration keys. The answer for an unknown key is the key
    /// itself.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn config(&mut self, url: &Url, keys: &[&str]) -> Result<Vec<String>, ClientError> {
        let body = self.query(url, "query config", QueryKind::Config, keys.join(" ").into_bytes())?;
        let server = url.server.clone();
        let reply = ConfigReply::decode(&body).map_err(|source| ClientError::Protocol { server, source })?;
        Ok(reply.values.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect())
    }

    /// Returns the limits of the server's batches. `None`: it takes no batches. Only weir's servers take them.
    ///
    /// # Errors
    /// The connection fails.
    pub fn batch_limits(&mut self, url: &Url) -> Result<Option<BatchLimits>, ClientError> {
        match self.config(url, &[wire::batch::CONFIG_KEY]) {
            Ok(values) => Ok(values.first().and_then(|value| BatchLimits::parse(value))),
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Usage) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the space of the server that holds `url`.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn space(&mut self, url: &Url) -> Result<Space, ClientError> {
        let body = self.query(url, "query space", QueryKind::Space, url.path.clone().into_bytes())?;
        let server = url.server.clone();
        let reply = SpaceReply::decode(&body).map_err(|source| ClientError::Protocol { server, source })?;
        Ok(Space { total: reply.total, free: reply.free, used: reply.used })
    }

    /// Sends any other query. Returns the answer unchanged.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn query(&mut self, url: &Url, what: &str, kind: QueryKind, args: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        self.query_that(url, what, kind, args, true)
    }

    /// The same for a query that changes something and would fail when repeated. It is not repeated if its answer
    /// is lost.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn query_once(
        &mut self,
        url: &Url,
        what: &str,
        kind: QueryKind,
        args: Vec<u8>,
    ) -> Result<Vec<u8>, ClientError> {
        self.query_that(url, what, kind, args, false)
    }

    fn query_that(
        &mut self,
        url: &Url,
        what: &str,
        kind: QueryKind,
        args: Vec<u8>,
        repeatable: bool,
    ) -> Result<Vec<u8>, ClientError> {
        if url.path.contains('?') {
            return Err(unsendable_mark(&format!("{what} {url}")));
        }
        let request = Request::Query(Query { kind, handle: FileHandle::default(), args });
        let (session, body) = self.ask(url, what, request, repeatable)?;
        self.give_back(session, url);
        Ok(body)
    }

    /// Returns the names and values of the extended attributes.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn xattrs(&mut self, url: &Url) -> Result<Vec<(String, Vec<u8>)>, ClientError> {
        let op = FattrOp::List { with_values: true };
        let request = Request::Fattr(Fattr { target: Target::Path(url.target()), op });
        let (session, body) = self.ask(url, "list attributes", request, true)?;
        let list = FattrList::decode(&body, true).map_err(|source| session.malformed(source));
        self.give_back(session, url);
        let name = |name: Vec<u8>| String::from_utf8_lossy(name.strip_prefix(b"U.").unwrap_or(&name)).into_owned();
        Ok(list?.attributes.into_iter().map(|(key, value)| (name(key), value.unwrap_or_default())).collect())
    }

    /// Returns the value of one extended attribute.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn xattr(&mut self, url: &Url, name: &str) -> Result<Vec<u8>, ClientError> {
        let op = FattrOp::Get(vec![name.as_bytes().to_vec()]);
        let reply = self.fattr(url, "get attribute", op, true)?;
        Ok(reply.results.into_iter().find_map(|result| result.value).unwrap_or_default())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn set_xattr(&mut self, url: &Url, name: &str, value: &[u8]) -> Result<(), ClientError> {
        let pairs = vec![(name.as_bytes().to_vec(), value.to_vec())];
        self.fattr(url, "set attribute", FattrOp::Set { only_new: false, pairs }, false).map(drop)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn remove_xattr(&mut self, url: &Url, name: &str) -> Result<(), ClientError> {
        self.fattr(url, "remove attribute", FattrOp::Del(vec![name.as_bytes().to_vec()]), false).map(drop)
    }

    fn fattr(&mut self, url: &Url, what: &str, op: FattrOp, values: bool) -> Result<FattrReply, ClientError> {
        // A repeated removal would not find the attribute.
        let repeatable = !matches!(op, FattrOp::Del(_) | FattrOp::Set { only_new: true, .. });
        let request = Request::Fattr(Fattr { target: Target::Path(url.target()), op });
        let (session, body) = self.ask(url, what, request, repeatable)?;
        // The server sends values only for attributes that it found.
        let reply = FattrReply::decode(&body, values).or_else(|_| FattrReply::decode(&body, false));
        let reply = reply.map_err(|source| session.malformed(source));
        self.give_back(session, url);
        let reply = reply?;
        if let Some(bad) = reply.results.iter().find(|result| result.number != 0) {
            let number = ErrorNumber(u32::from(bad.number));
            let text = String::from_utf8_lossy(&bad.name).into_owned();
            return Err(ClientError::Refused {
                server: url.server.clone(),
                what: format!("{what} of {url}"),
                number,
                text,
            });
        }
        Ok(reply)
    }

    /// Opens a file. The file has its own connection until it is closed.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open(&mut self, url: &Url, options: OpenOptions, mode: u16) -> Result<RemoteFile, ClientError> {
        self.open_led(url, None, options, mode)
    }

    /// Opens a file to read it, and gets up to `kib` KiB of its beginning in the same round trip, if the server is one of
    /// weir's. [`RemoteFile::take_beginning`] returns these bytes.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open_to_read(&mut self, url: &Url, kib: u8) -> Result<RemoteFile, ClientError> {
        let open = Open { beginning_kib: kib, ..Open::plain(Access::NONE, OpenOptions::READ, url.target()) };
        match self.open_until((url, None), open, &|_| None::<Infallible>)? {
            OpenResult::File(file) => Ok(file),
            OpenResult::Redirected(nowhere) => match nowhere {},
        }
    }

    /// The same, if the server of `url` has already sent a redirect.
    pub(crate) fn open_led(
        &mut self,
        url: &Url,
        led_to: Option<Url>,
        options: OpenOptions,
        mode: u16,
    ) -> Result<RemoteFile, ClientError> {
        let open = Open::plain(Access(mode), options, url.target());
        match self.open_until((url, led_to), open, &|_| None::<Infallible>)? {
            OpenResult::File(file) => Ok(file),
            OpenResult::Redirected(nowhere) => match nowhere {},
        }
    }

    /// The same, but stops at a redirect that `led` accepts.
    pub(crate) fn open_until<T>(
        &mut self,
        (url, led_to): (&Url, Option<Url>),
        open: Open,
        led: &dyn Fn(&Url) -> Option<T>,
    ) -> Result<OpenResult<T>, ClientError> {
        let options = open.options | OpenOptions::RETSTAT;
        let beginning_max = u64::from(open.beginning_kib) << 10;
        let request = Request::Open(Open { options, ..open });
        // The open must create the file, and the lost attempt may have created it. So it is not repeated.
        let repeatable = !options.has(OpenOptions::NEW);
        let (mut session, led_by, at, body) = match self.ask_until((url, led_to), "open", request, repeatable, led)? {
            RequestResult::Answered(session, (led_by, at), body) => (session, led_by, at, body),
            RequestResult::Redirected(to) => return Ok(OpenResult::Redirected(to)),
        };
        let reply = OpenReply::decode(&body).map_err(|source| session.malformed(source))?;
        let stat = match reply.stat {
            Some(stat) => stat,
            // Not every server returns the attributes with the open.
            None => {
                let stat = Stat { options: StatOptions::NONE, target: Target::Handle(reply.handle) };
                match session.call(&format!("stat {url}"), &Request::Stat(stat))? {
                    Answer::Done(body) => StatReply::decode(&body).map_err(|source| session.malformed(source))?,
                    Answer::Elsewhere(_) => {
                        let what = format!("a redirect of the stat of {url}, which is open");
                        return Err(ClientError::Unexpected { server: at.server, what });
                    }
                }
            }
        };
        let from = (url.clone(), at);
        let mut file = RemoteFile::new(session, from, reply.handle, stat, options, self.settings.clone());
        // A stock server may have led to a cluster's manager, which chose. It would not understand weir's hints.
        file.is_of_cluster = led_by.as_ref().is_some_and(|by| url.is_at(by))
            && url.word(OBJECT_KEY).is_none()
            && file.url.word(OBJECT_KEY).is_some();
        // Other servers do not know the extension, and may have anything there.
        if reply.beginning.len() as u64 == beginning_max.min(file.stat().size) {
            file.beginning = reply.beginning;
        }
        Ok(OpenResult::File(file))
    }

    fn tell(&mut self, url: &Url, what: &str, request: Request) -> Result<(), ClientError> {
        self.ask(url, what, request, false).map(|(session, _)| self.give_back(session, url))
    }

    fn ask(
        &mut self,
        url: &Url,
        what: &str,
        request: Request,
        repeatable: bool,
    ) -> Result<(Session, Vec<u8>), ClientError> {
        self.ask_there(url, what, request, repeatable).map(|(session, _, body)| (session, body))
    }

    /// Sends the request, follows redirects, and repeats it over a new connection if that does no harm. Also
    /// returns the URL that answered.
    fn ask_there(
        &mut self,
        url: &Url,
        what: &str,
        request: Request,
        repeatable: bool,
    ) -> Result<(Session, Url, Vec<u8>), ClientError> {
        match self.ask_until((url, None), what, request, repeatable, &|_| None::<Infallible>)? {
            RequestResult::Answered(session, (_, at), body) => Ok((session, at, body)),
            RequestResult::Redirected(nowhere) => match nowhere {},
        }
    }

    /// The same, but stops at a redirect that `led` accepts. Starts at `led_to`, the target of an earlier redirect,
    /// if there is one.
    fn ask_until<T>(
        &mut self,
        (url, led_to): (&Url, Option<Url>),
        what: &str,
        request: Request,
        repeatable: bool,
        led: &dyn Fn(&Url) -> Option<T>,
    ) -> Result<RequestResult<T>, ClientError> {
        let what = format!("{what} {url}");
        let mut attempts = Attempts::new(&what, self.begin());
        let is_open = matches!(request, Request::Open(_));
        let replaces = matches!(&request, Request::Open(open) if open.options.has(OpenOptions::DELETE));
        let mut first = url.clone();
        let (mut at, mut asked, mut redirects) = (url.clone(), request.clone(), 0);
        let mut led_by = None;
        let mut has_next = repeatable && !url.others.is_empty();
        if let Some(led_to) = led_to {
            (at, redirects) = (led_to, 1);
            retarget(&mut asked, &at);
        }
        loop {
            let known = self.settings.met.has_one_of(&at);
            let connected = self.session_for(&at, attempts.within());
            let reached = connected.is_ok();
            let kept = connected.as_ref().is_ok_and(|(_, kept)| *kept);
            let mut hurried = None;
            let answered = connected.map(|(mut session, _)| {
                if has_next && url.is_at(session.server()) && attempts.deadline.bound() == Bound::Answer {
                    hurried = Some(session.hurry(&self.settings));
                }
                let answer = session.call(&what, &asked);
                if hurried.is_some() {
                    session.deadline_mut().set_silence(self.settings.silence_max, Instant::now());
                }
                attempts.deadline = session.deadline();
                (answer, session)
            });
            let failed = match answered {
                Ok((Ok(Answer::Done(body)), session)) => {
                    return Ok(RequestResult::Answered(session, (led_by, at), body));
                }
                // A refusal is an answer, so the connection can be used again.
                Ok((Err(refused @ ClientError::Refused { .. }), session)) => {
                    self.give_back(session, &at);
                    return Err(refused);
                }
                Ok((Ok(Answer::Elsewhere(redirect)), session)) => {
                    self.redirected_by(session, &at, (url, &redirect));
                    redirects += 1;
                    if redirects > self.settings.redirects_max {
                        let limit = self.settings.redirects_max;
                        return Err(ClientError::Redirects { server: at.server, what, limit });
                    }
                    let to = follow(&at, &redirect)?;
                    if let Some(led) = led(&to) {
                        return Ok(RequestResult::Redirected(led));
                    }
                    led_by = Some(at.server);
                    at = to;
                    retarget(&mut asked, &at);
                    continue;
                }
                Ok((Err(error), _)) | Err(error) => error,
            };
            let led = is_open && redirects > 0;
            // It may hang, while another one has taken over. If that one sends the client back, it waits.
            let silent = hurried.filter(|_| matches!(failed, ClientError::Silent { .. }));
            if let Some(silent) = silent {
                self.leave(&silent, &failed, &mut attempts);
                has_next = false;
            } else if !(kept && repeatable && failed.may_help_to_retry()) {
                // A kept connection may have been lost long ago. That says nothing about the server.
                let again = match (reached, led) {
                    // A weir cluster recognises the file that this client's earlier attempt created, because the
                    // request carries the client's own word. Another server might create it twice.
                    (true, true) => repeatable || at.word(OPAQUE_KEY).is_some(),
                    (true, false) => repeatable,
                    // A redirect may lead to a manager that is gone. The others notice that. They may all have one name. A server
                    // that redirected an open may be none of them: it is told what was tried.
                    (false, _) if redirects > 0 && (!is_open || !first.others.is_empty()) => true,
                    (false, true) => known || !first.has_tried(&at.server.host),
                    (false, false) => known,
                };
                attempts.next(failed, again, &at, &self.settings)?;
                // The server that redirected an open knows other servers for it. One that has redirected to another manager does not.
                if led && !first.is_at(&at.server) {
                    first.add_tried(&at.server.host);
                }
            }
            // The lost attempt may have created a file. When an open replaces a file, the next attempt would find
            // that file in its way.
            if replaces && reached {
                first.add_tried(&at.server.host);
            }
            (at, asked, redirects, led_by) = (first.clone(), request.clone(), 0, None);
            if is_open {
                retarget(&mut asked, &first);
            }
        }
    }
}

/// The result of an open.
#[allow(clippy::large_enum_variant)] // lives for one call
pub(crate) enum OpenResult<T> {
    File(RemoteFile),
    /// A redirect that the caller takes over.
    Redirected(T),
}

/// The result of one request.
#[allow(clippy::large_enum_variant)] // lives for one call
enum RequestResult<T> {
    /// The connection, the server that sent the last redirect and the URL that it led to, and the answer.
    Answered(Session, (Option<Endpoint>, Url), Vec<u8>),
    /// A redirect that the caller takes over.
    Redirected(T),
}

/// The attempts of one request over lost connections.
struct Attempts<'a> {
    /// The request, in words.
    what: &'a str,
    deadline: Deadline,
    count: usize,
}

impl<'a> Attempts<'a> {
    fn new(what: &'a str, deadline: Deadline) -> Self {
        Self { what, deadline, count: 0 }
    }

    /// What is asked, and until when.
    fn within(&self) -> (&'a str, Deadline) {
        (self.what, self.deadline)
    }

    /// Pauses before the next attempt, if another connection may help and `again` allows it. The client does not
    /// wait for a server that it has never reached. A server that it reached before may just be restarting.
    fn next(&mut self, failed: ClientError, again: bool, at: &Url, settings: &Settings) -> Result<(), ClientError> {
        if !again || !failed.may_help_to_retry() {
            return Err(failed);
        }
        if !self.deadline.lost(Instant::now()) {
            return Err(failed.gave_up(settings.recovery_max));
        }
        tracing::info!(%failed, "trying again");
        let waiting = Waiting::new(&at.server, self.what, self.deadline, settings);
        waiting.pause(PAUSES[self.count.min(PAUSES.len() - 1)], &failed)?;
        self.count += 1;
        Ok(())
    }
}

/// Why a listing has ended early.
enum ListingEnd<E> {
    Client(ClientError),
    /// The receiver of the entries has returned an error.
    Each(E),
}

impl<E> From<ClientError> for ListingEnd<E> {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Asks once for a listing. Returns a redirect, if that is the answer.
fn list_once<E>(
    session: &mut Session,
    (what, silence_max): (&str, Duration),
    request: &Request,
    each: &mut dyn FnMut(Entry) -> Result<(), E>,
) -> Result<Option<Redirect>, ListingEnd<E>> {
    let mut parser = ListingParser::default();
    session.queue(request)?;
    loop {
        let (_, response) = session.response()?;
        let (part, last) = match response {
            Response::OkSoFar(part) => (part, false),
            Response::Ok(part) => (part, true),
            Response::Redirect(redirect) => return Ok(Some(redirect)),
            Response::Wait { seconds, text } => {
                session.wait_for(what, seconds, &text)?;
                session.queue(request)?;
                continue;
            }
            Response::WaitResp { .. } => {
                session.deadline_mut().put_off(Instant::now());
                continue;
            }
            other => return Err(session.refused(what, other).into()),
        };
        // The first part is here.
        session.deadline_mut().set_silence(silence_max, Instant::now());
        session.has_moved();
        for entry in parser.push(&part, last, session)? {
            each(entry).map_err(ListingEnd::Each)?;
        }
        if last {
            return Ok(None);
        }
    }
}

/// Returns the target of a redirect: the same path at another server with more words behind its `?`, or a complete
/// new address. Whoever wanted TLS gets it there as well, whatever the redirect says.
pub(crate) fn follow(from: &Url, redirect: &Redirect) -> Result<Url, ClientError> {
    match redirect {
        Redirect::Host { port, host } => {
            let text = String::from_utf8_lossy(host);
            let (host, more) = text.split_once('?').unwrap_or((&text, ""));
            let text = if *port == 0 { host.to_owned() } else { format!("{host}:{port}") };
            let bad = |why| crate::UrlError { text: text.clone(), why };
            let server = match host.starts_with('[') || !host.contains(':') {
                true => Endpoint::parse(&text).map_err(bad)?,
                false => Endpoint { host: host.to_owned(), port: *port },
            };
            let mut to = from.at(server);
            to.add_words(more);
            Ok(to)
        }
        Redirect::Url { url, .. } => {
            let mut to = Url::parse(&String::from_utf8_lossy(url))?;
            to.tls |= from.tls;
            if to.path == "/" {
                to.path.clone_from(&from.path);
            }
            if let Some(opaque) = &from.opaque {
                to.add_words(opaque);
            }
            Ok(to)
        }
    }
}

/// Whether a path in the request contains a `?`. The protocol has no escape for it: the server would take the path for
/// a shorter one, which may be another file's.
pub(crate) fn has_mark(request: &Request) -> bool {
    let is_bad = |arg: &PathArg| arg.path.contains(&b'?');
    match request {
        Request::Open(open) => is_bad(&open.target),
        Request::Stat(Stat { target: Target::Path(arg), .. })
        | Request::Truncate(Truncate { target: Target::Path(arg), .. })
        | Request::Fattr(Fattr { target: Target::Path(arg), .. }) => is_bad(arg),
        Request::Dirlist(dirlist) => is_bad(&dirlist.target),
        Request::Mkdir(mkdir) => is_bad(&mkdir.target),
        Request::Rm(rm) => is_bad(&rm.target),
        Request::Rmdir(rmdir) => is_bad(&rmdir.target),
        Request::Chmod(chmod) => is_bad(&chmod.target),
        Request::Mv(mv) => is_bad(&mv.from) || is_bad(&mv.to),
        _ => false,
    }
}

/// Makes the error for such a path.
pub(crate) fn unsendable_mark(what: &str) -> ClientError {
    let why = "in a root:// request `?` ends the path, so no server can have it under this name";
    ClientError::Unsendable { what: what.to_owned(), source: wire::WireError::Unsendable { what: "a path", why } }
}

/// Changes a request's path to the target of a redirect.
fn retarget(request: &mut Request, to: &Url) {
    let with = |arg: &mut PathArg| {
        arg.path = to.path.clone().into_bytes();
        arg.opaque = to.opaque.as_ref().and_then(|opaque| Opaque::parse(opaque.as_bytes()).ok());
    };
    match request {
        Request::Open(open) => with(&mut open.target),
        Request::Stat(Stat { target: Target::Path(arg), .. })
        | Request::Truncate(Truncate { target: Target::Path(arg), .. })
        | Request::Fattr(Fattr { target: Target::Path(arg), .. }) => with(arg),
        Request::Mkdir(mkdir) => with(&mut mkdir.target),
        Request::Rm(rm) => with(&mut rm.target),
        Request::Rmdir(rmdir) => with(&mut rmdir.target),
        Request::Chmod(chmod) => with(&mut chmod.target),
        Request::Mv(mv) => with(&mut mv.from),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn redirects_keep_the_path_and_add_their_words() {
        let from = Url::parse("root://m//a/b?x=1").unwrap();
        let to = |port, host: &str| follow(&from, &Redirect::Host { port, host: host.as_bytes().to_vec() }).unwrap();
        let there = to(1095, "disk1?&cap=9");
        assert_eq!(
            (there.to_string().as_str(), there.opaque.as_deref()),
            ("root://disk1:1095//a/b", Some("x=1&cap=9"))
        );
        assert_eq!(to(7, "::1").server, Endpoint { host: "::1".into(), port: 7 });
        assert_eq!(to(7, "[::1]").server, Endpoint { host: "::1".into(), port: 7 });
        assert_eq!(to(7, "d").opaque.as_deref(), Some("x=1"));
        let url = b"root://d:2//other?k=v".to_vec();
        let there = follow(&from, &Redirect::Url { flags: 0, url }).unwrap();
        assert_eq!((there.to_string().as_str(), there.opaque.as_deref()), ("root://d:2//other", Some("k=v&x=1")));
        let url = b"roots://d:2//other".to_vec();
        assert!(follow(&from, &Redirect::Url { flags: 0, url }).unwrap().tls, "a server may ask for more");
    }

    #[test]
    fn no_redirect_takes_tls_away() {
        let from = Url::parse("roots://m//a/b").unwrap();
        for to in [
            Redirect::Host { port: 1, host: b"d".to_vec() },
            Redirect::Host { port: 1, host: b"[::1]".to_vec() },
            Redirect::Url { flags: 0, url: b"root://d:2//other".to_vec() },
        ] {
            assert!(follow(&from, &to).unwrap().tls, "{to:?}");
        }
    }
}
