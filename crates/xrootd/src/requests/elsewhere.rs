//! In a cluster: a disk server redirects requests about names to the manager, and a standby manager those to the active one.

use service::Part;
use wire::FileHandle;
use wire::request::{Query, QueryKind, Request, StatOptions, Target};

use crate::connection::Connection;
use crate::from_wire::capability_of;
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
        let is_standby = self.front.service.is_standby();
        let is_about_names = match request {
            // A client that comes back with the capability of a disk server goes on to the active manager, too.
            Request::Stat(r) if is_standby => matches!(r.target, Target::Path(_)),
            Request::Truncate(r) if is_standby => matches!(r.target, Target::Path(_)),
            Request::Open(_) if is_standby => true,
            Request::Query(r) if is_standby && r.kind == QueryKind::Space => true,
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
