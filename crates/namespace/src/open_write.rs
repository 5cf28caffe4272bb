//! Opening for writing: new files, uploads, updates in place, and the recovery of a writer that lost its connection.

use kv::Txn;
use types::{BodyId, BootId, ClientIdentity, GroupId, Ino, NsPath, PieceId, UploadId};

use crate::{Context, NsError, OpTag, Operation, WriterToken};

/// What the client wants of the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The name must be free (kXR_new).
    NewOnly,
    /// Take the place of what is there, if anything is (kXR_delete). What is there stands and is served until commit.
    Replace,
    /// Change what is there, or append to it (kXR_open_updt, kXR_open_apnd without kXR_new); also how stock clients
    /// come back to a writer that lost its connection.
    Update,
}

/// The explicit wish to go on with something interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// The interrupted file at the path.
    Visible,
    /// A kept upload.
    Upload(UploadId),
}

/// Opens for writing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenWrite {
    /// The file.
    pub path: NsPath,
    /// New, replace or update.
    pub how: How,
    /// Make the directories on the way (kXR_mkpath).
    pub mkpath: bool,
    /// Permission bits of a new file.
    pub mode: u16,
    /// Visible only when closed (kXR_posc): always an upload.
    pub posc: bool,
    /// Who writes.
    pub client: ClientIdentity,
    /// This kernel's boot.
    pub boot: BootId,
    /// The announced length (`oss.asize`), in bytes.
    pub expected_len: Option<u64>,
    /// The client starts its copy again (`tried=`): it may take the place of its own unfinished file or upload.
    pub restarted: bool,
    /// After a boot: the body of which the store says that no acknowledged byte was lost.
    pub vouched: Option<BodyId>,
    /// The wish to resume; with [`How::Update`] only.
    pub resume: Option<Resume>,
}

/// What was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenKind {
    /// A new file, visible at once; make the piece.
    New,
    /// An upload with a new body; make the piece.
    Upload(UploadId),
    /// A complete file's own body, to be changed in place.
    Update,
    /// The body that this client was writing (its old handle is fenced), or one resumed by wish. If it is an upload,
    /// which.
    Resumed(Option<UploadId>),
}

/// The writer that [`open_write`] made or found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenedWrite {
    /// Names the writer; hand it to commit and interrupt.
    pub writer: WriterToken,
    /// The inode: the new one, or the one that is replaced or updated.
    pub ino: Ino,
    /// The content to write.
    pub body: BodyId,
    /// Its piece on a single store.
    pub piece: PieceId,
    /// The group of stores that is to hold it.
    pub group: GroupId,
    /// What it is.
    pub kind: OpenKind,
    /// Committed length so far (0 for a new body or one in the making), in bytes.
    pub len: u64,
    /// A body that a restart gave up; its writer's handle is fenced and its deletion queued.
    pub dropped: Option<BodyId>,
}

/// See [`OpenWrite`].
pub fn open_write(txn: &mut dyn Txn, ctx: &Context, request: &OpenWrite) -> Result<OpenedWrite, NsError> {
    todo!("{request:?} {ctx:?} {}", txn.get(b"")?.is_some())
}

impl Operation for OpenWrite {
    const TAG: OpTag = OpTag::OpenWrite;
    type Reply = OpenedWrite;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<OpenedWrite, NsError> {
        open_write(txn, ctx, self)
    }
}
