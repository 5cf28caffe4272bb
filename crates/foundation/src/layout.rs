//! Where each part lies in a data directory, relative to it. `docs/reference/formats.md` describes the parts.

/// The log.
pub const JOURNAL_DIR: &str = "journal";
/// All that the namespace keeps.
pub const NAMESPACE_DIR: &str = "namespace";
/// The namespace's index.
pub const NAMESPACE_INDEX_DIR: &str = "namespace/index";
/// Its checkpoints.
pub const NAMESPACE_CHECKPOINT_DIR: &str = "namespace/checkpoint";
/// All that the store keeps.
pub const STORE_DIR: &str = "store";
/// Where the store keeps large contents, one file each.
pub const OBJECTS_DIR: &str = "store/objects";
/// The store's index.
pub const STORE_INDEX_DIR: &str = "store/index";
/// Its checkpoints.
pub const STORE_CHECKPOINT_DIR: &str = "store/checkpoint";
/// The two indexes: whose, and where.
pub const INDEXES: [(&str, &str); 2] = [("namespace", NAMESPACE_INDEX_DIR), ("store", STORE_INDEX_DIR)];
pub(crate) const BALLAST_FILE: &str = "ballast";
