//! The request and the answer of an open for writing.

use types::{BootId, ClientIdentity, GroupId, InSyncReplica, Ino, NsPath, ObjectId, Placement, ReplicaId, UploadId};

use crate::{NewStripe, PathOperation, WriterToken};

/// What makes a file, or replaces one that is not complete yet.
pub(crate) const MAKES: &[PathOperation] = &[PathOperation::CreateFile, PathOperation::ModifyFile];

/// How to treat the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteMode {
    /// The name must be free (kXR_new).
    NewOnly,
    /// Replace an existing file (kXR_delete). It stays visible and is served until the commit.
    Replace,
    /// Change or append to an existing file (kXR_open_updt, kXR_open_apnd without kXR_new). Stock clients also come back this way to a writer that
    /// lost its connection.
    Update,
}

/// The explicit wish to resume an interrupted write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// The interrupted file at the path.
    Visible,
    /// A kept upload.
    Upload(UploadId),
}

/// The store's report about an object with an open write when the machine stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredWrite {
    /// The object.
    pub object: ObjectId,
    /// The store has every acknowledged byte.
    pub all_there: bool,
    /// Length of the intact prefix, in bytes.
    pub kept_len: u64,
}

/// Opens a file for writing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenWrite {
    /// The file.
    pub path: NsPath,
    /// New, replace or update.
    pub how: WriteMode,
    /// Create the missing directories of the path (kXR_mkpath).
    pub mkpath: bool,
    /// Permission bits of a new file. With [`crate::USUAL_MODE`] if nobody asked for them.
    pub mode: u16,
    /// Make the file visible only at the close (kXR_posc): always an upload.
    pub posc: bool,
    /// The client that writes.
    pub client: ClientIdentity,
    /// This kernel's boot.
    pub boot: BootId,
    /// The announced length (`oss.asize`), in bytes.
    pub expected_len: Option<u64>,
    /// The client restarts its copy (`tried=`), or repeats an open whose answer it did not get. In the second case the server sees the same client
    /// open the name again while the first handle is detached. The open may replace the client's own unfinished file or upload, and fences its
    /// handle.
    pub restarted: bool,
    /// If the server may carry out a later request before this one (a manager first makes the group of a new file): the lowest number of an object that
    /// was made after the server had received it ([`crate::IdSource::upcoming_object`]). A restart that the same client has overtaken with a later open
    /// would drop what the later one has written; it is refused with [`crate::NsError::Stale`].
    pub received_before: Option<ObjectId>,
    /// After a boot: the store's report about the writer's object ([`crate::find_writer`] tells which to ask about).
    pub recovered: Option<RecoveredWrite>,
    /// The wish to resume; with [`WriteMode::Update`] only.
    pub resume: Option<Resume>,
    /// The placement of a new object. For an existing object, the holders that should become in-sync replicas; the others are left out. An existing
    /// writer keeps its placement.
    pub placement: Placement,
    /// With [`WriteMode::Replace`]: only this object, and only while it is an empty, complete file. Otherwise [`crate::NsError::Stale`].
    pub empty: Option<ObjectId>,
    /// The stripe of a new striped object; `placement` is then in [`GroupId::STRIPED`].
    pub stripe: Option<NewStripe>,
    /// Re-opens a unit of this writer's file, with [`WriteMode::Update`]. Works only while this writer exists and the unit has a writer.
    pub unit_of: Option<WriterToken>,
    /// With [`WriteMode::Update`]: back to this writer of the client and to no other. A client can have several under one path: a file with an open write
    /// can be renamed, and another one created in its place.
    pub only: Option<WriterToken>,
    /// With [`OpenWrite::only`]: the manager of a cluster has a store end the open write, in place of its client. From then on it refuses the client of a
    /// new file ([`crate::WriterRecord::is_ending`]).
    pub ends: bool,
    /// With [`WriteMode::Update`]: clients of one principal may change a complete file in place together. `None`: this open shares the file with
    /// nobody.
    pub sharing: Option<Sharing>,
}

/// What an open that joins a change in place does to the epoch of the open write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Keeps it, so no handle is fenced. On a cluster it must be this one, which the present run of the primary has.
    Keeps(Option<u32>),
    /// Raises it from this one, which no run of a primary has any more.
    Raises(u32),
}

impl OpenWrite {
    /// The operations of which this open is one. Which one, depends on what has the name, and on whether the client returns to its open write. A new
    /// file whose client starts again or returns is still being made, so that needs no right to change files.
    pub(crate) fn operations(&self) -> &'static [PathOperation] {
        match self.how {
            WriteMode::NewOnly => &[PathOperation::CreateFile],
            WriteMode::Replace => MAKES,
            WriteMode::Update => &[PathOperation::ModifyFile, PathOperation::CreateFile],
        }
    }

    /// Opens `path` for `client` in this boot, without other wishes: on a single node, with permission bits 0644 for a new file.
    #[must_use]
    pub fn new(path: NsPath, how: WriteMode, client: ClientIdentity, boot: BootId) -> Self {
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
            received_before: None,
            recovered: None,
            resume: None,
            placement: Placement::single_node(),
            stripe: None,
            empty: None,
            unit_of: None,
            only: None,
            ends: false,
            sharing: None,
        }
    }

    /// The permission bits alone.
    #[must_use]
    pub const fn mode_bits(&self) -> u16 {
        self.mode & 0o7777
    }
}

/// The kind of the opened object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenKind {
    /// A new file, visible at once. The caller creates the replica.
    New,
    /// An upload with a new object. The caller creates the replica.
    Upload(UploadId),
    /// A complete file's own object, for an in-place change.
    Update,
    /// The object that this client was writing (its old handle is fenced), one that it writes together with others ([`Sharing`]), or one resumed by
    /// wish. The upload, if it is one.
    Resumed(Option<UploadId>),
}

/// The writer that [`open_write`] made or found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedWrite {
    /// Identifies the writer for commit and interrupt.
    pub writer: WriterToken,
    /// The inode: new, replaced or updated.
    pub ino: Ino,
    /// The object to write.
    pub object: ObjectId,
    /// Its replica on a single store.
    pub replica: ReplicaId,
    /// The group of stores for the object.
    pub group: GroupId,
    /// The kind of the object.
    pub kind: OpenKind,
    /// Committed length so far, in bytes. 0 for a new or unfinished object.
    pub len: u64,
    /// Objects that a restart dropped. Their writers' handles are fenced, and their deletion is queued.
    pub dropped: Vec<ObjectId>,
    /// The in-sync replicas, the primary first; empty on a single node.
    pub in_sync: Vec<InSyncReplica>,
    /// The client returns to an open write that was there before. So the store must not have ended it.
    pub returns: bool,
    /// The length that it may reach before more must be reserved ([`crate::Reserve`]). `None`: any length.
    pub may_reach: Option<u64>,
}
