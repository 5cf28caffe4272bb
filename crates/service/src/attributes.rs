//! What a caller is told of files and directories.

use std::fmt::Display;

use namespace::{FileState, Inode, Kind, Want};
use store::Space;
use types::{Ino, NsPath, ObjectId, PrincipalId, ReplicaId, Timestamp};

use crate::caller::Caller;
use crate::config::Planted;
use crate::error::Error;
use crate::making::Making;
use crate::names::wall_clock;
use crate::open_file::OpenFile;
use crate::service::Service;
use crate::session::Session;

/// What kind of thing a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// What is shown of a file or a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Bytes; of a file that is being written, those that a power failure could not undo, to its own writer those that it was told are written.
    pub len: u64,
    /// Permission bits.
    pub mode: u16,
    /// Whose it is.
    pub owner: PrincipalId,
    /// Its group.
    pub group: PrincipalId,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// Last read, as far as it is known.
    pub atime: Timestamp,
    /// The caller may read it, and it is not interrupted.
    pub is_readable: bool,
    /// The caller may change it.
    pub is_writable: bool,
}

impl Stat {
    /// What can be said of a file without its record.
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
        }
    }
}

impl Service {
    /// What is at `path`, as `session` sees it.
    ///
    /// # Errors
    /// Nothing is there, or it may not be seen. `verb` says for what it is looked up.
    pub fn stat(&self, session: &Session, verb: &dyn Display, path: &NsPath) -> Result<Stat, Error> {
        let caller = session.caller();
        let inode = self.inode_at(&caller, verb, path)?;
        Ok(self.show_to(session, &caller, &inode))
    }

    /// What kind of thing is at `path`, and whether it has a content.
    ///
    /// # Errors
    /// As [`Service::stat`].
    pub fn kind(&self, caller: &Caller, verb: &dyn Display, path: &NsPath) -> Result<FileKind, Error> {
        self.inode_at(caller, verb, path).map(|inode| kind_of(&inode))
    }

    /// An open file, whatever names it has now.
    #[must_use]
    pub fn stat_file(&self, caller: &Caller, file: &OpenFile) -> Stat {
        let len = file.len();
        match self.names.read(|read| namespace::stat_ino(read, file.ino)) {
            Ok(inode) => Stat { len, ..self.show(caller, &inode) },
            // An upload to a free name, or a file whose name has been removed: what the handle knows.
            Err(_) => Stat::bare(file.ino, len, file.mode, wall_clock()),
        }
    }

    /// Sizes of the file systems together; `doing` says what for.
    ///
    /// # Errors
    /// One could not be asked.
    pub fn space(&self, doing: &dyn Display) -> Result<Space, Error> {
        self.stores.space_for(doing)
    }

    /// What is at `path`; `verb` says for what it is looked up.
    pub(crate) fn inode_at(&self, caller: &Caller, verb: &dyn Display, path: &NsPath) -> Result<Inode, Error> {
        if let Some(elsewhere) = self.names_elsewhere() {
            return Err(elsewhere);
        }
        self.names
            .read(|read| namespace::stat(read, &caller.actor(), path))
            .map_err(|error| Error::of_namespace(verb, &error))
    }

    /// An inode as it is shown. A file in the making is as long as its durable prefix, so that whoever
    /// follows it reads nothing that a power failure could undo.
    pub(crate) fn show(&self, caller: &Caller, inode: &Inode) -> Stat {
        let actor = caller.actor();
        let allowed = |want| namespace::permit(&actor, &inode.access, want, &String::new).is_ok();
        let mut len = inode.len();
        if let Kind::File(content) = &inode.kind
            && let FileState::Open(_) = content.state
        {
            len = self.published_len(content.object);
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
            is_readable: allowed(Want::Read) && !interrupted,
            is_writable: allowed(Want::Write),
        }
    }

    /// The same for `viewer`, to whom a file that it is writing itself is as long as what it was told is written.
    pub(crate) fn show_to(&self, viewer: &Session, caller: &Caller, inode: &Inode) -> Stat {
        let shown = self.show(caller, inode);
        let written =
            inode.content().filter(|content| matches!(content.state, FileState::Open(_) | FileState::Updating(_)));
        match written.and_then(|content| self.own_writer(viewer, content.object)) {
            Some(writer) => Stat { len: writer.len(), ..shown },
            None => shown,
        }
    }

    /// The writer of `object`, if `viewer` is the session that writes it, or one of the same process. Such a one sees at once what it was
    /// told is written; all others see what is durable.
    pub(crate) fn own_writer(&self, viewer: &Session, object: ObjectId) -> Option<Making> {
        let (owner, lease) = {
            let writers = self.writes.lock();
            (writers.holder(object)?, writers.lease(object)?)
        };
        if owner != viewer.owner() {
            let other = self.sessions.get(owner.0)?;
            if !viewer.is_of_process_of(&other) {
                return None;
            }
        }
        lease.writer()
    }

    /// The durable prefix of a object in the making.
    fn published_len(&self, object: ObjectId) -> u64 {
        let lease = self.writes.lock().lease(object);
        if let Some(writer) = lease.and_then(|lease| lease.writer()) {
            return if self.settings.has(Planted::ShowUndurable) { writer.len() } else { writer.durable_prefix() };
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
