//! Attributes of files and directories.

use std::fmt::Display;

use namespace::{AccessKind, Content, FileState, Inode, Kind};
use store::Space;
use types::{Ino, NsPath, ObjectId, PrincipalId, ReplicaId, Timestamp};

use crate::caller::Caller;
use crate::config::PlantedBug;
use crate::error::Error;
use crate::names::wall_clock;
use crate::open_file::OpenFile;
use crate::service::{Role, Service};
use crate::session::Session;
use crate::write_target::WriteTarget;
use crate::writers::Owner;

/// The type of a file-system entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// The attributes of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// The inode number.
    pub ino: Ino,
    /// The type.
    pub kind: FileKind,
    /// The length in bytes. For an open write it is the length that survives a power failure. Its own writer sees
    /// everything that it has written.
    pub len: u64,
    /// The permission bits.
    pub mode: u16,
    /// The owner.
    pub owner: PrincipalId,
    /// The group.
    pub group: PrincipalId,
    /// The last change of the data.
    pub mtime: Timestamp,
    /// The last change of the attributes.
    pub ctime: Timestamp,
    /// The last read, if known.
    pub atime: Timestamp,
    /// Whether the caller may read it and it is not interrupted.
    pub is_readable: bool,
    /// Whether the caller may change it.
    pub is_writable: bool,
    /// Whether it is a new file that another client is writing, or whose writer has not come back yet. The attributes of
    /// an open file do not say so.
    pub is_unfinished: bool,
}

impl Stat {
    /// The attributes of a file whose inode is not available.
    pub(crate) fn bare(ino: Ino, len: u64, mode: u16, now: Timestamp) -> Self {
        Self {
            ino,
            kind: FileKind::File,
            len,
            mode,
            owner: PrincipalId(0),
            group: PrincipalId(0),
            mtime: now,
            ctime: now,
            atime: now,
            is_readable: true,
            is_writable: true,
            is_unfinished: false,
        }
    }
}

impl Service {
    /// The attributes of `path`, as `session` sees them. `verb` names the operation in errors.
    ///
    /// # Errors
    /// The path does not exist, or the caller may not look it up.
    pub fn stat(&self, session: &Session, verb: &dyn Display, path: &NsPath) -> Result<Stat, Error> {
        let caller = session.caller();
        let inode = self.with_known_length(self.inode_at(&caller, verb, path)?)?;
        Ok(self.show_to(session, &caller, &inode))
    }

    /// The attributes of `path` as everybody sees them: an open write has the length of its durable prefix even for its
    /// own writer. `verb` names the operation in errors.
    ///
    /// # Errors
    /// The same as [`Service::stat`].
    pub fn published_stat(&self, caller: &Caller, verb: &dyn Display, path: &NsPath) -> Result<Stat, Error> {
        let inode = self.with_known_length(self.inode_at(caller, verb, path)?)?;
        Ok(self.show(caller, &inode))
    }

    /// The type of `path`.
    ///
    /// # Errors
    /// The same as [`Service::stat`].
    pub fn kind(&self, caller: &Caller, verb: &dyn Display, path: &NsPath) -> Result<FileKind, Error> {
        self.inode_at(caller, verb, path).map(|inode| kind_of(&inode))
    }

    /// The attributes of an open file, whatever its names are now.
    #[must_use]
    pub fn stat_file(&self, caller: &Caller, file: &OpenFile) -> Stat {
        let len = file.len();
        match self.names.read(|read| namespace::stat_ino(read, file.ino)) {
            Ok(inode) => Stat { len, is_unfinished: false, ..self.show(caller, &inode) },
            // A hidden upload, or a file whose name has been removed: use the values of the handle.
            Err(_) => Stat::bare(file.ino, len, file.mode, wall_clock()),
        }
    }

    /// The total space of the file systems. `doing` names the operation in errors.
    ///
    /// # Errors
    /// The space of a file system cannot be read.
    pub fn space(&self, doing: &dyn Display) -> Result<Space, Error> {
        self.stores.space_for(doing)
    }

    /// The inode of `path`. `verb` names the operation in errors.
    pub(crate) fn inode_at(&self, caller: &Caller, verb: &dyn Display, path: &NsPath) -> Result<Inode, Error> {
        if let Some(elsewhere) = self.reads_elsewhere(caller) {
            return Err(elsewhere);
        }
        let found = self.names.read(|read| namespace::stat(read, &caller.actor(), path));
        let found = self.unless_active_knows_more(found.map_err(|error| Error::of_namespace(verb, &error)));
        self.audit_read(caller, verb, path, &found);
        found
    }

    /// The attributes of an inode. An open write has the length of its durable prefix. So a client that follows the
    /// file reads nothing that a power failure could undo.
    pub(crate) fn show(&self, caller: &Caller, inode: &Inode) -> Stat {
        let actor = caller.actor();
        let allowed = |want| namespace::allows(&actor, &inode.access, want);
        let (mut len, mut is_unfinished) = (inode.len(), false);
        if let Kind::File(content) = &inode.kind
            && let FileState::Open(_) = content.state
        {
            (len, is_unfinished) = (self.published_len(content), true);
        }
        let interrupted = inode.content().is_some_and(|content| matches!(content.state, FileState::Interrupted(_)));
        Stat {
            ino: inode.ino,
            kind: kind_of(inode),
            len,
            mode: inode.access.mode,
            owner: inode.access.owner,
            group: inode.access.group,
            mtime: inode.mtime,
            ctime: inode.ctime,
            atime: inode.atime.unwrap_or(inode.mtime),
            is_readable: allowed(AccessKind::Read) && !interrupted,
            is_writable: allowed(AccessKind::Write),
            is_unfinished,
        }
    }

    /// The same, as `viewer` sees it: a session sees everything that it has written itself.
    pub(crate) fn show_to(&self, viewer: &Session, caller: &Caller, inode: &Inode) -> Stat {
        let shown = self.show(caller, inode);
        let written =
            inode.content().filter(|content| matches!(content.state, FileState::Open(_) | FileState::Updating(_)));
        match written.and_then(|content| self.own_writer(viewer, content.object)) {
            Some(writer) => Stat { len: writer.len(), is_unfinished: false, ..shown },
            None => shown,
        }
    }

    /// The writer of `object`, if `viewer` is its session or a session of the same process. Such a session sees all
    /// written data at once; others see only durable data.
    pub(crate) fn own_writer(&self, viewer: &Session, object: ObjectId) -> Option<WriteTarget> {
        let (owner, lease) = {
            let writers = self.writes.lock();
            (writers.holder(object)?, writers.lease(object)?)
        };
        let mut sessions: Vec<Owner> = lease.sharers.lock().sessions().map(|(session, _)| session).collect();
        sessions.push(owner);
        let is_of_viewer = |session: &Owner| {
            let other = || self.sessions.get(session.0);
            *session == viewer.owner() || other().is_some_and(|other| viewer.is_of_process_of(&other))
        };
        if sessions.iter().any(is_of_viewer) { lease.writer() } else { None }
    }

    /// The length of the durable prefix of an open write.
    fn published_len(&self, content: &Content) -> u64 {
        let object = content.object;
        match &self.role {
            // Without an answer the length is unknown.
            Role::Manager(manager) => return manager.open_write_len(content).unwrap_or(0),
            // In a listing.
            Role::Standby(standby) => {
                let known = standby.reads().and_then(|manager| manager.open_write_len(object));
                return known.unwrap_or(content.len);
            }
            Role::Alone { .. } | Role::Disk(_) => {}
        }
        let lease = self.writes.lock().lease(object);
        if let Some(writer) = lease.and_then(|lease| lease.writer()) {
            return if self.settings.has(PlantedBug::ShowUndurable) { writer.len() } else { writer.durable_prefix() };
        }
        self.stores.durable_len(ReplicaId::first(object)).ok().flatten().unwrap_or(0)
    }
}

fn kind_of(inode: &Inode) -> FileKind {
    match inode.kind {
        Kind::Directory(_) => FileKind::Directory,
        Kind::Symlink(_) => FileKind::Symlink,
        Kind::File(_) => FileKind::File,
    }
}
