//! stat and statx, and how an inode is shown.

use std::fmt::Display;

use namespace::{FileState, Inode, Kind, Want};
use types::{NsPath, ObjectId, PrincipalId, ReplicaId, Timestamp};
use wire::request::{Stat, StatOptions, Statx, Target};
use wire::response::{StatExtra, StatFlags, StatReply, VfsReply};
use wire::{ErrorNumber, StreamId};

use crate::config::Planted;
use crate::connection::Connection;
use crate::making::Making;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::requests::read::len_of;
use crate::session::Session;
use crate::writers::Owner;

const MIB: u64 = 1 << 20;

/// Checks a path from the wire.
pub(crate) fn parse_path(path: &[u8]) -> Result<NsPath, Refusal> {
    NsPath::parse(path).map_err(|error| Refusal::of_name(path, error))
}

/// As [`parse_path`], of a line of a list: a path, perhaps with its opaque part.
pub(crate) fn parse_line(line: &[u8]) -> Result<NsPath, Refusal> {
    parse_path(line.split(|&b| b == b'?').next().unwrap_or(line))
}

/// As [`parse_path`], of a name that is to be made. This protocol's listings end names at line ends, so that nobody
/// gets a name with one through this door.
pub(crate) fn parse_new_path(path: &[u8]) -> Result<NsPath, Refusal> {
    if path.contains(&b'\n') {
        let text = "A name with a line end cannot be listed over root://, so it cannot be made over it either";
        return Err(Refusal::new(ErrorNumber::ARG_INVALID, text));
    }
    parse_path(path)
}

impl Connection {
    /// kXR_stat of a path, of a handle, or of the file system.
    pub(crate) fn stat(&mut self, stream: StreamId, r: &Stat) -> Result<(), Refusal> {
        if r.options.has(StatOptions::VFS) {
            let space = self.node.space(&"stat the file system")?;
            let used = space.total.saturating_sub(space.free).saturating_mul(100).checked_div(space.total).unwrap_or(0);
            let reply = VfsReply {
                write_nodes: 1,
                write_free_mib: space.free.saturating_sub(space.floor) / MIB,
                write_used_percent: used,
                ..VfsReply::default()
            };
            return self.ok(stream, |out| reply.encode(out));
        }
        let reply = match &r.target {
            Target::Path(target) => {
                let path = parse_path(&target.path)?;
                let inode = self.node.stat(&"stat", &path)?;
                self.node.show_to(&self.session, &inode)
            }
            Target::Handle(handle) => {
                let file = self.file(*handle)?;
                let len = len_of(&file);
                match self.node.read_names(|read| namespace::stat_ino(read, file.ino)) {
                    Ok(inode) => StatReply { size: len, ..self.node.show(&inode) },
                    // An upload to a free name, or a file whose name has been removed: what the handle knows.
                    Err(_) => shown_bare(file.ino.0, len, file.mode, crate::node::wall_clock()),
                }
            }
        };
        self.ok(stream, |out| reply.encode(out))
    }

    /// kXR_statx: one byte for each path that says what kind of thing it is, and nothing else: clients compare it, as the stock server
    /// sends it.
    #[inline(never)] // see `dispatch`
    pub(crate) fn statx(&mut self, stream: StreamId, r: &Statx) -> Result<(), Refusal> {
        let mut flags = Vec::new();
        for line in r.lines() {
            let path = parse_line(line)?;
            let inode = self.node.stat(&"stat", &path)?;
            let kind = match inode.kind {
                Kind::Directory(_) => StatFlags::IS_DIR,
                Kind::Symlink(_) => StatFlags::OTHER,
                Kind::File(_) => StatFlags::NONE,
            };
            flags.push(u8::try_from(kind.0).unwrap_or(0));
        }
        self.ok(stream, |out| out.extend_from_slice(&flags))
    }
}

/// What can be said of a file without its record.
pub(crate) fn shown_bare(id: u64, size: u64, mode: u16, now: Timestamp) -> StatReply {
    let now = now.secs();
    let flags = StatFlags::READABLE | StatFlags::WRITABLE;
    StatReply {
        id,
        size,
        flags: if mode & 0o111 == 0 { flags } else { flags.with(StatFlags::XSET) },
        mtime: now,
        extra: Some(StatExtra { ctime: now, atime: now, mode, owner: "0".into(), group: "0".into() }),
    }
}

impl Node {
    /// What is at `path`; `verb` says for what it is looked up.
    pub(crate) fn stat(&self, verb: &dyn Display, path: &NsPath) -> Result<Inode, Refusal> {
        self.read_names(|read| namespace::stat(read, &self.config.actor, path))
            .map_err(|error| Refusal::of_namespace(verb, &error))
    }

    /// An inode as stat and dirlist show it. A file in the making is as long as its durable prefix, so that whoever
    /// follows it reads nothing that a power failure could undo.
    pub(crate) fn show(&self, inode: &Inode) -> StatReply {
        let allowed = |want| namespace::permit(&self.config.actor, &inode.access, want, &String::new).is_ok();
        let mut flags = StatFlags::NONE;
        let mut size = inode.len();
        match &inode.kind {
            Kind::Directory(_) => flags = flags.with(StatFlags::IS_DIR).with(StatFlags::XSET),
            Kind::Symlink(_) => flags = flags.with(StatFlags::OTHER),
            Kind::File(content) => {
                if inode.access.mode & 0o111 != 0 {
                    flags = flags.with(StatFlags::XSET);
                }
                if let FileState::Open(_) = content.state {
                    size = self.published_len(content.object);
                }
            }
        }
        let interrupted = inode.content().is_some_and(|content| matches!(content.state, FileState::Interrupted(_)));
        if allowed(Want::Read) && !interrupted {
            flags = flags.with(StatFlags::READABLE);
        }
        if allowed(Want::Write) {
            flags = flags.with(StatFlags::WRITABLE);
        }
        let extra = StatExtra {
            ctime: inode.ctime.secs(),
            atime: inode.atime.unwrap_or(inode.mtime).secs(),
            mode: inode.access.mode,
            owner: principal(inode.access.owner),
            group: principal(inode.access.group),
        };
        StatReply { id: inode.ino.0, size, flags, mtime: inode.mtime.secs(), extra: Some(extra) }
    }

    /// The same for `viewer`, to whom a file that it is writing itself is as long as what it was told is written.
    pub(crate) fn show_to(&self, viewer: &Session, inode: &Inode) -> StatReply {
        let shown = self.show(inode);
        let written =
            inode.content().filter(|content| matches!(content.state, FileState::Open(_) | FileState::Updating(_)));
        match written.and_then(|content| self.own_writer(viewer, content.object)) {
            Some(writer) => StatReply { size: writer.len(), ..shown },
            None => shown,
        }
    }

    /// The writer of `object`, if `viewer` is the session that writes it, or one of the same process. Such a one sees at once what it was
    /// told is written; all others see what is durable.
    pub(crate) fn own_writer(&self, viewer: &Session, object: ObjectId) -> Option<Making> {
        let (owner, lease) = {
            let writers = self.writers.lock();
            (writers.holder(object)?, writers.lease(object)?)
        };
        if owner != Owner(viewer.number) {
            let other = self.sessions.lock().get(&owner.0).cloned()?;
            if !viewer.is_of_process_of(&other) {
                return None;
            }
        }
        lease.writer()
    }

    /// The durable prefix of a object in the making.
    fn published_len(&self, object: types::ObjectId) -> u64 {
        let lease = self.writers.lock().lease(object);
        if let Some(writer) = lease.and_then(|lease| lease.writer()) {
            return if self.config.has(Planted::ShowUndurable) { writer.len() } else { writer.durable_prefix() };
        }
        let replica = ReplicaId::first(object);
        match self.store_of(replica).and_then(|store| store.status(replica)) {
            Ok(Some(status)) => match status.state {
                store::ReplicaState::InMaking { durable_prefix, .. } => durable_prefix,
                _ => status.len,
            },
            _ => 0,
        }
    }
}

/// There is no table of names yet.
fn principal(id: PrincipalId) -> String {
    id.to_string()
}
