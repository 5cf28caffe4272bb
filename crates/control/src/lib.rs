//! Requests to a running node, from the control socket in its data directory, and to a manager also from
//! administrators' machines. Only the owner of the data directory (and root) may open the socket. Another one, which the
//! settings name, is for all users of the machine.
//!
//! Each connection carries one request: a line of JSON, [`ControlRequest`]. The answer is also a line of JSON, `{"ok": ...}` or `{"error": "..."}`.
//! For some requests, bytes follow the answer up to the end of the connection. A node answers an unknown request with an error that says
//! so, so that commands and nodes of different versions understand each other.
//!
//! To add a command of a running node: a [`ControlRequest`] here, and in `rules` the role that it takes and, if it changes something, its words
//! for the audit log. Every request passes `gate`, which checks the role and logs each change. This crate answers nothing: `weir` does, in
//! `serve_manager` and `admin_api` for a manager, in `node_services` for a single node, in `serve_disk` for a disk server.

mod answers;
mod caller;
pub mod client;
mod denials;
pub mod gate;
mod local_user;
mod person;
pub mod remote;
mod rules;
mod server;
mod socket_folder;
pub mod validity;

use std::io::Write;

use link::admin::AdminRole;

pub use answers::{Answerer, Answers, LocalUsers, OwnerAnswerer};
pub use caller::Caller;
pub use local_user::LocalUser;
pub use person::{NoRole, Person, PersonAt};
pub use server::{Control, ControlError};

/// The socket's name in the data directory.
pub const SOCKET: &str = "control";
/// Longest line of a request or an answer.
const LINE_MAX: u64 = 64 << 10;

/// A request to a node.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// The state of the scrub.
    ScrubStatus,
    /// Start a scrub pass now, or continue the one in progress.
    ScrubNow {
        /// Bytes a second for this pass, instead of the configured rate.
        rate: Option<u64>,
    },
    /// End the pass in progress. The next one starts when it is due.
    ScrubStop,
    /// Forget the recently written data that the node keeps in memory.
    ForgetRecent,
    /// Make a token with which nodes can join the cluster. The answer is its text.
    MakeToken {
        /// The role of the node.
        role: config::ClusterRole,
        /// How long it is valid.
        valid_millis: u64,
        /// How many nodes can join with it.
        uses: u16,
    },
    /// List the tokens.
    Tokens,
    /// Revoke a token. The answer lists the remaining ones.
    RevokeToken {
        /// The token's id, or the beginning of its id.
        id: String,
    },
    /// Invite an administrator. The answer is the invitation's text.
    AdminInvite {
        /// The name of the administrator.
        name: String,
        /// The role.
        role: AdminRole,
        /// How long the invitation is valid.
        valid_millis: u64,
        /// How long the access lasts; without it, until it is revoked.
        access_millis: Option<u64>,
    },
    /// List the administrators and invitations.
    Admins,
    /// Revoke an administrator or an invitation. The answer lists all.
    AdminRevoke {
        /// The name of the administrator.
        name: String,
    },
    /// Show the fingerprint of the cluster's authority, and the addresses of managers: what people need who administer with a token.
    Authority,
    /// Replace the key of the cluster's authority: both are trusted from now on. The answer is that of `Authority`.
    AuthorityRotate,
    /// Trust the earlier authority no more. The answer is that of `Authority`.
    AuthorityRetire {
        /// Also if nodes have no certificate of the new authority yet: these must join again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Make a new certificate for the administrator who asks. The answer is the certificate, in base64.
    AdminRenew {
        /// The request of [`link::NewKey::admin_renewal`], in base64.
        request: String,
    },
    /// Show how the node or the cluster is, with the judgement.
    Status,
    /// List the stores of the cluster.
    Stores,
    /// Show the cluster as a whole.
    ClusterStatus,
    /// Show the cluster and its present activity.
    Top,
    /// Show a file and its replicas.
    File {
        /// Its path.
        path: String,
    },
    /// List some of the files with missing replicas.
    Missing {
        /// Where the previous answer ended.
        after: Option<manager::MissingAfter>,
        /// Only the files that cannot be read at present.
        unreadable: bool,
    },
    /// Set the policy of a directory.
    PolicySet {
        /// Its path.
        path: String,
        /// The policy.
        words: String,
        /// Make the directory, with those above it, if it is not there.
        #[serde(default)]
        mkdir: bool,
    },
    /// Bring the files below a directory to the policies of their directories.
    PolicyApply {
        /// Its path.
        path: String,
        /// Only count.
        dry_run: bool,
        /// Move at most this many files per second to other groups of stores.
        files_per_second: u32,
    },
    /// Show the policy of a directory.
    PolicyGet {
        /// Its path.
        path: String,
    },
    /// Remove a directory's own policy.
    PolicyRemove {
        /// Its path.
        path: String,
    },
    /// List all policies that were set.
    PolicyList,
    /// Compare the namespace with what each store has.
    FsckCluster {
        /// The most findings of each kind that are listed.
        list: u64,
    },
    /// Show the progress of repairs.
    Repair,
    /// Show what is lost with stores, and remove them as lost if that is confirmed.
    StoreRemoveLost {
        /// The numbers of the stores.
        stores: Vec<u64>,
        /// Remove them. Otherwise nothing changes.
        confirmed: bool,
        /// Remove them even if their nodes are online.
        force: bool,
    },
    /// Make a store read-only, or writable again. The answer lists all stores.
    StoreReadOnly {
        /// The number of the store.
        store: u64,
        /// Whether the store gets no new objects.
        read_only: bool,
    },
    /// Remove a store from the cluster. The answer lists the remaining stores.
    StoreRemove {
        /// The number of the store.
        store: u64,
    },
    /// Remove a node from the cluster. The answer shows the cluster without it.
    NodeRemove {
        /// Its name or number.
        name: String,
        /// Cut it off if it is online.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// Show the progress of draining. Can first start or stop draining a store.
    Drain {
        /// The number of the store.
        store: Option<u64>,
        /// Stop draining it.
        stop: bool,
    },
    /// Compare the names of a restored manager with what its stores have.
    Restored {
        /// List at most this many of each kind.
        list: u64,
        /// Accept the state.
        accept: bool,
        /// Accept it although some stores could not be compared, or files are only on stores that the names do not count on.
        force: bool,
    },
    /// List some of the users or groups that have names here, in the order of their names.
    Principals {
        /// The groups.
        group: bool,
        /// Only those after this name.
        after: Option<String>,
    },
    /// Show a user or a group.
    Principal {
        /// A group.
        group: bool,
        /// Its name or its number.
        called: String,
    },
    /// Give a number to a user or a group that has none.
    PrincipalAdd {
        /// A group.
        group: bool,
        /// Its name.
        name: String,
    },
    /// Give another name to a user or a group.
    PrincipalRename {
        /// A group.
        group: bool,
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
    },
    /// Explain whether somebody may do something, by which rule.
    Explain {
        /// The path.
        path: String,
        /// The new name, if there are two.
        to: Option<String>,
        /// The operation.
        operation: String,
        /// The user, by name or number.
        who: String,
        /// The groups of the user.
        groups: Vec<String>,
        /// The scopes of a token, separated by spaces.
        scopes: Option<String>,
    },
    /// Make an empty directory the root of a tree.
    TreeCreate {
        /// Its path.
        path: String,
        /// Make the directory, with those above it, if it is not there.
        #[serde(default)]
        mkdir: bool,
    },
    /// Give a tree to a user or a group, who may then set policies and quotas in it. Without both, to nobody.
    TreeOwner {
        /// The root of the tree.
        path: String,
        /// The name or number of the user.
        user: Option<String>,
        /// The name or number of the group.
        group: Option<String>,
    },
    /// List some of the trees, in the order of their numbers.
    Trees {
        /// Only those after this number.
        after: Option<u64>,
    },
    /// Set limits of a tree, or of a user or group in it. A limit that is not named stays as it is.
    QuotaSet {
        /// The root of the tree.
        path: String,
        /// The name or number of the user.
        user: Option<String>,
        /// The name or number of the group.
        group: Option<String>,
        /// The hard limit of bytes.
        hard_bytes: Option<LimitEdit>,
        /// The soft limit of bytes.
        soft_bytes: Option<LimitEdit>,
        /// The hard limit of files.
        hard_files: Option<LimitEdit>,
        /// The soft limit of files.
        soft_files: Option<LimitEdit>,
        /// How long the usage may stay above a soft limit.
        grace_secs: Option<u64>,
    },
    /// List some of the usage and limits, in the order of their trees.
    Quotas {
        /// Only of the tree with this root.
        path: Option<String>,
        /// Only those after this one.
        after: Option<QuotaAfter>,
    },
    /// Back up the namespace as of now. A checkpoint file follows the answer, which describes it.
    Backup {
        /// The end of an earlier backup: (record, incarnation of the journal). Only later changes follow.
        since: Option<(u64, u64)>,
    },
}

/// A change of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitEdit {
    /// No limit.
    None,
    /// A limit.
    At(u64),
}

/// Where a page of quotas ends.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct QuotaAfter {
    /// The number of the tree.
    pub tree: u64,
    /// 0: the tree itself; 1: a user; 2: a group.
    pub kind: u8,
    /// The number of the user or group.
    pub id: u32,
}

/// Writes the bytes that follow an answer.
pub type BodyWriter = Box<dyn FnOnce(&mut dyn Write) -> std::io::Result<()> + Send>;

/// Does the work of a request, writes the bytes that follow the answer, and says whether the work is done.
pub type LateWriter = Box<dyn FnOnce(&mut dyn Write) -> std::io::Result<Result<(), String>> + Send>;

/// An answer.
pub enum Reply {
    /// Success, with the result.
    Done(serde_json::Value),
    /// Success; bytes follow the result.
    Stream(serde_json::Value, BodyWriter),
    /// The work is done while its answer is written, after this result.
    Late(serde_json::Value, LateWriter),
    /// Not done, and why.
    Refused(String),
    /// Not done, because the object of the request does not exist.
    Absent(String),
    /// Not done, because the caller may not do it.
    Denied(String),
}

impl Reply {
    /// An answer that may be longer than a line: its JSON follows a short one.
    pub fn long(answer: &impl serde::Serialize) -> Self {
        match serde_json::to_vec(answer) {
            Ok(bytes) => Self::Stream(serde_json::Value::Null, Box::new(move |out| out.write_all(&bytes))),
            Err(error) => Self::Refused(format!("the answer cannot be written: {error}")),
        }
    }
}
