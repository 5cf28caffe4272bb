//! In a cluster: a disk server redirects requests about names to the manager.

use service::Part;
use wire::request::{Request, StatOptions, Target};

use crate::connection::Connection;
use crate::from_wire::capability_of;
use crate::third_party::part_of;
use crate::to_wire::Refusal;

impl Connection {
    /// The redirect for a request that only the manager can answer; `None`: this server answers it.
    pub(crate) fn at_manager(&self, request: &Request) -> Option<Refusal> {
        if self.front.service.has_names() {
            return None;
        }
        let is_about_names = match request {
            Request::Stat(r) => matches!(r.target, Target::Path(_)) && !r.options.has(StatOptions::VFS),
            Request::Truncate(r) => matches!(&r.target, Target::Path(target) if capability_of(target).is_none()),
            // A server that fetches for a third-party copy does not know the manager. The client has opened the file
            // here for it.
            Request::Open(r) => {
                capability_of(&r.target).is_none() && !matches!(part_of(&r.target), Ok(Part::Fetch { .. }))
            }
            Request::Query(r) => matches!(
                r.kind,
                wire::request::QueryKind::Checksum
                    | wire::request::QueryKind::Xattr
                    | wire::request::QueryKind::Prepare
                    | wire::request::QueryKind::OpaqueFile
            ),
            Request::Statx(_)
            | Request::Locate(_)
            | Request::Dirlist(_)
            | Request::Mkdir(_)
            | Request::Rm(_)
            | Request::Rmdir(_)
            | Request::Mv(_)
            | Request::Chmod(_)
            | Request::Fattr(_)
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
