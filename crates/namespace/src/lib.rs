//! The tree: directories, files, links and attributes as keys and values, one file per operation, over [`kv::Txn`] and
//! [`kv::Read`]; and the life of a file from open over commit or interruption to the deletion of its last body.
//!
//! Promises: every operation decides by what it reads in its transaction and the [`Context`] that it is handed, so it
//! can be run again (conflicts) and replayed; a refusal leaves nothing behind, except where its error says so
//! ([`NsError::keeps_changes`]); ino and body numbers are never reused; every denial names its rule. Nothing is held in
//! memory by the number of files.
//!
//! Left to others: where bytes are and whether they are durable (the store), who a connection is and when a grace
//! period ends (the server), when a commit is on disk (the kv engine).
//!
//! [`Namespace`] is the thin convenience on top. The bytes of each key and value: `docs/formats.md`.

mod abandon;
mod answer;
mod attributes;
mod check;
mod codec;
mod commit;
mod context;
mod deletion;
mod end_unchanged;
mod error;
mod filling;
mod format;
mod grace;
mod hold;
mod ids;
mod inode;
mod interrupt;
mod keep_sums;
mod keys;
mod link;
mod list;
mod lookup;
mod membership;
mod mkdir;
mod node;
mod open_write;
mod path_of;
mod permission;
mod placing;
pub mod planted;
mod policy;
mod records;
mod recount_totals;
mod recover;
mod remove;
mod remove_any;
mod rename;
mod rmdir;
mod service;
mod session;
mod stripe;
mod symlink;
mod totals;
mod tree;
mod truncate;
mod uploads;
mod walk;
mod writers;
mod xattr;

pub use abandon::{Abandon, abandon};
pub use answer::Answer;
pub use attributes::{Chmod, Chown, Utimes, chmod, chown, utimes};
pub use check::{CheckCounts, Finding, check};
pub use commit::{Commit, CommitReply, Committed, Completion, commit, is_unlinked};
pub use context::{Context, Limits, OpTag, Operation, RequestNumber, perform};
pub use deletion::{DeletionDone, DueDeletion, deletion_done, due_deletions};
pub use end_unchanged::{EndUnchanged, end_unchanged};
pub use error::NsError;
pub use filling::{
    FillMember, ForgiveOwed, JoinGroup, LeaveGroup, fill_member, forgive_owed, has_successors, is_alone_with,
    is_needed, is_on_others, join_group, leave_group,
};
pub use format::{Formatted, RaiseIncarnation, format_or_open, last_session, raise_incarnation};
pub use grace::{GraceEnd, GraceFacts, at_grace_end};
pub use hold::{Hold, ReleaseHold, hold, holds, release_hold};
pub use ids::{IdSource, count_to_pass_over};
pub use inode::{Content, DirectoryRecord, FileState, Inode, Kind, Sums, WriterKey};
pub use interrupt::{Interrupt, InterruptReply, interrupt};
pub use keep_sums::{KeepSums, keep_sums};
pub use kv::{Durability, Read};
pub use link::{Link, link};
pub use list::{ListEntry, ListPage, list, list_visit};
pub use lookup::{lookup, open_read, stat, stat_ino, stat_no_follow};
pub use membership::{
    ADDRESSES_MAX, FIRST_NODE, FoundCluster, JoinNode, MakeToken, MemberEntry, NODE_NAME_MAX, PutStore, RemoveMember,
    RemoveStore, RemoveToken, STORES_OF_NODE_MAX, SetAddresses, SetStoreState, StoreEntry, TOKENS_MAX, TokenEntry,
    WantedState, found_cluster, join_node, make_token, member, members, put_store, remove_member, remove_store,
    remove_token, set_addresses, set_store_state, store, stores, token, tokens,
};
pub use mkdir::{Made, Mkdir, mkdir};
pub use open_write::{How, OpenKind, OpenWrite, OpenedWrite, Resume, Vouched, open_write};
pub use path_of::path_of;
pub use permission::{Access, Actor, Want, permit, permit_client};
pub use placing::{
    AtRest, CommitPlaced, CopyDone, InterruptPlaced, PlaceWriter, PutGroup, PutNode, at_rest, commit_placed, copy_done,
    group, groups, holders, interrupt_placed, nodes, owed, owed_in_all_groups, owed_of, place_writer, put_group,
    put_node,
};
pub use policy::{
    InheritedPolicy, RemovePolicy, SetPolicy, own_policy, policies, policy_for, policy_of, remove_policy, set_policy,
};
pub use records::{
    BodyRecord, EndedHow, EndedWriter, HiddenAttributes, UploadRecord, UploadState, WriterKind, WriterRecord,
};
pub use recount_totals::{RecountTotals, recount_totals};
pub use remove::{Remove, Removed, remove};
pub use remove_any::{RemoveAny, remove_any};
pub use rename::{Rename, Renamed, rename};
pub use rmdir::{Rmdir, rmdir};
pub use service::{CountersSnapshot, Namespace, NamespaceConfig};
pub use session::{CloseSession, OpenSession, close_session, open_session};
pub use stripe::{
    CommitStriped, EndStriped, NewStripe, StripeRecord, UnitsWritten, commit_striped, end_striped, permit_writing,
    stripe_of, unit_writer, units_of, units_written,
};
pub use symlink::{Symlink, readlink, symlink};
pub use totals::{Totals, totals};
pub use tree::{MakeTree, TreeRecord, make_tree};
pub use truncate::{Truncate, truncate};
pub use uploads::{DropTombstones, ForgetUpload, drop_tombstones, due_uploads, forget_upload, uploads};
pub use writers::{WriterToken, WritersPage, bodies, body_record, find_writer, writer_of, writers, writers_page};
pub use xattr::{
    NamedValue, RemoveXattr, SetXattr, XattrMode, XattrOf, get_xattr, is_hidden_upload, list_xattrs, remove_xattr,
    set_xattr, xattr_of, xattrs_of,
};
