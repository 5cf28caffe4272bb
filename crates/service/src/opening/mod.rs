//! Opening files: for reading at once, from a view of the namespace and the store; for writing through the committer, whose
//! completion makes the replica and answers. In a cluster the manager sends the client to where the bytes are ([`redirects`]), and a disk server does what
//! the manager permits ([`verified`]).

mod reading;
mod redirects;
mod verified;
mod writing;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use namespace::{OpenWrite, Resume};
use types::stale_replicas::StaleReplica;
use types::striping::StripedOpenWrite;
use types::{ErrorCode, LocationPrefix, NsPath, ObjectId, Timestamp, UploadId};

pub use namespace::How;

use crate::answer::Answer;
use crate::attributes::Stat;
use crate::caller::Caller;
use crate::error::Error;
use crate::handles::Handle;
use crate::open_file::{Copying, OpenFile};
use crate::service::{Role, Service};
use crate::session::Session;
use crate::third_party::{Grant, OpenRequest, Part, PullSource, addresses_of};
use reading::Reading;
pub(crate) use redirects::to_manager;
use writing::Opening;

/// Files made without permission bits get these.
const FILE_MODE: u16 = 0o644;

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// To read it.
    Read,
    /// To write it (and read what was written).
    Write(How),
    /// The client does not say: it goes on with what it writes, or reads.
    Unsaid,
}

/// What an open goes on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoOn {
    /// What the name shows.
    Visible,
    /// An upload that is not shown yet.
    Upload(UploadId),
}

/// An open.
#[derive(Clone)]
pub struct Open {
    /// The name.
    pub path: NsPath,
    /// What for.
    pub intent: Intent,
    /// Directories on the way that are missing are made.
    pub make_parents: bool,
    /// The permission bits of a new file; none of the lowest nine: the usual ones.
    pub mode: u16,
    /// A new file is not shown before it is closed.
    pub hidden_until_closed: bool,
    /// To read what there is of an interrupted file.
    pub partial: bool,
    /// The answer tells the file's attributes.
    pub with_stat: bool,
    /// The time of the last change that it is to show, if not that of its close.
    pub mtime: Option<Timestamp>,
    /// An update goes on with what was interrupted.
    pub go_on: Option<GoOn>,
    /// Its part in a third-party copy.
    pub copy: Part,
    /// The open file whose content a new one gets. The calling thread copies it.
    pub template: Option<Arc<OpenFile>>,
    /// How the client came here.
    pub hints: Hints,
}

/// How a client came here, and what it says and shows besides.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Where it says that it stands.
    pub location: Option<LocationPrefix>,
    /// How many bytes it says that it will write.
    pub announced: Option<u64>,
    /// Hosts that it could not reach.
    pub tried: Vec<String>,
    /// Each of these has answered, and refused.
    pub all_refused: bool,
    /// It was sent somewhere with this request before.
    pub comes_again: bool,
    /// What disk servers that it was sent to have not.
    pub stale_replicas: Vec<StaleReplica>,
    /// It can go to the units of a striped file by itself.
    pub is_direct: bool,
    /// The permission of a cluster's manager that it shows.
    pub capability: Option<Vec<u8>>,
    /// It means a unit of a striped file.
    pub unit: Option<UnitHint>,
}

/// A unit of a striped file; what is not given, or could not be read, is `None`.
#[derive(Clone, Copy, Debug)]
pub struct UnitHint {
    /// Which one.
    pub number: Option<u8>,
    /// Of which content, to read it.
    pub of: Option<ObjectId>,
    /// For whom it is written.
    pub writing: Option<StripedOpenWrite>,
}

/// What an open gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The open file, in the session that has opened it.
    pub handle: Handle,
    /// Its attributes, if they were asked for.
    pub stat: Option<Stat>,
}

impl Service {
    /// Opens a file in `session`. With a template the calling thread copies the content, which may take long; it stops when the answer is unwanted.
    pub fn open(self: &Arc<Self>, session: &Arc<Session>, open: Open, answer: impl Answer<Opened>) {
        let caller = session.caller();
        if self.is_stopping() {
            return answer.give(Err(Error::new(ErrorCode::Unavailable, "The server is going down")));
        }
        // A client that comes back to the manager brings along what it was given there before.
        if let (Role::Disk(disk), true) = (&self.role, open.hints.capability.is_some()) {
            return self.open_granted(&Arc::clone(disk), session, &caller, open, answer);
        }
        // Another server asks here for what a client has opened here for it, and knows of no manager.
        if let (Role::Disk(disk), false) = (&self.role, matches!(open.copy, Part::Fetch { .. })) {
            return answer.give(Err(redirects::to_manager(disk)));
        }
        let how = match open.intent {
            Intent::Write(how) => Some(how),
            Intent::Unsaid if self.writes.writes(&self.names, &caller, &open.path) => Some(How::Update),
            Intent::Unsaid | Intent::Read => None,
        };
        let outcome = match how {
            Some(how) => match self.source_to_write(&caller, &open, how) {
                Ok(source) => return self.open_to_write(session, caller, open, how, source, answer),
                Err(error) => Err(error),
            },
            None => return self.open_to_read(session, &caller, open, answer),
        };
        answer.give(outcome);
    }

    /// What a file that is opened for writing is fetched from; `None`: from nowhere.
    fn source_to_write(&self, caller: &Caller, open: &Open, how: How) -> Result<Option<PullSource>, Error> {
        caller.may_change(&format_args!("open {} for writing", open.path))?;
        match &open.copy {
            Part::None => Ok(None),
            _ if open.template.is_some() => {
                let text = "A third-party copy gets its data from another server, not from a template";
                Err(Error::new(ErrorCode::Invalid, text))
            }
            Part::Target { .. } if how == How::Update => Err(no_new_target()),
            Part::Target { key, server, path } => {
                self.source_of(caller, open, key.clone(), server.clone(), path.clone()).map(Some)
            }
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
            let error = self.redirect_reader(manager, caller, &open);
            return answer.give(Err(error));
        }
        if let (Role::Disk(_), Part::Fetch { key, origin }) = (&self.role, &open.copy) {
            let (key, origin) = (key.clone(), origin.clone());
            return self.fetch_of_granted(session, caller, open, (&key, origin), answer);
        }
        let Open { path, partial, with_stat, copy, .. } = open;
        let opening = Reading { service: Arc::clone(self), session: Arc::clone(session), path, partial, with_stat };
        match copy {
            Part::None | Part::Target { .. } => opening.answer(Ok(Copying::No), answer),
            Part::Source { key, dst } => {
                let origin = origin_of(caller);
                self.workers.on_worker(answer, move |answer| {
                    let grant =
                        addresses_of(&dst).map(|to| Grant { path: opening.path.clone(), to, origin, permission: None });
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

    /// Whether third-party copies into this node are offered.
    #[must_use]
    pub fn offers_third_party_copies(&self) -> bool {
        self.third_party.pulls.is_offered()
    }

    /// Where a third-party copy is to be fetched from.
    fn source_of(
        &self,
        caller: &Caller,
        open: &Open,
        key: String,
        server: String,
        path: Option<String>,
    ) -> Result<PullSource, Error> {
        let path = path.unwrap_or_else(|| open.path.to_string());
        if !self.third_party.pulls.is_offered() {
            // XrdCl looks for these words, and for the code, to fall back to a copy through itself.
            return Err(Error::new(ErrorCode::Incomplete, format!("Unable to open {}; tpc not supported", open.path)));
        }
        self.third_party.pulls.allow(&server)?;
        let origin = format!("{}.{}", caller.client.user, caller.client.pid);
        let client = caller.peer.ip().to_canonical();
        Ok(PullSource { server, path, key, origin, client, expected_len: open.hints.announced })
    }

    fn open_to_write(
        self: &Arc<Self>,
        session: &Arc<Session>,
        caller: Arc<Caller>,
        open: Open,
        how: How,
        fetched: Option<PullSource>,
        mut answer: impl Answer<Opened>,
    ) {
        let Open { path, template, hints, .. } = open;
        if how != How::Update && self.stores.floor_reached() {
            let text = format!("Cannot open {path}: no space left for new data; remove files or add space");
            return answer.give(Err(Error::new(ErrorCode::NoSpace, text)));
        }
        // Who comes back to what it writes has room already; told to wait, it would lose it.
        let room = if how == How::Update && self.writes.writes(&self.names, &caller, &path) {
            None
        } else {
            let room = self.writer_memory.take(caller.peer.ip(), hints.announced);
            if room.is_none() {
                let text = format!("Cannot open {path} now: the memory for open writes is used up");
                return answer.give(Err(Error::Wait { seconds: 3, text }));
            }
            room
        };
        let resume = open.go_on.map(|go_on| match go_on {
            GoOn::Visible => Resume::Visible,
            GoOn::Upload(upload) => Resume::Upload(upload),
        });
        let op = OpenWrite {
            path,
            how,
            mkpath: open.make_parents,
            mode: mode_or_usual(open.mode),
            // What is fetched shows when it is whole.
            posc: open.hidden_until_closed || fetched.is_some(),
            client: caller.client.clone(),
            boot: self.settings.config.boot,
            // After a restart nobody remembers that it was being filled: no length that it can have must make it whole.
            expected_len: if fetched.is_some() || template.is_some() { Some(u64::MAX) } else { hints.announced },
            // Who was sent somewhere by a redirect of before, and comes here again with the same request, finds its own beginning: it was sent back, as
            // that server has begun anew, or could not reach it.
            restarted: hints.comes_again,
            vouched: None,
            resume: if how == How::Update { resume } else { None },
            placement: types::Placement::single_node(),
            stripe: None,
            unit_of: None,
            only: None,
        };
        if let Role::Manager(manager) = &self.role {
            if template.is_some() {
                return answer.give(Err(Error::unsupported("To clone a file, in a cluster,")));
            }
            return self.redirect_writer(&Arc::clone(manager), &caller, &hints, op, answer);
        }
        if let Some(template) = &template {
            self.put_off_template(&mut answer, template);
        }
        let (verified, backfill) = match template {
            Some(template) => {
                let (verified, backfill) = sync_channel(1);
                (Some(verified), Some((template, backfill)))
            }
            None => (None, None),
        };
        let opening = Opening {
            service: Arc::clone(self),
            session: Arc::clone(session),
            caller,
            op,
            with_stat: open.with_stat,
            room,
            fetched,
            mtime: open.mtime,
            verified,
        };
        if how == How::Update && self.writes.has_old_boots() {
            self.workers.on_worker(answer, move |answer| opening.after_a_boot(answer));
        } else if how != How::Update && opening.has_own_detached_uploads() {
            self.workers.on_worker(answer, move |answer| {
                opening.service.endings.end_own_uploads(&opening.caller, &opening.op.path);
                opening.submit(answer);
            });
        } else {
            opening.submit(answer);
        }
        // Without an opened file it was refused.
        if let Some((template, backfill)) = backfill
            && let Ok((opened, answer)) = backfill.recv()
        {
            self.fill_from(session, template, opened, answer);
        }
    }
}

/// The client as the servers of a third-party copy know it.
fn origin_of(caller: &Caller) -> Vec<u8> {
    format!("{}.{}", caller.client.user, caller.client.pid).into_bytes()
}

fn no_new_target() -> Error {
    Error::new(ErrorCode::Invalid, "The target of a third-party copy is a new file, or replaces one")
}

fn source_to_write() -> Error {
    Error::new(ErrorCode::Invalid, "The source of a third-party copy is opened for reading")
}

/// The permission bits of a file that is made.
pub(crate) fn mode_or_usual(mode: u16) -> u16 {
    if mode & 0o777 == 0 { FILE_MODE } else { mode & 0o777 }
}
