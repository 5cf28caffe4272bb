//! Opening files. An open for reading is answered at once, from a view of the namespace and the store. An open for
//! writing goes through the committer, whose completion creates the replica and answers. In a cluster the manager
//! redirects the client to a disk server ([`redirects`]), which does what the capability permits ([`verified`]).

mod reading;
mod redirects;
mod unfinished;
mod verified;
mod writing;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use identity::DelegatedProxy;
use namespace::{OpenWrite, Resume, Sharing, USUAL_MODE};
use types::absent_replicas::AbsentReplica;
use types::striping::StripedOpenWrite;
use types::{ErrorCode, LocationPrefix, NsPath, ObjectId, RequestNumber, StoreId, Timestamp, UploadId};

pub use namespace::WriteMode;

use crate::answer::Answer;
use crate::attributes::Stat;
use crate::caller::Caller;
use crate::error::Error;
use crate::handles::Handle;
use crate::names::wall_clock;
use crate::open_file::{Copying, OpenFile};
use crate::open_writes::Manner;
use crate::service::{Role, Service};
use crate::session::Session;
use crate::third_party::{Grant, OpenRequest, Part, PullLeave, PullSource, addresses_of};
use reading::Reading;
pub(crate) use redirects::to_manager;
use writing::Opening;

/// The permission bits of a file that is created without any.
const FILE_MODE: u16 = 0o644;

/// The purpose of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Reading.
    Read,
    /// Writing, and reading the written data.
    Write(WriteMode),
    /// Not specified: continues the caller's own open write if there is one, and otherwise reads.
    Unsaid,
}

/// What an open for update continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoOn {
    /// The visible file.
    Visible,
    /// An upload that is not yet visible.
    Upload(UploadId),
}

/// A request to open a file.
#[derive(Clone)]
pub struct Open {
    /// The name.
    pub path: NsPath,
    /// The purpose.
    pub intent: Intent,
    /// Creates missing parent directories.
    pub make_parents: bool,
    /// The permission bits of a new file. If none of the lowest nine is set, it gets the default.
    pub mode: u16,
    /// Hides a new file until it is closed.
    pub hidden_until_closed: bool,
    /// Allows reading an interrupted file.
    pub partial: bool,
    /// Allows reading a file while it is being written.
    pub follows: bool,
    /// Whether the answer includes the attributes.
    pub with_stat: bool,
    /// The modification time; by default it is the time of the close.
    pub mtime: Option<Timestamp>,
    /// Continues an interrupted file or upload, for an update.
    pub go_on: Option<GoOn>,
    /// The client appends. Then an update shares the file with no other client.
    pub appends: bool,
    /// The role of this open in a third-party copy.
    pub copy: Part,
    /// An open file whose data the new file gets. The calling thread copies it.
    pub template: Option<Arc<OpenFile>>,
    /// What the client says about itself and its earlier attempts.
    pub hints: Hints,
    /// The number of the request, if the client numbers its requests.
    pub request: Option<RequestNumber>,
}

impl Open {
    /// Opens `path` with the attributes in the answer, and without other wishes.
    #[must_use]
    pub fn new(path: NsPath, intent: Intent) -> Self {
        Self {
            path,
            intent,
            make_parents: false,
            mode: 0,
            hidden_until_closed: false,
            partial: false,
            follows: false,
            with_stat: true,
            mtime: None,
            go_on: None,
            appends: false,
            copy: Part::None,
            template: None,
            hints: Hints::default(),
            request: None,
        }
    }
}

/// What a client says about itself and its earlier attempts, and the capability that it presents.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// The client's location, according to the client.
    pub location: Option<LocationPrefix>,
    /// The length that the client will write, in bytes.
    pub announced: Option<u64>,
    /// Hosts that the client has tried without success.
    pub tried: Vec<String>,
    /// Whether each of these hosts answered with an error.
    pub all_refused: bool,
    /// The client reads well at the hosts in `tried`, and would like to use another one besides.
    pub wants_another: bool,
    /// Whether a redirect has sent the client somewhere with this request before.
    pub comes_again: bool,
    /// The client comes back to a file that it has open, or repeats its request. In a cluster the manager's redirect says so.
    pub returns: bool,
    /// Stale replicas that the client has met on disk servers.
    pub absent_replicas: Vec<AbsentReplica>,
    /// Stores that had no room for the client's new file, as their servers have told it.
    pub full_stores: Vec<StoreId>,
    /// Whether the client can access stripe units directly.
    pub is_direct: bool,
    /// The object that the client was reading, if it is sent here with a read ([`crate::SAME_OBJECT_KEY`]).
    pub same_object: Option<ObjectId>,
    /// The capability from the manager, in a cluster.
    pub capability: Option<Vec<u8>>,
    /// The stripe unit, if the client wants one instead of the whole file.
    pub unit: Option<UnitHint>,
}

/// A stripe unit. A field is `None` if it was not given or is invalid.
#[derive(Clone, Copy, Debug)]
pub struct UnitHint {
    /// The number of the unit.
    pub number: Option<u8>,
    /// The object of the striped file, for reading.
    pub of: Option<ObjectId>,
    /// The open write of the striped file, for writing.
    pub writing: Option<StripedOpenWrite>,
}

/// The result of an open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The handle, in the session that opened the file.
    pub handle: Handle,
    /// The attributes, if they were requested.
    pub stat: Option<Stat>,
}

impl Service {
    /// Opens a file in `session`. With a template the calling thread copies its data, which may take long. The copy
    /// stops when the answer is unwanted.
    pub fn open(self: &Arc<Self>, session: &Arc<Session>, open: Open, answer: impl Answer<Opened>) {
        let caller = session.caller();
        if self.is_stopping() {
            return answer.give(Err(Error::wait_for_restart()));
        }
        if let Role::Standby(standby) = &self.role {
            let standby = standby.clone();
            let answer = self.audited_open(&caller, &open, None, answer);
            return self.redirect_reader_of_standby(&standby, &caller, &open, answer);
        }
        // A client that returns to the manager still presents its old capability, so ignore it there.
        if let (Role::Disk(disk), true) = (&self.role, open.hints.capability.is_some()) {
            return self.open_granted(&Arc::clone(disk), session, &caller, open, answer);
        }
        // A server that fetches for a third-party copy does not know the manager. The client has opened the file here
        // for it.
        if let (Role::Disk(disk), false) = (&self.role, matches!(open.copy, Part::Fetch { .. })) {
            return answer.give(Err(redirects::to_manager(disk)));
        }
        let how = match open.intent {
            Intent::Write(how) => Some(how),
            Intent::Unsaid if self.writes.writes(&self.names, &caller, &open.path) => Some(WriteMode::Update),
            Intent::Unsaid | Intent::Read => None,
        };
        let answer = self.audited_open(&caller, &open, how, answer);
        let outcome = match how {
            Some(how) => match self.source_to_write(&caller, &open, how) {
                Ok(source) => return self.open_to_write(session, caller, open, how, source, answer),
                Err(error) => Err(error),
            },
            None => return self.open_to_read(session, &caller, open, answer),
        };
        answer.give(outcome);
    }

    /// The source of a third-party copy into this file; `None`: it is an ordinary open.
    fn source_to_write(&self, caller: &Caller, open: &Open, how: WriteMode) -> Result<Option<PullSource>, Error> {
        caller.may_change(&format_args!("open {} for writing", open.path))?;
        match &open.copy {
            Part::None => Ok(None),
            _ if open.template.is_some() => {
                let text = "A third-party copy gets its data from another server, not from a template";
                Err(Error::new(ErrorCode::Invalid, text))
            }
            Part::Target { .. } if how == WriteMode::Update => Err(no_new_target()),
            Part::Target { .. } => self.source_of(caller, open, caller.delegated()).map(Some),
            Part::Source { .. } | Part::Fetch { .. } => Err(source_to_write()),
        }
    }

    fn open_to_read(
        self: &Arc<Self>,
        session: &Arc<Session>,
        caller: &Arc<Caller>,
        open: Open,
        answer: impl Answer<Opened>,
    ) {
        if let Role::Manager(manager) = &self.role {
            return self.redirect_reader(manager, caller, open, answer);
        }
        if let (Role::Disk(_), Part::Fetch { key, origin }) = (&self.role, &open.copy) {
            let (key, origin) = (key.clone(), origin.clone());
            return self.fetch_of_granted(session, caller, open, (&key, origin), answer);
        }
        let follows = self.follows(&open);
        let Open { path, partial, with_stat, copy, .. } = open;
        let (service, session) = (Arc::clone(self), Arc::clone(session));
        let opening = Reading { service, session, path, partial, follows, with_stat };
        match copy {
            Part::None | Part::Target { .. } => opening.answer(Ok(Copying::No), answer),
            Part::Source { key, dst } => {
                // The grant lets another server in, which may wait for it already. So the caller's right comes first.
                let may_read = self
                    .names
                    .read(|read| namespace::open_read(read, &caller.actor(), &opening.path, opening.partial).map(drop));
                if let Err(error) = may_read {
                    return answer.give(Err(Error::of_namespace(&format_args!("open {}", opening.path), &error)));
                }
                let origin = origin_of(caller);
                self.workers.on_worker(answer, move |answer| {
                    let grant =
                        addresses_of(&dst).map(|to| Grant { path: opening.path.clone(), to, origin, verified: None });
                    let allowed = grant.and_then(|grant| opening.service.third_party.rendezvous.allow(key, grant));
                    let copying = allowed.map(|registration| Copying::Allowed { _registration: registration });
                    opening.answer(copying, answer);
                });
            }
            Part::Fetch { key, origin } => {
                let open_request = OpenRequest { path: opening.path.clone(), from: caller.peer.ip(), origin };
                let rendezvous = Arc::clone(&self.third_party.rendezvous);
                let then = Box::new(move |allowed: Result<Option<disk_server::VerifiedCapability>, Error>| {
                    opening.answer(allowed.map(|_| Copying::ForAnother), answer);
                });
                rendezvous.ask(&key, open_request, Instant::now(), then);
            }
        }
    }

    /// Whether this node offers third-party copies into it.
    #[must_use]
    pub fn offers_third_party_copies(&self) -> bool {
        self.third_party.pulls.is_offered()
    }

    /// The source of a third-party copy, which may be read with the proxy that its client has delegated. `open` must be that of a target.
    fn source_of(&self, caller: &Caller, open: &Open, proxy: Option<&DelegatedProxy>) -> Result<PullSource, Error> {
        let Part::Target { key, server, tls, path, delegates } = &open.copy else {
            return Err(source_to_write());
        };
        let path = path.clone().unwrap_or_else(|| open.path.to_string());
        if !self.third_party.pulls.is_offered() {
            // XrdCl recognises these words and this code, and then copies through itself.
            return Err(Error::new(ErrorCode::Incomplete, format!("Unable to open {}; tpc not supported", open.path)));
        }
        // A client asks only those servers to use its proxy that say they have it. The others read by the key.
        let (server, leave) = match (delegates, proxy) {
            (Some(server), Some(proxy)) => {
                if proxy.expires() <= wall_clock() {
                    let text = format!("Cannot copy to {}: the proxy that you have delegated has ended", open.path);
                    return Err(Error::new(ErrorCode::Denied, text));
                }
                (server.clone(), PullLeave::Proxy(proxy.clone()))
            }
            _ => (server.clone(), PullLeave::Key(key.clone())),
        };
        let tls = *tls;
        self.third_party.pulls.allow(&server)?;
        let origin = format!("{}.{}", caller.client.user, caller.client.pid);
        let client = caller.peer.ip().to_canonical();
        Ok(PullSource { server, tls, path, leave, origin, client, expected_len: open.hints.announced })
    }

    fn open_to_write(
        self: &Arc<Self>,
        session: &Arc<Session>,
        caller: Arc<Caller>,
        open: Open,
        how: WriteMode,
        fetched: Option<PullSource>,
        mut answer: impl Answer<Opened>,
    ) {
        let Open { path, template, mut hints, mut request, .. } = open;
        let resume = open.go_on.map(|go_on| match go_on {
            GoOn::Visible => Resume::Visible,
            GoOn::Upload(upload) => Resume::Upload(upload),
        });
        let mut op = OpenWrite {
            path,
            how,
            mkpath: open.make_parents,
            mode: mode_asked(open.mode),
            // The target of a third-party copy is visible only when it is complete.
            posc: open.hidden_until_closed || fetched.is_some(),
            client: caller.client.clone(),
            boot: self.settings.config.boot,
            // A restart forgets the copy. The file must then never count as complete, whatever its length is.
            expected_len: if fetched.is_some() || template.is_some() { Some(u64::MAX) } else { hints.announced },
            // A redirected client may come back with the same request, because that server has restarted or is
            // unreachable. It then finds its own open write.
            restarted: hints.comes_again,
            received_before: None,
            recovered: None,
            resume: if how == WriteMode::Update { resume } else { None },
            placement: types::Placement::single_node(),
            stripe: None,
            empty: None,
            unit_of: None,
            only: None,
            ends: false,
            sharing: (how == WriteMode::Update && resume.is_none()).then_some(Sharing::Keeps(None)),
        };
        if let Err(error) = self.go_on_if_repeated(&caller, &mut request, &mut op) {
            return answer.give(Err(error));
        }
        hints.returns |= op.only.is_some();
        let how = op.how;
        if how != WriteMode::Update && self.stores.floor_reached() {
            let text = format!("Cannot open {}: no space left for new data; remove files or add space", op.path);
            return answer.give(Err(Error::new(ErrorCode::NoSpace, text)));
        }
        // A returning writer already has memory. If it were told to wait, it would lose its file.
        let room = if how == WriteMode::Update && self.writes.writes(&self.names, &caller, &op.path) {
            None
        } else {
            let room = self.writer_memory.take(caller.peer.ip(), hints.announced);
            if room.is_none() {
                let text = format!("Cannot open {} now: the memory for open writes is used up", op.path);
                return answer.give(Err(Error::Wait { seconds: 3, text }));
            }
            room
        };
        if let Role::Manager(manager) = &self.role {
            if template.is_some() {
                return answer.give(Err(Error::unsupported("To clone a file, in a cluster,")));
            }
            return self.redirect_writer(&Arc::clone(manager), &caller, (&hints, request), op, fetched, answer);
        }
        if let Some(template) = &template {
            self.put_off_template(&mut answer, template);
        }
        let (filler, filling) = match template {
            Some(template) => {
                let (filler, filling) = sync_channel(1);
                (Some(filler), Some((template, filling)))
            }
            None => (None, None),
        };
        let opening = Opening {
            service: Arc::clone(self),
            session: Arc::clone(session),
            caller,
            op,
            request,
            with_stat: open.with_stat,
            room,
            manner: if open.appends { Manner::Appends } else { Manner::Shares },
            comes_again: hints.returns,
            fetched,
            mtime: open.mtime,
            filler,
            has_settled: false,
            unreadable: None,
        };
        if how == WriteMode::Update && self.writes.has_old_boots() {
            self.workers.on_worker(answer, move |answer| opening.after_a_boot(answer));
        } else if how != WriteMode::Update && opening.has_own_detached_uploads() {
            self.workers.on_worker(answer, move |answer| {
                opening.service.endings.end_own_uploads(&opening.caller, &opening.op.path);
                opening.submit(answer);
            });
        } else {
            opening.submit(answer);
        }
        // Without an opened file the open was refused.
        if let Some((template, opened_file)) = filling
            && let Ok((opened, answer)) = opened_file.recv()
        {
            self.fill_from(session, template, opened, answer);
        }
    }
}

/// The client's name as the servers of a third-party copy know it.
fn origin_of(caller: &Caller) -> Vec<u8> {
    format!("{}.{}", caller.client.user, caller.client.pid).into_bytes()
}

fn no_new_target() -> Error {
    Error::new(ErrorCode::Invalid, "The target of a third-party copy is a new file, or replaces one")
}

fn source_to_write() -> Error {
    Error::new(ErrorCode::Invalid, "The source of a third-party copy is opened for reading")
}

/// The permission bits of a new file, for the namespace.
pub(crate) fn mode_asked(mode: u16) -> u16 {
    mode_or_usual(mode) | if mode & 0o777 == 0 { USUAL_MODE } else { 0 }
}

/// The permission bits of a new file.
pub(crate) fn mode_or_usual(mode: u16) -> u16 {
    if mode & 0o777 == 0 { FILE_MODE } else { mode & 0o777 }
}
