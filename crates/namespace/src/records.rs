//! The records beside the inode: writers, uploads, ended writers, bodies.

use types::{
    BodyId, BootId, ClientIdentity, ErrorCode, GroupId, Ino, PieceId, PrincipalId, SessionId, Timestamp, UploadId,
};

use crate::{Sums, WriterKey, WriterToken};

/// What somebody who writes is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriterKind {
    /// Writes a new file, visible as it grows.
    New,
    /// Changes a complete file in place.
    Update,
    /// Writes a content that is not visible yet.
    Upload(UploadId),
}

/// `W`: open for writing. Goes with the commit or the interrupted mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriterRecord {
    /// The first half of the key.
    pub key: WriterKey,
    /// The content being written.
    pub body: BodyId,
    /// Raised by each re-open; a handle with a lower one is fenced.
    pub epoch: u32,
    /// What it does.
    pub kind: WriterKind,
    /// The inode; of an upload the one that it will replace or make.
    pub ino: Ino,
    /// The run of the server that it is attached to.
    pub session: SessionId,
    /// The boot whose kernel holds its unsynced bytes.
    pub boot: BootId,
    /// Who writes.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
    /// The length that the client announced, in bytes.
    pub expected_len: Option<u64>,
    /// When it was opened first.
    pub opened: Timestamp,
}

impl WriterRecord {
    /// What [`crate::Commit`] and [`crate::Interrupt`] take.
    #[must_use]
    pub fn token(&self) -> WriterToken {
        WriterToken { key: self.key, body: self.body, epoch: self.epoch }
    }

    /// The piece on a single store.
    #[must_use]
    pub fn piece(&self) -> PieceId {
        PieceId::first(self.body)
    }
}

/// State of an upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadState {
    /// Somebody writes it.
    InMaking,
    /// Its writer went away.
    Interrupted,
    /// It was complete, and its commit was refused for this reason.
    Refused(ErrorCode),
}

/// `U`: a content in the making, or kept after it could not become visible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadRecord {
    /// Its number; the same as its body's.
    pub upload: UploadId,
    /// The content.
    pub body: BodyId,
    /// State.
    pub state: UploadState,
    /// The directory that it shall appear in.
    pub parent: Ino,
    /// The name that it shall get.
    pub name: Vec<u8>,
    /// The inode that it replaces; `None` if the name was free.
    pub replaces: Option<Ino>,
    /// The first half of its writer's key.
    pub writer: WriterKey,
    /// Who writes or wrote it.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
    /// The owner of the new file.
    pub owner: PrincipalId,
    /// The group of the new file.
    pub group: PrincipalId,
    /// The mode of the new file.
    pub mode: u16,
    /// When it began.
    pub created: Timestamp,
    /// When it may be forgotten; `None` while it is in the making.
    pub deadline: Option<Timestamp>,
    /// Bytes kept, once it is not in the making any more.
    pub kept_len: u64,
    /// Checksums, if it was complete.
    pub sums: Option<Sums>,
}

/// How a writer ended that its client may not know has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndedHow {
    /// Marked interrupted.
    Interrupted,
    /// Completed by the server when the grace period ended.
    Completed,
    /// Thrown away.
    Dropped,
}

/// `Y`: an ended writer, remembered so that its client, recovering late, does not write into what is visible now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedWriter {
    /// The key.
    pub key: WriterKey,
    /// The content that it wrote.
    pub body: BodyId,
    /// How it ended.
    pub how: EndedHow,
    /// Until when this is remembered.
    pub until: Timestamp,
    /// Who it was.
    pub client: ClientIdentity,
    /// The path as the client gave it.
    pub path: Vec<u8>,
}

/// `B`: a committed (or interrupted and visible) body; by these a group's bodies are enumerated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyRecord {
    /// The group of stores.
    pub group: GroupId,
    /// The body.
    pub body: BodyId,
    /// The inode whose content it is.
    pub ino: Ino,
    /// Length in bytes.
    pub len: u64,
    /// The inode's generation when this was written.
    pub generation: u32,
    /// The writer's epoch.
    pub epoch: u32,
}
