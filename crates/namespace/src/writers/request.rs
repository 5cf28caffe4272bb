//! What an open for writing asks for, and what it answers.

use types::{BootId, ClientIdentity, GroupId, InSyncReplica, Ino, NsPath, ObjectId, Placement, ReplicaId, UploadId};

use crate::{NewStripe, WriterToken};

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

/// What the store says of a object that was being written when the machine stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vouched {
    /// Which.
    pub object: ObjectId,
    /// Every acknowledged byte is there.
    pub all_there: bool,
    /// Length of the prefix that is there, in bytes.
    pub kept_len: u64,
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
    /// The client starts its copy again (`tried=`), or repeats an open whose answer it did not get (the server sees its
    /// own client open the same name anew while the first handle is detached): it may take the place of its own
    /// unfinished file or upload, whose handle is fenced.
    pub restarted: bool,
    /// After a boot: what the store says of the writer's object ([`crate::find_writer`] tells which to ask about).
    pub vouched: Option<Vouched>,
    /// The wish to resume; with [`How::Update`] only.
    pub resume: Option<Resume>,
    /// Where a new content goes. Of one that is there already, those of its holders that are to take part in the writing: others are left out. A
    /// writer that is there keeps its own.
    pub placement: Placement,
    /// A new content is dealt out over units; `placement` is in [`GroupId::STRIPED`] then.
    pub stripe: Option<NewStripe>,
    /// A unit of what this one writes is to be opened again, with [`How::Update`]: only as long as it does, and the unit has a writer.
    pub unit_of: Option<WriterToken>,
    /// With [`How::Update`]: back to this writer of the client and to no other. It may have several under one path, as a file that is being written can
    /// be renamed, and another one be made in its place.
    pub only: Option<WriterToken>,
}

impl OpenWrite {
    /// Opens `path` for `client`, in this boot of the kernel, and wants nothing more: on a single node, with permission bits 0644 where it is made.
    #[must_use]
    pub fn new(path: NsPath, how: How, client: ClientIdentity, boot: BootId) -> Self {
        Self {
            path,
            how,
            mkpath: false,
            mode: 0o644,
            posc: false,
            client,
            boot,
            expected_len: None,
            restarted: false,
            vouched: None,
            resume: None,
            placement: Placement::single_node(),
            stripe: None,
            unit_of: None,
            only: None,
        }
    }
}

/// What was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenKind {
    /// A new file, visible at once; make the replica.
    New,
    /// An upload with a new object; make the replica.
    Upload(UploadId),
    /// A complete file's own object, to be changed in place.
    Update,
    /// The object that this client was writing (its old handle is fenced), or one resumed by wish. If it is an upload,
    /// which.
    Resumed(Option<UploadId>),
}

/// The writer that [`open_write`] made or found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedWrite {
    /// Names the writer; hand it to commit and interrupt.
    pub writer: WriterToken,
    /// The inode: the new one, or the one that is replaced or updated.
    pub ino: Ino,
    /// The content to write.
    pub object: ObjectId,
    /// Its replica on a single store.
    pub replica: ReplicaId,
    /// The group of stores that is to hold it.
    pub group: GroupId,
    /// What it is.
    pub kind: OpenKind,
    /// Committed length so far (0 for a new object or one in the making), in bytes.
    pub len: u64,
    /// Bodies that a restart gave up; their writers' handles are fenced and their deletion queued.
    pub dropped: Vec<ObjectId>,
    /// Those that take part in the writing, its primary first; none on a single node.
    pub in_sync: Vec<InSyncReplica>,
}
