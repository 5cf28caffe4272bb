//! Paths of the parts of a data directory, relative to it. `docs/reference/formats.md` describes the parts.

/// The journal.
pub const JOURNAL_DIR: &str = "journal";
/// Everything that the namespace keeps.
pub const NAMESPACE_DIR: &str = "namespace";
/// The namespace's index.
pub const NAMESPACE_INDEX_DIR: &str = "namespace/index";
/// The checkpoints of the namespace's index.
pub const NAMESPACE_CHECKPOINT_DIR: &str = "namespace/checkpoint";
/// Everything that the store keeps.
pub const STORE_DIR: &str = "store";
/// The large objects of the store, one file each.
pub const OBJECTS_DIR: &str = "store/objects";
/// The small objects of the store.
pub const SEGMENTS_DIR: &str = "store/segments";
/// The store's index.
pub const STORE_INDEX_DIR: &str = "store/index";
/// The checkpoints of the store's index.
pub const STORE_CHECKPOINT_DIR: &str = "store/checkpoint";
/// The two indexes: their owners and paths.
pub const INDEXES: [(&str, &str); 2] = [("namespace", NAMESPACE_INDEX_DIR), ("store", STORE_INDEX_DIR)];
pub(crate) const BALLAST_FILE: &str = "ballast";
/// The data directory of a disk server's store if its configuration names none, in the server's own.
pub const OWN_STORE_DIR: &str = "store";
/// The identity of a disk server that has joined a cluster.
pub const DISK_IDENTITY_FILE: &str = "node/identity";

/// Whether the disk server with this data directory has joined a cluster.
#[must_use]
pub fn has_joined(data: &std::path::Path) -> bool {
    data.join(DISK_IDENTITY_FILE).exists()
}
