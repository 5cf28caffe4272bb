//! Redirects from the manager of a cluster to the servers with the data, and from a disk server to the manager.

use std::sync::Arc;

use disk_server::DiskServer;
use manager::{Manager, OpenRequest};
use namespace::{OpenWrite, Sharing};
use node::{CopySource, SentProxy};
use types::capability::Capability;
use types::striping::{UNIT_KEY, UNIT_OF_KEY, UNIT_WRITER_KEY};
use types::{ClientAddress, ErrorCode, NsPath, RequestNumber, StoreId};

use super::{Hints, Intent, Open, UnitHint};
use crate::answer::Answer;
use crate::caller::Caller;
use crate::error::{Error, Redirect};
use crate::names::wall_clock;
use crate::service::{Role, Service};
use crate::standby::Standby;
use crate::third_party::{PullLeave, PullSource};

impl Hints {
    /// The information about `caller` and its open of `path` that a manager needs.
    pub(crate) fn open_request(&self, caller: &Caller, path: &NsPath) -> OpenRequest {
        let from = caller.peer.ip().to_canonical();
        OpenRequest {
            location: self.location.as_ref().and_then(|location| location.of_client(from)),
            announced: self.announced,
            all_refused: self.all_refused,
            wants_another: self.wants_another,
            tried: self.tried.clone(),
            absent_replicas: self.absent_replicas.clone(),
            full_stores: self.full_stores.clone(),
            same_object: self.same_object,
            came_with: self.capability.as_deref().and_then(Capability::unproven_epoch),
            is_direct: self.is_direct,
            protocol: caller.protocol,
            ..OpenRequest::new(wall_clock(), path.clone(), from, caller.actor())
        }
    }
}

impl Service {
    /// Redirects an open for reading.
    pub(super) fn redirect_reader<T>(&self, manager: &Manager, caller: &Caller, open: Open, answer: impl Answer<T>) {
        let unit = match unit_of(open.hints.unit, UNIT_OF_KEY, |unit| unit.of) {
            Ok(unit) => unit,
            Err(error) => return answer.give(Err(error)),
        };
        match manager.open_read(&open.hints.open_request(caller, &open.path), &open.path, open.partial, unit) {
            Ok(to) => self.redirect_by_policy(manager, caller, (open, to), answer),
            Err(error) => answer.give(Err(Error::of_opening(&open.path, &error))),
        }
    }

    /// Redirects an open for reading in a standby manager. A client that finds only what is complete is sent to a disk server, everybody else to the
    /// active manager.
    pub(super) fn redirect_reader_of_standby<T>(
        &self,
        standby: &Standby,
        caller: &Caller,
        open: &Open,
        answer: impl Answer<T>,
    ) {
        let elsewhere = || Err(standby.active.elsewhere());
        // A disk server sends clients away that has just lost its lease, which is not known here yet. Who is sent back there goes round in circles.
        let comes_from_active = self.comes_from_active(&open.hints.tried, true);
        let Hints { comes_again, same_object, capability, .. } = &open.hints;
        let comes_back = *comes_again || same_object.is_some() || capability.is_some();
        if comes_back && !comes_from_active {
            return answer.give(elsewhere());
        }
        let (Intent::Read, None, Some(manager)) = (open.intent, self.reads_elsewhere(caller), standby.reads()) else {
            return answer.give(elsewhere());
        };
        let unit = match unit_of(open.hints.unit, UNIT_OF_KEY, |unit| unit.of) {
            Ok(unit) => unit,
            Err(error) => return answer.give(Err(error)),
        };
        let opened = manager.open_read(&open.hints.open_request(caller, &open.path), &open.path, open.partial, unit);
        answer.give(match opened {
            Ok(to) if to.unfinished.is_some() => elsewhere(),
            Ok(to) => Err(Error::redirect(to)),
            Err(error) => {
                let error = Err(Error::of_opening(&open.path, &error));
                if comes_from_active { error } else { self.unless_active_knows_more(error) }
            }
        });
    }

    /// Redirects an open for writing.
    pub(super) fn redirect_writer<T>(
        &self,
        manager: &Arc<Manager>,
        caller: &Caller,
        (hints, request): (&Hints, Option<RequestNumber>),
        op: OpenWrite,
        fetched: Option<PullSource>,
        answer: impl Answer<T>,
    ) {
        let path = op.path.clone();
        let sent = match fetched.map_or(Ok(None), |source| sent_proxy(source, &path)) {
            Ok(sent) => sent,
            Err(error) => return answer.give(Err(error)),
        };
        let principal = caller.principal;
        if sent.is_some() && !manager.has_room_for_delegated(principal) {
            return answer.give(Err(too_many_proxies(&path)));
        }
        let unit = match unit_of(hints.unit, UNIT_WRITER_KEY, |unit| unit.writing) {
            Ok(unit) => unit,
            Err(error) => return answer.give(Err(error)),
        };
        let open_request = OpenRequest { number: request, ..hints.open_request(caller, &path) };
        let returns = hints.returns || open_request.came_with.is_some();
        let holder = Arc::clone(manager);
        let done = move |result: Result<manager::Redirect, manager::OpeningError>| {
            // Before the client learns where to go, so that the server there finds it.
            if let (Ok(to), Some(sent)) = (&result, sent)
                && !holder.hold_delegated(to.node, to.object, principal, sent)
            {
                return answer.give(Err(too_many_proxies(&path)));
            }
            answer.give(Err(match result {
                Ok(to) => Error::redirect(Redirect { returns, ..to.into() }),
                Err(error) => Error::of_opening(&path, &error),
            }));
        };
        match unit {
            Some((unit, writing)) => {
                let which = (writing, unit, op.resume.is_some());
                manager.open_unit_write(open_request, which, done);
            }
            None => manager.open_write(open_request, op, done),
        }
    }

    /// Redirects a truncation by name to the primary of the file.
    pub(crate) fn redirect_truncate(
        &self,
        manager: &Arc<Manager>,
        caller: &Caller,
        hints: &Hints,
        op: OpenWrite,
        answer: impl Answer<()>,
    ) {
        // A client that writes the file may do so together with others.
        let sharing = Some(Sharing::Keeps(None));
        // A writer must truncate through its handle. But a client that comes from an unreachable server continues
        // what it began there.
        let goes_on = !hints.tried.is_empty();
        match self.writes.of_caller(&self.names, caller, &op.path) {
            Ok(own) if own.is_empty() || goes_on => {
                let op = if own.is_empty() { op } else { OpenWrite { sharing, ..op } };
                // The number is for the end of the truncation.
                self.redirect_writer(manager, caller, (hints, None), op, None, answer);
            }
            Ok(_) => {
                let text = format!("Cannot truncate {}: you are writing it; truncate the open file", op.path);
                answer.give(Err(Error::new(ErrorCode::Busy, text)));
            }
            Err(error) => answer.give(Err(Error::of_namespace(&"truncate", &error))),
        }
    }

    /// Whether this node has the namespace. A disk server of a cluster has not, nor has a standby manager: the active manager answers requests about
    /// names.
    #[must_use]
    pub fn has_names(&self) -> bool {
        !matches!(self.role, Role::Disk(_) | Role::Standby(_))
    }

    /// Whether this node is the active manager of a cluster.
    #[must_use]
    pub fn is_manager(&self) -> bool {
        matches!(self.role, Role::Manager(_))
    }

    /// Whether this node is a standby manager, which answers nothing itself.
    #[must_use]
    pub fn is_standby(&self) -> bool {
        matches!(self.role, Role::Standby(_))
    }

    /// Whether a new file can get the data of an open one. In a cluster the manager chooses where new files are, and no
    /// file is open there.
    #[must_use]
    pub fn makes_files_like_open_ones(&self) -> bool {
        matches!(self.role, Role::Alone { .. })
    }

    /// Redirects a request about names to the manager; `None`: this node has the namespace.
    #[must_use]
    pub fn names_elsewhere(&self) -> Option<Error> {
        match &self.role {
            Role::Disk(disk) => Some(to_manager(disk)),
            Role::Standby(standby) => Some(standby.active.elsewhere()),
            Role::Alone { .. } | Role::Manager(_) => None,
        }
    }

    /// Where clients of the caller's protocol reach the servers that have the data of `path`. Empty: this node has it,
    /// or there is no data.
    ///
    /// # Errors
    /// The path does not exist, no server can serve it at the moment, or none has an address for the protocol.
    pub fn locate(&self, caller: &Caller, path: &NsPath, hints: &Hints) -> Result<Vec<ClientAddress>, Error> {
        let located = self.located(caller, path, hints);
        self.audit_read(caller, &"locate", path, &located);
        located
    }

    fn located(&self, caller: &Caller, path: &NsPath, hints: &Hints) -> Result<Vec<ClientAddress>, Error> {
        if let Some(elsewhere) = self.reads_elsewhere(caller) {
            return Err(elsewhere);
        }
        let request = || hints.open_request(caller, path);
        let found = match &self.role {
            Role::Manager(manager) => Some(manager.locate(&request(), path)),
            Role::Standby(standby) => standby.reads().map(|manager| manager.locate(&request(), path)),
            Role::Alone { .. } | Role::Disk(_) => None,
        };
        if let Some(found) = found {
            let found = self.unless_active_knows_more(found.map_err(|error| Error::of_opening(path, &error)))?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let found = self.names.read(|read| namespace::lookup(read, &caller.actor(), path).map(drop));
        self.unless_active_knows_more(found.map_err(|error| Error::of_namespace(&"locate", &error)))?;
        Ok(Vec::new())
    }
}

/// The proxy with which the server that gets the data of `path` reads this source; `None`: it reads it by the key. It is for this source alone.
fn sent_proxy(source: PullSource, path: &NsPath) -> Result<Option<SentProxy>, Error> {
    let PullSource { server, tls, path: from, leave: PullLeave::Proxy(proxy), .. } = source else { return Ok(None) };
    let source = CopySource { server, tls, path: from };
    let sent = SentProxy::new(proxy.secret_text().to_owned(), proxy.expires(), source);
    sent.map(Some).ok_or_else(|| {
        let text = format!("Cannot copy to {path}: the proxy that you have delegated is too long for a cluster");
        Error::new(ErrorCode::Invalid, text)
    })
}

fn too_many_proxies(path: &NsPath) -> Error {
    Error::Wait {
        seconds: 3,
        text: format!("Cannot open {path} now: too many delegated proxies wait for disk servers"),
    }
}

/// Redirects the client to the manager.
pub(crate) fn to_manager(disk: &DiskServer) -> Error {
    match disk.manager_for_clients() {
        Some((host, port)) => Error::redirect(Redirect::to_manager(host, port)),
        None => Error::Wait { seconds: 1, text: "This disk server has not heard of its manager yet".into() },
    }
}

/// Redirects the client of a new file to the manager, which is to choose other stores than these.
pub(super) fn to_manager_without(disk: &DiskServer, full_stores: Vec<StoreId>) -> Error {
    match to_manager(disk) {
        Error::Redirect(to) => Error::redirect(Redirect { full_stores, ..*to }),
        wait => wait,
    }
}

/// The requested stripe unit and its file; `None`: the client wants the whole file.
fn unit_of<T>(
    unit: Option<UnitHint>,
    key: &str,
    of: impl FnOnce(UnitHint) -> Option<T>,
) -> Result<Option<(u8, T)>, Error> {
    let Some(unit) = unit else { return Ok(None) };
    unit.number.zip(of(unit)).map(Some).ok_or_else(|| {
        let text = format!("To open a stripe unit, give its number in {UNIT_KEY} and its file in {key}");
        Error::new(ErrorCode::Invalid, text)
    })
}
