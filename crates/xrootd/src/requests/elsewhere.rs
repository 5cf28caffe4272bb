//! In a cluster: a disk server redirects requests about names to the manager, and a standby manager those that it does not answer to the active one.

use service::Part;
use types::ErrorCode;
use wire::request::{
    Fattr, FattrOp, MkdirOptions, OpenOptions, Query, QueryKind, Request, StatOptions, Target, Truncate,
};
use wire::{FileHandle, PathArg};

use crate::connection::Connection;
use crate::from_wire::{capability_of, hints_of, parse_path};
use crate::third_party::part_of;
use crate::to_wire::RequestError;

impl Connection {
    /// The redirect for a request that only the manager can answer; `None`: this server answers it. A request that names
    /// a handle is answered here or refused: the handle is of this server, and a client that is sent away with it opens
    /// the file here again, without end.
    pub(crate) fn at_manager(&self, request: &Request) -> Option<RequestError> {
        if self.front.service.has_names() {
            return None;
        }
        if self.front.service.is_standby() {
            return self.at_active_manager(request);
        }
        let is_about_names = match request {
            Request::Stat(r) => matches!(r.target, Target::Path(_)) && !r.options.has(StatOptions::VFS),
            Request::Truncate(r) => matches!(&r.target, Target::Path(target) if capability_of(target).is_none()),
            // A server that fetches for a third-party copy does not know the manager. The client has opened the file
            // here for it.
            Request::Open(r) => {
                capability_of(&r.target).is_none()
                    && !self.has_template(r)
                    && !matches!(part_of(&r.target), Ok(Part::Fetch { .. }))
            }
            Request::Query(r) => is_about_a_name(r),
            Request::Fattr(r) => matches!(r.target, Target::Path(_)),
            Request::Statx(_)
            | Request::Locate(_)
            | Request::Dirlist(_)
            | Request::Mkdir(_)
            | Request::Rm(_)
            | Request::Rmdir(_)
            | Request::Mv(_)
            | Request::Chmod(_)
            | Request::Prepare(_) => true,
            _ => false,
        };
        // The redirect is made only for a request that needs it: this runs for each read and write.
        if !is_about_names {
            return None;
        }
        self.front.service.names_elsewhere().map(Into::into)
    }
}

impl Connection {
    /// The same in a standby manager. A client that comes back with the capability of a disk server goes on to the active manager, too.
    fn at_active_manager(&self, request: &Request) -> Option<RequestError> {
        if let Some(missing) = self.missing(request) {
            return Some(missing);
        }
        let service = &self.front.service;
        let elsewhere = match request {
            // The service answers it, or sends the client away.
            Request::Open(_) => None,
            Request::Stat(r) if matches!(r.target, Target::Path(_)) => self.read_elsewhere(),
            Request::Dirlist(_) | Request::Locate(_) => self.read_elsewhere(),
            Request::Fattr(r) if matches!(r.target, Target::Path(_)) => match r.op {
                FattrOp::Get(_) | FattrOp::List { .. } => self.read_elsewhere(),
                FattrOp::Set { .. } | FattrOp::Del(_) => service.names_elsewhere(),
            },
            Request::Query(r) => match r.kind {
                QueryKind::Checksum if names_a_handle(r) => None,
                QueryKind::Checksum | QueryKind::Xattr | QueryKind::Space => self.read_elsewhere(),
                QueryKind::Prepare | QueryKind::OpaqueFile => service.names_elsewhere(),
                _ => None,
            },
            Request::Truncate(r) if matches!(r.target, Target::Path(_)) => service.names_elsewhere(),
            Request::Statx(_)
            | Request::Mkdir(_)
            | Request::Rm(_)
            | Request::Rmdir(_)
            | Request::Mv(_)
            | Request::Chmod(_)
            | Request::Prepare(_) => service.names_elsewhere(),
            _ => None,
        };
        elsewhere.map(Into::into)
    }

    /// The answer to a change for which the client comes back from the active manager, if what it would change does not exist.
    fn missing(&self, request: &Request) -> Option<RequestError> {
        use OpenOptions as Open;
        // What must exist, and what is made.
        let (there, made) = match request {
            Request::Rm(r) => (Some(&r.target), None),
            Request::Rmdir(r) => (Some(&r.target), None),
            Request::Chmod(r) => (Some(&r.target), None),
            Request::Mv(r) => (Some(&r.from), Some(&r.to)),
            Request::Mkdir(r) => (None, Some(&r.target).filter(|_| !r.options.has(MkdirOptions::MKPATH))),
            Request::Open(r) if r.options.has(Open::NEW) || r.options.has(Open::DELETE) => {
                (None, Some(&r.target).filter(|_| !r.options.has(Open::MKPATH)))
            }
            Request::Open(r) => (Some(&r.target), None),
            Request::Truncate(Truncate { target: Target::Path(target), .. })
            | Request::Fattr(Fattr { target: Target::Path(target), .. }) => (Some(target), None),
            _ => return None,
        };
        let service = &self.front.service;
        let comes_back = |target: &&PathArg| service.was_tried_at_active(&hints_of(target).tried);
        there.filter(comes_back).or(made.filter(comes_back))?;
        let caller = self.session.open.caller();
        let missing = |path: &[u8]| {
            let error = service.kind(&caller, &"find", &parse_path(path).ok()?).err()?;
            (error.code() == ErrorCode::NotFound).then(|| error.into())
        };
        let folder = |target: &PathArg| {
            let name = target.path.iter().rposition(|byte| *byte == b'/')?;
            target.path.get(..name).filter(|folder| !folder.is_empty()).and_then(missing)
        };
        there.and_then(|target| missing(&target.path)).or_else(|| made.and_then(folder))
    }

    fn read_elsewhere(&self) -> Option<service::Error> {
        self.front.service.reads_elsewhere(&self.session.open.caller())
    }
}

fn is_about_a_name(r: &Query) -> bool {
    match r.kind {
        QueryKind::Checksum => !names_a_handle(r),
        QueryKind::Xattr | QueryKind::Prepare | QueryKind::OpaqueFile => true,
        _ => false,
    }
}

/// Whether a query for a checksum is about an open file.
pub(super) fn names_a_handle(r: &Query) -> bool {
    r.args.is_empty() && r.handle != FileHandle::default()
}
