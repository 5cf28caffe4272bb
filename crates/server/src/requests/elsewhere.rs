//! In a cluster: what is to be asked of another server. A manager sends opens to where the bytes are, a disk server sends everything that is
//! about names to the manager.

use std::sync::Arc;

use disk_server::DiskServer;
use manager::{Manager, OpenRequest};
use namespace::OpenWrite;
use types::direct::{DIRECT_KEY, STRIPED_KEY, UNITS_KEY, UnitAt};
use types::stale_replicas::{STALE_REPLICAS_KEY, StaleReplica};
use types::striping::{UNIT_KEY, UNIT_OF_KEY, UNIT_WRITER_KEY, parse_writer};
use types::{LocationPrefix, NsPath, ObjectId};
use wire::request::{Open, Request, StatOptions, Target};
use wire::{ErrorNumber, PathArg};

use crate::answer::Reply;
use crate::connection::Connection;
use crate::node::wall_clock;
use crate::refusal::{Redirect, Refusal};
use crate::third_party::Part;

impl Connection {
    /// What a manager has to know of who opens `path`, with the words of `target`.
    pub(crate) fn open_request(&self, path: &NsPath, target: &PathArg) -> OpenRequest {
        let text = |key: &[u8]| target.get(key).and_then(|value| std::str::from_utf8(value).ok());
        let list = |key: &[u8]| text(key).into_iter().flat_map(|list| list.split(',')).filter(|one| !one.is_empty());
        let tried: Vec<String> = list(b"tried").map(str::to_owned).collect();
        let from = self.session.peer.ip().to_canonical();
        OpenRequest {
            location: text(b"weir.place").and_then(|location| location.parse::<LocationPrefix>().ok()?.of_client(from)),
            announced: text(b"oss.asize").and_then(|len| len.parse().ok()),
            // XrdCl says why beside each that has answered.
            all_refused: !tried.is_empty() && list(b"triedrc").count() >= tried.len(),
            tried,
            stale_replicas: stale_replicas(target),
            is_direct: text(DIRECT_KEY.as_bytes()) == Some("1"),
            ..OpenRequest::new(wall_clock(), path.clone(), from, self.node.config.actor.clone())
        }
    }

    /// An open for reading at a manager.
    pub(crate) fn redirect_reader(&self, manager: &Arc<Manager>, r: &Open, path: &NsPath) -> Refusal {
        let partial = r.target.get(b"weir.partial") == Some(b"1");
        let unit = match unit_of(&r.target, UNIT_OF_KEY, |text| u64::from_str_radix(text, 16).ok().map(ObjectId)) {
            Ok(unit) => unit,
            Err(refusal) => return refusal,
        };
        match manager.open_read(&self.open_request(path, &r.target), path, partial, unit) {
            Ok(to) => redirect(to),
            Err(error) => Refusal::of_opening(path, &error),
        }
    }

    /// An open for writing at a manager.
    pub(crate) fn redirect_writer(&self, manager: &Arc<Manager>, target: &PathArg, op: OpenWrite, reply: Reply) {
        let path = op.path.clone();
        let unit = match unit_of(target, UNIT_WRITER_KEY, parse_writer) {
            Ok(unit) => unit,
            Err(refusal) => return reply.refuse(&refusal),
        };
        let open_request = self.open_request(&path, target);
        let answer = move |result: Result<manager::Redirect, manager::OpeningError>| {
            reply.refuse(&match result {
                Ok(to) => redirect(to),
                Err(error) => Refusal::of_opening(&path, &error),
            });
        };
        match unit {
            Some((unit, writing)) => {
                let which = (writing, unit, op.resume.is_some());
                manager.open_unit_write(open_request, which, answer);
            }
            None => manager.open_write(open_request, op, answer),
        }
    }

    /// A cut by name at a manager: the disk server that orders the changes of the file makes it.
    pub(crate) fn redirect_truncate(&self, manager: &Arc<Manager>, target: &PathArg, op: OpenWrite, reply: Reply) {
        // Whoever writes a file cuts it by its handle. But one who comes from a server that is gone goes on with what it had begun there.
        let goes_on = target.get(b"tried").is_some_and(|hosts| !hosts.is_empty());
        let own = self.node.read_names(|read| namespace::find_writer(read, &op.client, &op.path));
        match own {
            Ok(own) if own.is_empty() || goes_on => self.redirect_writer(manager, target, op, reply),
            Ok(_) => {
                let text = format!("Cannot truncate {}: you are writing it; truncate the open file", op.path);
                reply.refuse(&Refusal::new(ErrorNumber::FILE_LOCKED, text));
            }
            Err(error) => reply.refuse(&Refusal::of_namespace(&"truncate", &error)),
        }
    }

    /// Where a disk server sends a client that asks for what only the manager knows; `None`: it is to be answered here.
    pub(crate) fn at_manager(&self, disk: &DiskServer, request: &Request) -> Option<Refusal> {
        let is_about_names = match request {
            Request::Stat(r) => matches!(r.target, Target::Path(_)) && !r.options.has(StatOptions::VFS),
            Request::Truncate(r) => matches!(&r.target, Target::Path(target) if !is_permitted(target)),
            // Another server asks here for what a client has opened here for it, and knows of no manager.
            Request::Open(r) => !is_permitted(&r.target) && !matches!(Part::of(&r.target), Ok(Part::Fetch { .. })),
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
        if !is_about_names {
            return None;
        }
        Some(self.to_manager(disk))
    }

    /// The manager is to be asked.
    pub(crate) fn to_manager(&self, disk: &DiskServer) -> Refusal {
        match disk.manager() {
            Some((host, port)) => Refusal::Redirect(Redirect { host, port, opaque: String::new() }),
            None => Refusal::Wait { seconds: 1, text: "This disk server has not heard of its manager yet".into() },
        }
    }

    /// An open of a batch at a manager.
    pub(crate) fn redirect_entry(
        &self,
        manager: &Arc<Manager>,
        open_request: OpenRequest,
        op: OpenWrite,
        reply: Reply,
    ) {
        let path = op.path.clone();
        manager.open_write(open_request, op, move |result| {
            reply.refuse(&match result {
                Ok(to) => Refusal::Redirect(to.into()),
                Err(error) => Refusal::of_opening(&path, &error),
            });
        });
    }
}

/// What the client was told by disk servers that they have not.
pub(crate) fn stale_replicas(target: &PathArg) -> Vec<StaleReplica> {
    let text = target.get(STALE_REPLICAS_KEY.as_bytes()).and_then(|value| std::str::from_utf8(value).ok());
    text.map(StaleReplica::parse_all).unwrap_or_default()
}

/// Whether the client shows a permission.
fn is_permitted(target: &PathArg) -> bool {
    target.get(types::capability::OPAQUE_KEY.as_bytes()).is_some()
}

/// Sends a client away; one that can go to the units of a striped file is told what that is.
fn redirect(to: manager::Redirect) -> Refusal {
    let (striped, units) = (to.striped, UnitAt::show_all(&to.units));
    let mut to = Redirect::from(to);
    if let Some(striped) = striped {
        to.opaque.push_str(&format!("&{STRIPED_KEY}={}", striped.show()));
    }
    if let Some(units) = units {
        to.opaque.push_str(&format!("&{UNITS_KEY}={units}"));
    }
    Refusal::Redirect(to)
}

/// Which unit of a striped file an open means, and of which; `None`: the file.
fn unit_of<T>(target: &PathArg, key: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<(u8, T)>, Refusal> {
    let text = |key: &str| target.get(key.as_bytes()).map(|value| std::str::from_utf8(value).unwrap_or(""));
    let Some(unit) = text(UNIT_KEY) else { return Ok(None) };
    let unit = unit.parse().ok().zip(text(key).and_then(parse));
    unit.map(Some).ok_or_else(|| {
        let text = format!("To open a stripe unit, give its number in {UNIT_KEY} and its file in {key}");
        Refusal::new(ErrorNumber::ARG_INVALID, text)
    })
}

impl From<manager::Redirect> for Redirect {
    fn from(to: manager::Redirect) -> Self {
        let opaque = types::capability::words(&to.capability, to.object);
        Self { host: to.host, port: to.port, opaque }
    }
}
