//! Creates an empty namespace, and keeps the marks that describe a namespace.

use std::fmt;

use kv::{Prefetch, Read, Txn};
use types::{Incarnation, Ino, ObjectId, PrincipalId, SessionId, SnapshotEpoch, Timestamp, TreeId};

use crate::ahead::key_ahead;
use crate::codec::{BadValue, Decoder, Encoder};
use crate::ids::{put_untaken, untaken};
use crate::principals::table::pass_over_principals;
use crate::quota::recount::set_counted;
use crate::tree::inode::{DirectoryRecord, Inode, Kind};
use crate::tree::permission::permit_administrator;
use crate::{Access, Context, NsError, OpTag, Operation, TreeRecord, keys};

const MARK: &[u8] = b"namespace";
/// The usage of trees is counted (`Q`). A version that does not know it would make changes without counting them.
const USAGE_IS_COUNTED: u64 = 1;
/// Features that a reader must know.
const FEATURES: u64 = USAGE_IS_COUNTED;

/// What [`format_or_open`] found or made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Formatted {
    /// The namespace's incarnation.
    pub incarnation: Incarnation,
    /// The number of this run.
    pub session: SessionId,
    /// The current snapshot epoch.
    pub epoch: SnapshotEpoch,
    /// Whether the namespace was empty.
    pub new: bool,
    /// Whether the usage of trees is counted. Until then nobody can set a quota.
    pub is_usage_counted: bool,
}

/// How far a namespace has come. It only grows, so the state of an earlier time has a lower one. A restored namespace that continues in a new
/// incarnation is above all states of earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Progress {
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The highest session number that was handed out.
    pub session: SessionId,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {} of incarnation {}", self.session, self.incarnation)
    }
}

/// The mark `C namespace`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    features: u64,
    incarnation: u64,
    /// Session numbers handed out so far: to runs of servers and to sessions of clients.
    sessions: u64,
    epoch: SnapshotEpoch,
}

/// The current snapshot epoch, 0 until the first snapshot. `None` if no namespace exists yet.
pub(crate) fn snapshot_epoch(read: &dyn Read) -> Result<Option<SnapshotEpoch>, NsError> {
    Ok(get_mark(read)?.map(|mark| mark.epoch))
}

/// The mark of the namespace.
pub(crate) fn mark_ahead() -> Prefetch {
    key_ahead(&keys::mark(MARK))
}

/// Whether the usage of trees is counted.
pub(crate) fn is_usage_counted(read: &dyn Read) -> Result<bool, NsError> {
    Ok(get_mark(read)?.is_some_and(|mark| mark.features & USAGE_IS_COUNTED != 0))
}

fn get_mark(txn: &dyn Read) -> Result<Option<Mark>, NsError> {
    let key = keys::mark(MARK);
    let decode = |value: &[u8]| -> Result<Mark, BadValue> {
        let mut from = Decoder::new(value, "this namespace")?;
        let mark = Mark {
            features: from.u64()?,
            incarnation: from.u64()?,
            sessions: from.u64()?,
            epoch: SnapshotEpoch(from.u64()?),
        };
        from.end()?;
        let unknown = mark.features & !FEATURES;
        if unknown != 0 {
            return Err(BadValue::Newer("this namespace", u64::from(unknown.trailing_zeros())));
        }
        Ok(mark)
    };
    txn.get(&key)?.map(|value| decode(&value).map_err(|bad| bad.at(&key))).transpose()
}

fn put_mark(txn: &mut dyn Txn, mark: Mark) {
    let mut out = Encoder::new(33);
    out.u64(mark.features);
    out.u64(mark.incarnation);
    out.u64(mark.sessions);
    out.u64(mark.epoch.0);
    txn.put(&keys::mark(MARK), &out.0);
}

/// Makes the root directory and the default tree if the store of keys is empty. Refuses the records of a later version. Counts this run. Counts the usage
/// of trees once, if an earlier version has made the namespace: this reads all of it.
pub fn format_or_open(txn: &mut dyn Txn, now: Timestamp) -> Result<Formatted, NsError> {
    let found = get_mark(txn)?;
    let new = found.is_none();
    let mut mark =
        found.unwrap_or(Mark { features: FEATURES, incarnation: 1, sessions: 0, epoch: SnapshotEpoch::default() });
    if new {
        let root = Inode {
            ino: Ino::ROOT,
            access: Access::new(PrincipalId(0), PrincipalId(0), 0o755),
            nlink: 1,
            mtime: now,
            ctime: now,
            btime: now,
            atime: None,
            changed_epoch: mark.epoch,
            xattrs: 0,
            holders: 0,
            extra: Vec::new(),
            kind: Kind::Directory(DirectoryRecord {
                parent: Ino::ROOT,
                name: Vec::new(),
                tree: TreeId::DEFAULT,
                default_acl: None,
            }),
        };
        txn.put(&keys::inode(Ino::ROOT), &crate::tree::node::encode_record(&root, mark.epoch));
        TreeRecord { tree: TreeId::DEFAULT, root: Ino::ROOT, made: now, owner: None }.put(txn);
    }
    if new || mark.features & USAGE_IS_COUNTED == 0 {
        match set_counted(txn, now) {
            Ok(()) => mark.features |= USAGE_IS_COUNTED,
            // The next start tries again. Until then nobody can set a quota, so none refuses anything.
            Err(NsError::Damaged { .. } | NsError::Newer { .. } | NsError::Older { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    mark.sessions += 1;
    put_mark(txn, mark);
    Ok(Formatted {
        incarnation: Incarnation(mark.incarnation),
        session: SessionId(mark.sessions),
        epoch: mark.epoch,
        new,
        is_usage_counted: mark.features & USAGE_IS_COUNTED != 0,
    })
}

/// The highest session number handed out. `None` if no namespace exists yet.
pub fn last_session(read: &dyn Read) -> Result<Option<SessionId>, NsError> {
    Ok(progress(read)?.map(|progress| progress.session))
}

/// How far the namespace has come. `None` if no namespace exists yet.
pub fn progress(read: &dyn Read) -> Result<Option<Progress>, NsError> {
    let of = |mark: Mark| Progress { incarnation: Incarnation(mark.incarnation), session: SessionId(mark.sessions) };
    Ok(get_mark(read)?.map(of))
}

/// Takes a session number that was never used before.
pub(crate) fn next_session(txn: &mut dyn Txn) -> Result<SessionId, NsError> {
    let unformatted = || BadValue::Damaged("the namespace's mark is missing").at(&keys::mark(MARK));
    let mut mark = get_mark(txn)?.ok_or_else(unformatted)?;
    mark.sessions += 1;
    put_mark(txn, mark);
    Ok(SessionId(mark.sessions))
}

/// Leaves out the next `count` numbers: clients may have sessions with them that this namespace does not know.
pub(crate) fn pass_over_sessions(txn: &mut dyn Txn, count: u64) -> Result<(), NsError> {
    let unformatted = || BadValue::Damaged("the namespace's mark is missing").at(&keys::mark(MARK));
    let mut mark = get_mark(txn)?.ok_or_else(unformatted)?;
    mark.sessions = mark.sessions.saturating_add(count);
    put_mark(txn, mark);
    Ok(())
}

/// Starts a new incarnation of the namespace after a restore from a backup. Its numbers are above everything that a store has seen, and above every
/// number that a lost namespace may have given to a principal. Only the administrator may do this. Afterwards the caller must open the namespace again, because the numbers in memory are older.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RaiseIncarnation {
    /// The new incarnation is above this one too.
    pub at_least: Incarnation,
    /// No inode number up to this one is handed out again.
    pub above_ino: Ino,
    /// No object number up to this one is handed out again.
    pub above_object: ObjectId,
}

/// See [`RaiseIncarnation`].
pub fn raise_incarnation(txn: &mut dyn Txn, ctx: &Context, request: &RaiseIncarnation) -> Result<Incarnation, NsError> {
    permit_administrator(&ctx.actor, &|| "the namespace".into())?;
    let unformatted = || BadValue::Damaged("the namespace's mark is missing").at(&keys::mark(MARK));
    let mut mark = get_mark(txn)?.ok_or_else(unformatted)?;
    mark.incarnation = mark.incarnation.max(request.at_least.0) + 1;
    put_mark(txn, mark);
    let mut next = untaken(txn)?;
    next.ino = next.ino.max(request.above_ino.0.saturating_add(1));
    next.object = next.object.max(request.above_object.0.saturating_add(1));
    put_untaken(txn, next);
    pass_over_principals(txn)?;
    Ok(Incarnation(mark.incarnation))
}

impl Operation for RaiseIncarnation {
    const TAG: OpTag = OpTag::RaiseIncarnation;
    type Reply = Incarnation;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<Incarnation, NsError> {
        raise_incarnation(txn, ctx, self)
    }
}
