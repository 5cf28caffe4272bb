//! A front end for tests, with one line per request and per answer. Like the future front ends, it uses only the public
//! API of the service.
//!
//! | line | answer |
//! | --- | --- |
//! | `create NAME PATH [WORDS]` (also `replace`, `update`, `open`, `partial`) | `ok LEN` |
//! | `write NAME OFFSET TEXT`, `close NAME`, `sync NAME` | `ok` |
//! | `read NAME OFFSET LEN` | `ok TEXT` |
//! | `stat PATH` | `ok LEN MODE` |
//! | `list PATH` | `ok NAME,NAME` |
//! | `list-sums PATH`, with attributes; `list-sums-alone PATH`, without | `ok NAME=CRC32C/SHA256,…`, `-` for an unknown one |
//! | `mkdir PATH`, `remove PATH`, `rename FROM TO`, `chmod PATH MODE` | `ok` |
//! | `truncate PATH LEN [WORDS]`, `set PATH ATTRIBUTE VALUE` | `ok` |
//! | `get PATH ATTRIBUTE` | `ok VALUE` |
//! | `checksum PATH` | `ok CRC32C` |
//! | `digest PATH` | `ok SHA256` |
//! | `begin-checkpoint NAME`, `roll-back NAME` | `ok` |
//! | `session`: begins a session of numbered requests | `ok SESSION` |
//! | `discard NAME`: discards what was written | `ok` |
//! | `begin NAME`: begins a close; `ended NAME`: its outcome | `ok`; `ok later` for a wait |
//!
//! `#SESSION:NUMBER` before a line numbers the request.
//! Other answers are `error CODE TEXT`, `wait SECONDS TEXT` and `redirect HOST:PORT WORDS`. NAME is the client's name for
//! the open file. WORDS come from a redirect; `size=LEN` announces the length. `partial` opens an interrupted file for reading.

pub mod client;
pub mod striper;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use service::{
    AclChange, Answer, AttributeChange, Caller, Change, Error, Handle, Hints, Intent, Open, Opened, Principal, Process,
    RequestNumber, Service, Session, WriteMode,
};
use types::{ClientIdentity, DigestKind, NsPath};

/// The connection of one client.
pub struct Connection {
    service: Arc<Service>,
    session: Arc<Session>,
    files: HashMap<String, Handle>,
    held: HashMap<String, Arc<service::OpenFile>>,
    /// Closes that were begun.
    closes: HashMap<String, Receiver<Result<(), Error>>>,
}

/// Passes on an answer, from whichever thread it comes.
struct Later<T>(Sender<Result<T, Error>>);

impl<T: Send + 'static> Answer<T> for Later<T> {
    fn give(self, outcome: Result<T, Error>) {
        // The client may be gone.
        let _ = self.0.send(outcome);
    }
}

fn later<T>() -> (Later<T>, Receiver<Result<T, Error>>) {
    let (sender, receiver) = channel();
    (Later(sender), receiver)
}

/// Waits for an answer. A dropped one counts as an internal error.
fn waited<T>(receiver: &Receiver<Result<T, Error>>) -> Result<T, Error> {
    let lost = || Error::new(types::ErrorCode::Internal, "the request was dropped");
    receiver.recv().unwrap_or_else(|_| Err(lost()))
}

/// Sends a request, and waits for its answer.
fn answered<T: Send + 'static>(send: impl FnOnce(Later<T>)) -> Result<T, Error> {
    let (answer, receiver) = later();
    send(answer);
    waited(&receiver)
}

/// The text of an answer that says nothing more.
fn ok((): ()) -> String {
    String::new()
}

/// The identity of a test client.
pub fn client(user: &str, pid: u32) -> ClientIdentity {
    ClientIdentity { user: user.to_owned(), pid, host: "127.0.0.1".to_owned(), ..ClientIdentity::default() }
}

impl Connection {
    /// Connects as `client` of `principal`. For the service the line protocol is the one of this name.
    pub fn new(service: &Arc<Service>, principal: &Principal, client: ClientIdentity, protocol: &'static str) -> Self {
        let caller = Caller::new(principal, ([127, 0, 0, 1], 1).into(), protocol).with_client(client);
        let session = service.session(caller);
        service.enrol(&session);
        let (files, held, closes) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { service: Arc::clone(service), session, files, held, closes }
    }

    /// The client describes itself as the process of this number.
    pub fn is_process(&self, pid: u32) {
        self.session.set_process(Some(Process { pid, host: b"here".to_vec(), program: b"line".to_vec() }));
    }

    /// Disconnects without a close.
    pub fn hang_up(self) {
        self.service.end_session(&self.session);
    }

    /// Answers one line.
    pub fn ask(&mut self, line: &str) -> String {
        match self.answer(line) {
            Ok(text) if text.is_empty() => "ok".to_owned(),
            Ok(text) => format!("ok {text}"),
            Err(Error::Refused { code, text }) => format!("error {code:?} {text}"),
            Err(Error::Wait { seconds, text }) => format!("wait {seconds} {text}"),
            Err(Error::Redirect(to)) => match to.address(self.session.caller().protocol) {
                Ok(at) => {
                    let words: Vec<String> = to.shows().iter().map(|(key, value)| format!("{key}={value}")).collect();
                    format!("redirect {at} {}", words.join("&"))
                }
                Err(error) => format!("error {:?} {error}", error.code()),
            },
        }
    }

    fn answer(&mut self, line: &str) -> Result<String, Error> {
        let (request, line) = numbered(line)?;
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let verb = next();
        match verb {
            "open" | "partial" | "create" | "replace" | "update" | "append" => {
                let (name, path) = (next(), path(next())?);
                let words = words.collect::<Vec<_>>().join("&");
                let intent = match verb {
                    "create" => Intent::Write(WriteMode::NewOnly),
                    "replace" => Intent::Write(WriteMode::Replace),
                    "update" | "append" => Intent::Write(WriteMode::Update),
                    _ => Intent::Read,
                };
                let (partial, appends, hints) = (verb == "partial", verb == "append", hints(&words));
                self.open(name, Open { partial, appends, hints, request, ..Open::new(path, intent) })
            }
            // A request that has found its file, and comes to the store only after its session has ended.
            "hold" => {
                let name = next();
                let file = self.file(name)?;
                self.held.insert(name.to_owned(), file);
                Ok(String::new())
            }
            "write-held" => self.held[next()].write(number(next())?, next().as_bytes(), None).map(ok),
            "end-session" => {
                self.service.let_go(&self.session);
                Ok(String::new())
            }
            "write" => self.file(next())?.write(number(next())?, next().as_bytes(), None).map(ok),
            "read" => {
                let (name, offset, len) = (next(), number(next())?, number(next())?);
                let file = self.file(name)?;
                let mut buffer = vec![0; file.bounded(offset, u32::try_from(len).unwrap_or(u32::MAX))];
                let n = file.read(offset, &mut buffer)?;
                Ok(String::from_utf8_lossy(&buffer[..n]).into_owned())
            }
            "cut" => self.file(next())?.truncate(number(next())?).map(ok),
            "begin-checkpoint" => self.file(next())?.begin_checkpoint().map(ok),
            "roll-back" => self.file(next())?.roll_back().map(ok),
            "sync" => self.file(next())?.sync().map(ok),
            "close" => waited(&self.begin_close(next(), request)).map(ok),
            "discard" => {
                let handle = self.files.get(next()).copied().unwrap_or(Handle(u32::MAX));
                let send = |answer| {
                    self.service.discard(&self.session, handle, answer).into_iter().for_each(|work| work.run())
                };
                answered(send).map(ok)
            }
            "begin" => {
                let name = next();
                let receiver = self.begin_close(name, request);
                self.closes.insert(name.to_owned(), receiver);
                Ok(String::new())
            }
            "ended" => {
                let receiver = self.closes.remove(next()).ok_or_else(|| wrong("no close was begun"))?;
                match waited(&receiver) {
                    // To repeat this line would not help.
                    Err(Error::Wait { .. }) => Ok("later".to_owned()),
                    outcome => outcome.map(ok),
                }
            }
            "stat" => {
                let stat = self.service.stat(&self.session, &"stat", &path(next())?)?;
                Ok(format!("{} {:o}", stat.len, stat.mode))
            }
            "list" => self.list(path(next())?),
            "list-sums" => self.list_sums(path(next())?, true),
            "list-sums-alone" => self.list_sums(path(next())?, false),
            "mkdir" => self.change(Change::Mkdir { path: path(next())?, mode: 0, parents: false }, request),
            "remove" => self.change(Change::Remove(path(next())?), request),
            "chmod" => {
                let (path, bits) = (path(next())?, u16::from_str_radix(next(), 8));
                self.change(Change::Chmod { path, mode: bits.map_err(|_| wrong("no mode"))? }, request)
            }
            "chown" => {
                let (path, owner, group) = (path(next())?, next(), next());
                let given = |text: &'static str, name| (name != text).then_some(name);
                let caller = self.session.caller();
                let (owner, group) = self.service.new_owner(&caller, &path, given("-", owner), given("-", group))?;
                self.change(Change::Chown { path, owner, group }, request)
            }
            "set-acl" => {
                let (path, text) = (path(next())?, next());
                let edit = self.service.acl_edit(&self.session.caller(), path, AclChange::Modify, text)?;
                self.change(Change::SetAcl(edit), request)
            }
            "add-user" => self.service.add_principal(types::PrincipalKind::User, next()).map(|id| id.to_string()),
            "add-group" => self.service.add_principal(types::PrincipalKind::Group, next()).map(|id| id.to_string()),
            "rename" => {
                let (from, to) = (path(next())?, path(next())?);
                self.change(Change::Rename { from, to }, request)
            }
            "truncate" => {
                let (path, len, hints) = (path(next())?, number(next())?, hints(next()));
                answered(|answer| self.service.truncate(&self.session, path, len, &hints, request, answer)).map(ok)
            }
            "set" => {
                let (path, name, value) = (path(next())?, next().into(), next().into());
                self.set(path, AttributeChange::Set { only_new: false, pairs: vec![(name, value)] }, request)
            }
            "get" => {
                let caller = self.session.caller();
                let of = self.service.attributes_of(&caller, path(next())?)?;
                let mut found = self.service.get_attributes(&caller, &of, vec![next().into()])?;
                let value = found.pop().map_or(Err(types::ErrorCode::Internal), |(_, value)| value);
                let value = value.map_err(|code| Error::new(code, "it cannot be read"))?;
                Ok(String::from_utf8_lossy(&value).into_owned())
            }
            "session" => {
                let begun = answered(|answer| self.service.begin_numbering(&self.session.caller(), answer));
                Ok(begun?.0.to_string())
            }
            "checksum" => {
                let path = path(next())?;
                let sums = answered(|answer| self.service.checksums(&self.session.caller(), &path, answer));
                Ok(format!("{:08x}", sums?.crc32c.0))
            }
            "digest" => {
                let (path, kind) = (path(next())?, DigestKind::Sha256);
                let digest = answered(|answer| self.service.digest(&self.session.caller(), &path, kind, answer));
                digest.map(|digest| hex(&digest))
            }
            _ => Err(wrong("no such verb")),
        }
    }

    fn open(&mut self, name: &str, open: Open) -> Result<String, Error> {
        let Opened { handle, stat } = answered(|answer| self.service.open(&self.session, open, answer))?;
        self.files.insert(name.to_owned(), handle);
        Ok(stat.map_or(0, |stat| stat.len).to_string())
    }

    fn file(&self, name: &str) -> Result<Arc<service::OpenFile>, Error> {
        let handle = self.files.get(name).ok_or_else(Error::not_open)?;
        self.service.file(&self.session, *handle)
    }

    fn begin_close(&mut self, name: &str, request: Option<RequestNumber>) -> Receiver<Result<(), Error>> {
        // A repeated close is answered on another connection too, where its handle is unknown.
        let handle = self.files.get(name).copied().unwrap_or(Handle(u32::MAX));
        let (answer, receiver) = later();
        if let Some(work) = self.service.close(&self.session, handle, request, answer) {
            work.run();
        }
        receiver
    }

    fn change(&self, change: Change, request: Option<RequestNumber>) -> Result<String, Error> {
        answered(|answer| self.service.change(&self.session.caller(), change, request, answer)).map(ok)
    }

    fn set(&self, path: NsPath, change: AttributeChange, request: Option<RequestNumber>) -> Result<String, Error> {
        let caller = self.session.caller();
        let of = self.service.attributes_of(&caller, path)?;
        let each = answered(|answer| self.service.change_attributes(&caller, &of, change, request, answer));
        let each = each?.into_iter().try_for_each(|(_, result)| result);
        each.map(ok).map_err(|code| Error::new(code, "it cannot be set"))
    }

    fn list_sums(&self, path: NsPath, with_stat: bool) -> Result<String, Error> {
        let listing = self.service.list(&self.session.caller(), path, with_stat)?;
        let (mut listing, mut all) = (listing.with_digests(DigestKind::Sha256), Vec::new());
        while self.service.list_more(&self.session, &mut listing, &mut |entry| {
            let sum = entry.sums.map_or("-".to_owned(), |sums| format!("{:08x}", sums.crc32c.0));
            let digest = entry.digest.map_or("-".to_owned(), |digest| hex(&digest));
            all.push(format!("{}={sum}/{digest}", String::from_utf8_lossy(entry.name)));
            ControlFlow::Continue(())
        })? {}
        Ok(all.join(","))
    }

    fn list(&self, path: NsPath) -> Result<String, Error> {
        let mut listing = self.service.list(&self.session.caller(), path, false)?;
        let mut names = String::new();
        // In small portions, like a protocol with small messages.
        let mut room = 0;
        loop {
            room += 2;
            let more = self.service.list_more(&self.session, &mut listing, &mut |entry| {
                if room == 0 {
                    return ControlFlow::Break(());
                }
                room -= 1;
                let comma = if names.is_empty() { "" } else { "," };
                let _ = write!(names, "{comma}{}", String::from_utf8_lossy(entry.name));
                ControlFlow::Continue(())
            })?;
            if !more {
                return Ok(names);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The number of a request, and the rest of its line.
fn numbered(line: &str) -> Result<(Option<RequestNumber>, &str), Error> {
    let Some((request, line)) = line.strip_prefix('#').and_then(|line| line.split_once(' ')) else {
        return Ok((None, line));
    };
    let (session, number_of) = request.split_once(':').ok_or_else(|| wrong("no number"))?;
    let (session, number) = (types::SessionId(number(session)?), number(number_of)?);
    Ok((Some(RequestNumber { session, number }), line))
}

/// The hints of a client that was redirected.
fn hints(words: &str) -> Hints {
    // The last one counts: it is of the last redirect.
    let capability = words.split('&').rev().find_map(|word| {
        word.strip_prefix(types::capability::OPAQUE_KEY)?.strip_prefix('=').map(|text| text.as_bytes().to_vec())
    });
    let announced = words.split('&').find_map(|word| word.strip_prefix("size=")?.parse().ok());
    let returns = words.split('&').any(|word| word == format!("{}=1", service::RETURNS_KEY));
    Hints { capability, announced, returns, ..Hints::default() }
}

fn path(text: &str) -> Result<NsPath, Error> {
    NsPath::parse(text.as_bytes()).map_err(|error| wrong(&error.to_string()))
}

fn number(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| wrong("no number"))
}

fn wrong(why: &str) -> Error {
    Error::new(types::ErrorCode::Invalid, why)
}
