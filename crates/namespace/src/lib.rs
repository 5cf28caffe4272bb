//! The tree: directories, files, links and attributes as keys and values, one file per operation, over [`kv::Txn`] and [`kv::Read`]. It also covers
//! the life of a file: from open over commit or interruption to the deletion of its last object.
//!
//! # Promises
//!
//! - Every operation decides by what it reads in its transaction and by its [`Context`]. So it can run again (conflicts) and be replayed.
//! - A failed request changes nothing, except where its error says so ([`NsError::keeps_changes`]).
//! - Inode and object numbers are never reused.
//! - Every denial names its rule. None tells whether a name exists in a directory that the actor may not pass.
//! - Nothing in memory grows with the number of files.
//!
//! Other crates do the rest. The store decides where bytes are and whether they are durable. The service identifies connections and ends grace
//! periods. The kv engine decides when a commit is on disk.
//!
//! # Folders
//!
//! - `tree`: names, inodes, attributes.
//! - `writers`: opens, what they write, how they end; sessions.
//! - `groups`: a cluster's nodes, stores and groups, missing replicas, deletions.
//! - `trees`: owners, totals and policies.
//! - `principals`: the table of users' and groups' names and numbers.
//! - `quota`: usage and limits of trees, and of users and groups in them.
//!
//! The parts that several folders need lie beside them: keys, the encoding, scans, numbers. No two files import each other, directly or in a circle.
//!
//! # To add an operation
//!
//! 1. A file with the request type, the function that does the work inside the transaction, and its [`Operation`]. `tree/mkdir.rs` is a short
//!    example.
//! 2. Call [`permit`] for each right that the operation needs. Walk the path before anything that depends on what it leads to, so that a denial is the
//!    same for a name that does not exist (`tests/hidden_names.rs`: add the operation there). Tell the walk what the operation does at the path, for the
//!    limits of a credential ([`PathOperation`]; `tests/path_limits.rs`: add the operation there). With two paths, check the limits on both before the
//!    first walk. An operation on a number or on an open write has no path: the walk or the open that found it has checked.
//! 3. Append its [`OpTag`]; the number is on disk, so list it in `docs/reference/formats.md`. Give its reply an [`Answer`].
//! 4. Say what it will read ([`Operation::ahead`]), so that a database fetches that in one round trip. An operation runs again when more was fetched: it must
//!    then read the same keys again, so no key it reads may depend on a number that it takes.
//! 5. Extend the model (`tests/model`), the counts (`tests/cost.rs`, `tests/round_trips.rs`), and, for a new key or value, the pinned bytes
//!    (`tests/golden.rs`).
//!
//! Every operation passes through `Namespace::queue`, which counts it by operation and outcome. Its completion runs on the responder thread or
//! the committer, and must not block.
//!
//! [`Namespace`] is a thin convenience on top. The bytes of each key and value are in `docs/reference/formats.md`.

mod ahead;
mod answer;
mod check;
mod codec;
mod context;
mod damage_mark;
mod error;
mod format;
mod groups;
mod ids;
mod keys;
pub mod planted;
mod principals;
mod quota;
mod restored;
mod scan;
mod service;
mod tree;
mod trees;
mod writers;

pub use check::{CheckCounts, Finding, check};
pub use context::{Answer, Context, Limits, OpTag, Operation};
pub use damage_mark::{DAMAGED_MARK, OBJECT_SEPARATOR, damage_mark, is_damage_mark_of};
pub use error::NsError;
pub use format::{Formatted, Progress, RaiseIncarnation, last_session, progress};
pub use groups::backfill::{
    BackfillMember, DropMissingReplicas, JoinGroup, LeaveGroup, has_successors, is_alone_with, is_needed, is_on_others,
};
pub use groups::damaged::MissDamaged;
pub use groups::deletion::{DeletionDone, DueDeletion, due_deletions};
pub use groups::group::{group, groups};
pub use groups::members::{MemberEntry, member, members};
pub use groups::membership::{
    CUT_OFF_MAX, CutOffMember, FIRST_NODE, FoundCluster, JoinNode, RemoveMember, SetAddresses, cut_off,
};
pub use groups::objects::{ObjectRecord, object_record, objects};
pub use groups::placing::{
    AtRest, CommitPlaced, CopyDone, InterruptPlaced, PutGroup, PutNode, SetInSyncReplicas, at_rest, holders, missing,
    missing_in_all_groups, missing_of, nodes,
};
pub use groups::stores::{
    PutStore, RemoveStore, STORES_OF_NODE_MAX, SetStoreState, StoreEntry, WantedState, store, stores,
};
pub use groups::stripe::{
    NewStripe, StripeRecord, UnitsWritten, permit_writing, stripe_of, unit_writer, units_if_there, units_of,
    units_written,
};
pub use groups::tokens::{MakeToken, RemoveToken, TOKEN_USES_MAX, TokenEntry, token, tokens};
pub use groups::widen::WidenObject;
pub use ids::{IdSource, OperationNumbers, count_to_pass_over};
pub use kv::{Durability, Read};
pub use principals::name::{NAMES_OF_REQUEST_MAX, NamePrincipals};
pub use principals::rename::RenamePrincipal;
pub use principals::table::{FIRST_NAMED_PRINCIPAL, PRINCIPALS_MAX, name_of, number_of, numbers_of, principals};
pub use quota::charge::{Charge, Reservation};
pub use quota::listed::{QuotaSpace, limited_owners, quota, quotas, space_at, trees};
pub use quota::record::{Amount, Limit, QuotaOf, QuotaRecord};
pub use quota::recount::RecountUsage;
pub use quota::reserve::{Reserve, is_unlimited};
pub use quota::set::{LimitEdit, SetQuota};
pub use restored::{
    AcceptRestored, ContinueRestored, DISTRUSTED, DistrustWriters, RecordAbsent, RestoredRecord, restored,
};
pub use service::{CountersSnapshot, Namespace, NamespaceConfig};
pub use tree::acl::{
    ACL_NAMED_MAX, Acl, AclEdit, AclEntry, AclTag, ExtendedAcl, Named, NamedEntries, NamedEntry, Permissions,
};
pub use tree::acl_text::{AclEntries, AclNames, AclTextError, acl_text, parse_acl, parse_acl_names};
pub use tree::attributes::{Chmod, Chown, Utimes};
pub use tree::inode::{Content, DirectoryRecord, FileState, Inode, Kind, Sums, WriterKey};
pub use tree::link::Link;
pub use tree::list::{ListEntry, ListPage, list, list_visit, permit_list};
pub use tree::lookup::{lookup, lookup_for, open_list, open_read, stat, stat_ino, stat_no_follow};
pub use tree::mkdir::{Mkdir, MkdirResult};
pub use tree::new_access::USUAL_MODE;
pub use tree::path_limits::PathLimits;
pub use tree::path_of::path_of;
pub use tree::permission::{Access, AccessKind, Actor, allows, permit, permit_client};
pub use tree::remove::{Remove, Removed};
pub use tree::remove_any::RemoveAny;
pub use tree::rename::{Rename, Renamed};
pub use tree::rmdir::Rmdir;
pub use tree::rule::{Step, Witness, named};
pub use tree::set_acl::SetAcl;
pub use tree::symlink::{Symlink, readlink};
pub use tree::xattr::{
    NamedValue, RemoveXattr, STATE_ATTRIBUTE, SetXattr, XattrMode, XattrOf, get_xattr, is_hidden_upload, list_xattrs,
    xattr_of, xattrs_of,
};
pub use trees::default_policy::{DefaultPolicyRecord, GiveDefaultPolicy, default_policy, is_policy_given};
pub use trees::owner::{SetTreeOwner, TreeOwner, permit_tree_owner, tree_of_root};
pub use trees::policy::{InheritedPolicy, RemovePolicy, SetPolicy, own_policy, policies, policy_for, policy_of};
pub use trees::recount_totals::RecountTotals;
pub use trees::totals::{Totals, totals};
pub use trees::tree::{MakeTree, TreeRecord};
pub use types::PathOperation;
pub use types::{RequestNumber, WriterToken};
pub use writers::abandon::Abandon;
pub use writers::commit::{Commit, CommitReply, Completion};
pub use writers::end_unchanged::EndUnchanged;
pub use writers::grace::{GraceEnd, GraceFacts, at_grace_end};
pub use writers::hold::{Hold, ReleaseHold, holds};
pub use writers::interrupt::{Interrupt, InterruptReply};
pub use writers::interrupted::interrupted_lately;
pub use writers::keep_digest::{DIGEST_ATTRIBUTE, KeepDigest, kept_digest};
pub use writers::keep_sums::KeepSums;
pub use writers::located::{has_kept_bytes, is_unlinked};
pub use writers::open_new::policy_for_new;
pub use writers::reading_back::permit_reading_back;
pub use writers::record::{Committed, EndedWriter, WriterEnd, WriterKind, WriterRecord, named_open_write};
pub use writers::recover::{IS_ENDING, permit_going_on};
pub use writers::request::{OpenKind, OpenWrite, OpenedWrite, RecoveredWrite, Resume, Sharing, WriteMode};
pub use writers::scan::{WritersPage, find_writer, writer_of, writers, writers_page};
pub use writers::session::{CloseSession, OpenSession, answer_to, outcome_of};
pub use writers::sharing::NoteSharer;
pub use writers::striped::{CommitStriped, EndStriped};
pub use writers::truncate::Truncate;
pub use writers::upload_record::{HiddenAttributes, UploadRecord, UploadState};
pub use writers::uploads::{DropTombstones, ForgetUpload, due_uploads, upload, uploads};
