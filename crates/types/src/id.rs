//! Ids. All are numbers on the wire and on disk (big-endian in keys), and newtypes in the code.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// An inode: the record behind a name (attributes, owner, times, links). Never 0.
    Ino(u64)
}
id! {
    /// The bytes of one version of a file. Never reused, never 0. An inode points to its current object.
    ObjectId(u64)
}
id! {
    /// Which replica of an object (always 0 until layouts have more than one replica).
    ReplicaIndex(u16)
}
id! {
    /// The root of quota, snapshot and policy to which a directory belongs. 1 is the default tree.
    TreeId(u64)
}
id! {
    /// An ordered set of stores that together hold the replicas of many objects. 1 on a single node.
    GroupId(u64)
}
id! {
    /// One store: one local file system on which weir keeps replicas.
    StoreId(u64)
}
id! {
    /// A node of a cluster across its runs: a manager, or a disk server with its stores.
    NodeId(u64)
}
id! {
    /// One run of a server process, or one client session that numbers its requests.
    SessionId(u64)
}
id! {
    /// An upload: an unfinished object that is not visible yet.
    UploadId(u64)
}
id! {
    /// A numeric principal (the owner of files). 0 is the administrator.
    PrincipalId(u32)
}
id! {
    /// Distinguishes successive versions of a namespace or a journal. Restoring a namespace raises it, so that no
    /// number is used twice.
    Incarnation(u64)
}
id! {
    /// The time between two snapshots, counted through the whole cluster. 0 until the first snapshot is taken.
    SnapshotEpoch(u64)
}

/// The cluster, and thus the namespace, of a data directory and a node: 128 random bits, drawn once. Shown in
/// hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Ino {
    /// The root directory of the namespace.
    pub const ROOT: Ino = Ino(1);
}

impl TreeId {
    /// The tree of everything until another one is made.
    pub const DEFAULT: TreeId = TreeId(1);
}

impl GroupId {
    /// The only group of a single node.
    pub const DEFAULT: GroupId = GroupId(1);
    /// The group of striped files, whose bytes are in their stripe units. Each unit has its own group; this group has
    /// no store.
    pub const STRIPED: GroupId = GroupId(u64::MAX);
}

/// One replica of one object, as a store keeps it. Shown as `<object in hex>.<replica>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct ReplicaId {
    /// The object.
    pub object: ObjectId,
    /// Its index in the layout.
    pub index: ReplicaIndex,
}

impl ReplicaId {
    /// The first (on a single node: only) replica of `object`.
    #[must_use]
    pub fn first(object: ObjectId) -> Self {
        Self { object, index: ReplicaIndex(0) }
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.object.0, self.index.0)
    }
}
