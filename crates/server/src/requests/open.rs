//! open: for reading at once, from a view of the namespace and the store; for writing through the committer, whose
//! completion makes the replica and answers.

mod reading;
mod verified;
mod writing;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use namespace::{How, OpenWrite, Resume};
use types::capability::CONTENT_KEY;
use types::{ClientIdentity, NsPath, UploadId};
use wire::request::{Open, OpenOptions, OpenOptions2};
use wire::{ErrorNumber, StreamId};

use crate::connection::{Connection, Stop};
use crate::endings;
use crate::handles::NoHandle;
use crate::node::Role;
use crate::open_file::{Copying, OpenFile};
use crate::refusal::Refusal;
use crate::requests::{own, parse_new_path, parse_path};
use crate::third_party::{Grant, OpenRequest, Part, PullSource, addresses_of};
use reading::Reading;
use writing::Opening;

/// From this version on a client may mean what stands in the reserved bytes of an open.
const OPTIONS2_VERSION: u32 = 0x520;
/// Files made without permission bits get these.
const FILE_MODE: u16 = 0o644;

impl Connection {
    /// kXR_open.
    // What it has on the stack would otherwise be on that of each connection, idle ones included.
    #[inline(never)]
    pub(crate) fn open(&mut self, stream: StreamId, r: &Open) -> Result<Result<(), Refusal>, Stop> {
        let has = |option| r.options.has(option);
        let makes = has(OpenOptions::NEW) || has(OpenOptions::DELETE);
        let parsed = if makes { parse_new_path(&r.target.path) } else { parse_path(&r.target.path) };
        let path = match parsed {
            Ok(path) => path,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // A client that comes back to the manager brings along what it was given there before.
        if let Role::Disk(_) = &self.node.role
            && let Some(capability) = r.target.get(types::capability::OPAQUE_KEY.as_bytes())
        {
            return self.open_granted(stream, r, path, capability);
        }
        let part = match Part::of(&r.target) {
            Ok(part) => part,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let template = match self.template_of(r) {
            Ok(template) => template,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let writing =
            [OpenOptions::NEW, OpenOptions::DELETE, OpenOptions::UPDATE, OpenOptions::APPEND, OpenOptions::WRITE_ONLY];
        if writing.into_iter().any(has) || (!has(OpenOptions::READ) && self.writes(&path)) {
            return match part {
                Part::None => self.open_to_write(stream, r, path, None, template),
                _ if template.is_some() => {
                    let text = "A third-party copy gets its data from another server, not from a template";
                    Ok(Err(Refusal::new(ErrorNumber::ARG_INVALID, text)))
                }
                Part::Target { .. } if !makes => Ok(Err(no_new_target())),
                Part::Target { key, server, path: source } => {
                    let source = self.source_of(r, &path, key, server, source);
                    source.map_or_else(
                        |refusal| Ok(Err(refusal)),
                        |source| self.open_to_write(stream, r, path, Some(source), None),
                    )
                }
                Part::Source { .. } | Part::Fetch { .. } => Ok(Err(source_to_write())),
            };
        }
        if let Role::Manager(manager) = &self.node.role {
            return Ok(Err(self.redirect_reader(manager, r, &path)));
        }
        if let (Role::Disk(_), Part::Fetch { key, origin }) = (&self.node.role, &part) {
            return self.fetch_of_granted(stream, r, path, (key, origin));
        }
        let opening = Reading {
            node: self.node.clone(),
            session: self.session.clone(),
            path,
            partial: r.target.get(b"weir.partial") == Some(b"1"),
            with_stat: self.wants_stat(r),
        };
        match part {
            Part::None | Part::Target { .. } => {
                let opened = opening.open(Copying::No);
                Ok(opened.and_then(|opened| self.ok(stream, |out| opened.encode(out))))
            }
            Part::Source { key, dst } => {
                let reply = self.hand_on(stream)?;
                let client = self.identity();
                let origin = format!("{}.{}", client.user, client.pid).into_bytes();
                self.node.on_worker(reply, move |reply| {
                    let grant =
                        addresses_of(&dst).map(|to| Grant { path: opening.path.clone(), to, origin, permission: None });
                    let allowed = grant.and_then(|grant| opening.node.rendezvous.allow(key, grant));
                    let copying = allowed.map(|registration| Copying::Allowed { _registration: registration });
                    opening.answer(copying, reply);
                });
                Ok(Ok(()))
            }
            Part::Fetch { key, origin } => {
                let reply = self.hand_on(stream)?;
                let open_request = OpenRequest { path: opening.path.clone(), from: self.session.peer.ip(), origin };
                let rendezvous = Arc::clone(&self.node.rendezvous);
                let then = Box::new(move |allowed: Result<Option<disk_server::VerifiedCapability>, Refusal>| {
                    opening.answer(allowed.map(|_| Copying::ForAnother), reply);
                });
                rendezvous.ask(&key, open_request, Instant::now(), then);
                Ok(Ok(()))
            }
        }
    }

    /// Where a third-party copy is to be fetched from.
    fn source_of(
        &self,
        r: &Open,
        target: &NsPath,
        key: String,
        server: String,
        path: Option<String>,
    ) -> Result<PullSource, Refusal> {
        let path = path.unwrap_or_else(|| target.to_string());
        if !self.node.pulls.is_offered() {
            // XrdCl looks for these words to fall back to a copy through itself.
            return Err(Refusal::new(ErrorNumber::FS_ERROR, format!("Unable to open {target}; tpc not supported")));
        }
        self.node.pulls.allow(&server)?;
        let client = self.identity();
        let origin = format!("{}.{}", client.user, client.pid);
        let client = self.session.peer.ip().to_canonical();
        Ok(PullSource { server, path, key, origin, client, expected_len: announced_len(r) })
    }

    /// Whether this client has this file in the making. XrdCl opens again what it had opened with `new` alone by
    /// asking for nothing: neither to read nor to update.
    fn writes(&self, path: &NsPath) -> bool {
        let client = self.identity();
        let found = self.node.read_names(|read| namespace::find_writer(read, &client, path));
        found.is_ok_and(|found| !found.is_empty())
    }

    fn open_to_write(
        &mut self,
        stream: StreamId,
        r: &Open,
        path: NsPath,
        fetched: Option<PullSource>,
        template: Option<Arc<OpenFile>>,
    ) -> Result<Result<(), Refusal>, Stop> {
        let how = if r.options.has(OpenOptions::DELETE) {
            How::Replace
        } else if r.options.has(OpenOptions::NEW) {
            How::NewOnly
        } else {
            How::Update
        };
        if how != How::Update && self.node.floor_reached.load(Ordering::Relaxed) {
            let text = format!("Cannot open {path}: no space left for new data; remove files or add space");
            return Ok(Err(Refusal::new(ErrorNumber::NO_SPACE, text)));
        }
        let client = Arc::new(self.identity());
        let expected_len = announced_len(r);
        // Who comes back to what it writes has room already; told to wait, it would lose it.
        let room = if how == How::Update && self.writes(&path) {
            None
        } else {
            let room = self.node.writer_memory.take(self.session.peer.ip(), expected_len);
            if room.is_none() {
                let text = format!("Cannot open {path} now: the memory for open writes is used up");
                return Ok(Err(Refusal::Wait { seconds: 3, text }));
            }
            room
        };
        let resume = match number_of(r, b"weir.upload") {
            Some(upload) => Some(Resume::Upload(UploadId(upload))),
            None => (r.target.get(b"weir.resume") == Some(b"1")).then_some(Resume::Visible),
        };
        let op = OpenWrite {
            path,
            how,
            // The stock server takes `async`, which all its clients send, for `mkpath`: whoever makes a file over root:// counts on it.
            mkpath: r.options.has(OpenOptions::MKPATH) || r.options.has(OpenOptions::ASYNC),
            mode: mode_of(r),
            // What is fetched shows when it is whole.
            posc: r.options.has(OpenOptions::POSC) || fetched.is_some(),
            client: (*client).clone(),
            boot: self.node.config.boot,
            // After a restart nobody remembers that it was being filled: no length that it can have must make it whole.
            expected_len: if fetched.is_some() || template.is_some() { Some(u64::MAX) } else { expected_len },
            // Who was sent somewhere by a redirect of before, and comes here again with the same request, finds its own beginning: it was sent back, as
            // that server has begun anew, or could not reach it.
            restarted: r.target.get(b"tried").is_some_and(|hosts| !hosts.is_empty())
                || r.target.get(CONTENT_KEY.as_bytes()).is_some(),
            vouched: None,
            resume: if how == How::Update { resume } else { None },
            placement: types::Placement::single_node(),
            stripe: None,
            unit_of: None,
            only: None,
        };
        if let Role::Manager(manager) = &self.node.role {
            if template.is_some() {
                return Ok(Err(Refusal::unsupported("To clone a file, in a cluster,")));
            }
            let manager = Arc::clone(manager);
            let reply = self.hand_on(stream)?;
            self.redirect_writer(&manager, &r.target, op, reply);
            return Ok(Ok(()));
        }
        let mut reply = self.hand_on(stream)?;
        let (verified, backfill) = match template {
            Some(template) => {
                Self::put_off_template(&mut reply, &template);
                let (verified, backfill) = sync_channel(1);
                (Some(verified), Some((template, backfill)))
            }
            None => (None, None),
        };
        let opening = Opening {
            node: self.node.clone(),
            session: self.session.clone(),
            client,
            op,
            with_stat: self.wants_stat(r),
            room,
            fetched,
            mtime: own::mtime_of(&r.target),
            verified,
        };
        if how == How::Update && self.node.old_boots.load(Ordering::Relaxed) {
            self.node.on_worker(reply, move |reply| opening.after_a_boot(reply));
        } else if how != How::Update && opening.has_own_detached_uploads() {
            self.node.on_worker(reply, move |reply| {
                endings::end_own_uploads(&opening.node, &opening.client, &opening.op.path);
                opening.submit(reply);
            });
        } else {
            opening.submit(reply);
        }
        if let Some((template, backfill)) = backfill {
            self.out.leave()?;
            let opened = backfill.recv();
            self.out.back();
            // Otherwise it was refused.
            if let Ok((opened, reply)) = opened {
                self.fill_from(template, opened, reply)?;
            }
        }
        Ok(Ok(()))
    }

    fn options2(&self, r: &Open) -> OpenOptions2 {
        if self.client_version < OPTIONS2_VERSION { OpenOptions2::NONE } else { r.options2 }
    }

    fn wants_stat(&self, r: &Open) -> bool {
        r.options.has(OpenOptions::RETSTAT) || self.options2(r).has(OpenOptions2::RETSTATX)
    }

    /// The file whose content a new one is to have, checked as the stock server does. Where a new one is to lie on the same file system as
    /// an open one, it does: there is one.
    fn template_of(&self, r: &Open) -> Result<Option<Arc<OpenFile>>, Refusal> {
        let options = self.options2(r);
        let (dup, samefs) = (options.has(OpenOptions2::DUP), options.has(OpenOptions2::SAMEFS));
        if !dup && !samefs {
            return Ok(None);
        }
        let invalid = |text| Err(Refusal::new(ErrorNumber::ARG_INVALID, text));
        if dup && !r.options.has(OpenOptions::UPDATE) && !r.options.has(OpenOptions::WRITE_ONLY) {
            return invalid("A file that gets the data of another one must be opened for writing");
        }
        if !r.options.has(OpenOptions::NEW) {
            return invalid("Only a new file can get the data, or the stores, of another one");
        }
        let template = self.file(r.template)?;
        Ok(dup.then_some(template))
    }

    /// Who the client said it is; login comes before everything that needs it.
    pub(crate) fn identity(&self) -> ClientIdentity {
        self.session.client().map(|client| (*client).clone()).unwrap_or_default()
    }
}

fn no_new_target() -> Refusal {
    Refusal::new(ErrorNumber::ARG_INVALID, "The target of a third-party copy is a new file, or replaces one")
}

fn source_to_write() -> Refusal {
    Refusal::new(ErrorNumber::ARG_INVALID, "The source of a third-party copy is opened for reading")
}

/// A number in the opaque part.
fn number_of(r: &Open, key: &[u8]) -> Option<u64> {
    std::str::from_utf8(r.target.get(key)?).ok()?.parse().ok()
}

/// The length that the client announces.
fn announced_len(r: &Open) -> Option<u64> {
    number_of(r, b"oss.asize")
}

/// The permission bits of a file that is made.
fn mode_of(r: &Open) -> u16 {
    mode_or_usual(r.mode.0)
}

/// The same of any.
pub(super) fn mode_or_usual(mode: u16) -> u16 {
    if mode & 0o777 == 0 { FILE_MODE } else { mode & 0o777 }
}

fn no_handle(reason: NoHandle) -> Refusal {
    let text = match reason {
        NoHandle::SessionFull(limit) => format!("This session has {limit} open files, which is the limit; close some"),
        NoHandle::ServerFull(limit) => {
            return Refusal::Wait {
                seconds: 5,
                text: format!(
                    "This machine has its share of the {limit} files that all clients together may have open"
                ),
            };
        }
        NoHandle::Ended => "The session has ended".into(),
    };
    Refusal::new(ErrorNumber::NO_MEMORY, text)
}
