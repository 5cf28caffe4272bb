//! In a cluster: a disk server redirects requests about names to the manager, and a standby manager those that it does not answer to the active one.

use std::time::Instant;

use service::{Intent, Part};
use wire::request::{FattrOp, Query, QueryKind, Request, Stat, StatOptions, Target, Truncate};
use wire::{ErrorNumber, FileHandle};

use crate::connection::Connection;
use crate::from_wire::{capability_of, hints_of, intent_of};
use crate::third_party::part_of;
use crate::to_wire::RequestError;

impl Connection {
    /// The redirect for a request that only the manager can answer; `None`: this server answers it. A request that names
    /// a handle is answered here or refused: the handle is of this server, and a client that is sent away with it opens
    /// the file here again, without end.
    pub(crate) fn at_manager(&mut self, request: &Request) -> Option<RequestError> {
        if self.front.service.has_names() {
            return self.comes_back_again_and_again(request);
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
    /// In a manager: has the client of an open wait that comes back again and again. The disk server that this manager chooses may know for a moment
    /// what this manager does not know yet, or the other way round, and XrdCl gives up after 16 redirects, which takes it milliseconds.
    fn comes_back_again_and_again(&mut self, request: &Request) -> Option<RequestError> {
        let is_open = matches!(request, Request::Open(_)) && self.front.service.is_manager();
        (is_open && self.sent_away.has_to_wait(Instant::now(), request)).then(wait_until_agreed)
    }

    /// The same in a standby manager. A client that comes back with the capability of a disk server goes on to the active manager, too.
    fn at_active_manager(&mut self, request: &Request) -> Option<RequestError> {
        let service = &self.front.service;
        let elsewhere = match request {
            Request::Open(r) if intent_of(r.options) != Intent::Read => service.names_elsewhere(),
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
        let elsewhere = RequestError::from(elsewhere?);
        let RequestError::Redirect(_) = elsewhere else { return Some(elsewhere) };
        // XrdCl comes back to the first manager that has redirected it, after some errors of the active one.
        Some(self.refused_by_active(request).or_else(|| self.goes_in_circles(request)).unwrap_or(elsewhere))
    }

    /// The error with which the active manager has refused this request, as the client says that comes back from it.
    fn refused_by_active(&self, request: &Request) -> Option<RequestError> {
        // XrdCl says it in these requests, and in the last path.
        let target = match request {
            Request::Rm(r) => &r.target,
            Request::Rmdir(r) => &r.target,
            Request::Chmod(r) => &r.target,
            Request::Mv(r) => &r.to,
            Request::Mkdir(r) => &r.target,
            Request::Open(r) => &r.target,
            Request::Locate(r) => &r.target,
            Request::Stat(Stat { target: Target::Path(target), .. })
            | Request::Truncate(Truncate { target: Target::Path(target), .. }) => target,
            _ => return None,
        };
        // Clients come here from disk servers, too, with requests for data.
        let is_for_data = matches!(request, Request::Open(_) | Request::Truncate(_));
        if !self.front.service.comes_from_active(&hints_of(target).tried, is_for_data) {
            return None;
        }
        let reasons = target.get(b"triedrc")?;
        let (number, why) = match reasons.rsplit(|byte| *byte == b',').next()? {
            b"enoent" => (ErrorNumber::NOT_FOUND, "it, or a directory above it, does not exist"),
            b"fserr" => (ErrorNumber::FS_ERROR, "its path, or what is there, does not allow it"),
            b"ioerr" => (ErrorNumber::IO_ERROR, "a disk failed"),
            // The connection was lost, perhaps.
            _ => return None,
        };
        let path = String::from_utf8_lossy(&target.path).escape_debug().to_string();
        Some(RequestError::new(number, format!("The active manager refused a request for {path}: {why}")))
    }

    /// The answer to a request that was sent to the active manager again and again just before. An open that comes back from a disk server waits: the
    /// managers and the disk server soon agree.
    fn goes_in_circles(&mut self, request: &Request) -> Option<RequestError> {
        let now = Instant::now();
        if matches!(request, Request::Open(r) if capability_of(&r.target).is_some()) {
            return self.sent_away.has_to_wait(now, request).then(wait_until_agreed);
        }
        self.sent_away.goes_in_circles(now, request).then(|| {
            let text =
                "The active manager sends this request back here again and again; ask it directly, and it will say why";
            RequestError::new(ErrorNumber::SERVER_ERROR, text)
        })
    }

    fn read_elsewhere(&self) -> Option<service::Error> {
        self.front.service.reads_elsewhere(&self.session.open.caller())
    }
}

fn wait_until_agreed() -> RequestError {
    let text = "Disk servers have sent this client back again and again; they and the manager soon agree".into();
    RequestError::Wait { seconds: 1, text }
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
