//! Quotas: what directory trees, and users and groups in them, use and may use.
//!
//! # What counts, and where
//!
//! Each directory belongs to exactly one tree. A file, link or directory counts in the tree of its directory, and there for the tree, its owner and
//! its group. A tree's root counts in its own tree. A file with several names counts once (all names are in one tree). Bytes are the committed or kept
//! length of a file. An inode without a name does not count.
//!
//! A tree may lie inside another one. It does not count there: its own quota is the only one that holds in it. Only the administrator makes trees, so
//! nobody leaves a quota this way, and a change touches three records however deep its path is.
//!
//! # Why usage is exact, also after a crash
//!
//! The transaction that changes a name, a length, an owner or a group changes the `Q` records too. After a crash the journal has both or neither. There
//! is nothing to repair or to estimate. What open writes have reserved is in the same records, and in the record of each open write (`W`) or kept
//! upload (`U`), with the tree, owner and group that it counts for. When that record goes, in whatever way, its reservation goes in the same
//! transaction. So a crash leaves no reservation behind either: the end of the grace period ends the open write.
//!
//! # Why there are no shards
//!
//! All changes pass one committer, which runs them one after another and writes the net effect of a batch as one journal record. A record that a
//! thousand creates of one batch change costs a thousand lookups in memory, and one entry in the journal. Writers do not wait for each other because
//! of it.

pub(crate) mod charge;
pub(crate) mod count;
pub(crate) mod listed;
pub(crate) mod record;
pub(crate) mod recount;
pub(crate) mod reserve;
pub(crate) mod set;
