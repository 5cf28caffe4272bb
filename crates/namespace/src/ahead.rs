//! What reads and operations will probably read, for engines over a network ([`kv::Read::prefetch`]): they fetch it in one round trip. It is a guess, and
//! decides nothing: what it leaves out is fetched when it is read.

use kv::{Chain, Follow, ID_LEN, Prefetch, Read};
use types::{GroupId, Ino, NsPath, ObjectId, PrincipalId, TreeId};

use crate::quota::charge::Reservation;
use crate::quota::record::QuotaOf;
use crate::tree::node::{Dentry, Dir, InodeValue, at, get_dir, get_inode_value};
use crate::trees::totals::shard_of;
use crate::writers::record::at as writer_at;
use crate::{Actor, Context, NsError, UploadRecord, WriterKind, WriterRecord, WriterToken, keys};

/// The most shards of a directory's totals that are fetched ahead.
const SHARDS_MOST: u32 = 64;
/// The most extended attributes, keys of a removed tree, and the like. A reader of more of them waits for further ones.
const FEW: u32 = 64;

/// One entry.
pub(crate) fn key_ahead(key: &[u8]) -> Prefetch {
    Prefetch::Key(key.to_vec())
}

/// The first entries whose keys begin with `prefix`.
pub(crate) fn prefix_ahead(prefix: &[u8]) -> Prefetch {
    Prefetch::Range { start: prefix.to_vec(), end: keys::end_of(prefix), most: FEW }
}

/// Tells the engine what comes next.
pub(crate) fn tell(read: &dyn Read, wanted: &dyn Fn() -> Vec<Prefetch>) -> Result<(), NsError> {
    read.prefetch(wanted).map_err(NsError::from)
}

/// What is read on a path, as far as it has no symbolic links, and of what it leads to.
pub(crate) struct Ahead {
    chain: Chain,
    keys: Vec<Prefetch>,
}

impl Ahead {
    /// What a walk reads.
    pub(crate) fn walk(path: &NsPath) -> Self {
        let names: Vec<Vec<u8>> = path.components().map(<[u8]>::to_vec).collect();
        let chain = Chain {
            prefix: b"D".to_vec(),
            first: Ino::ROOT.0.to_be_bytes(),
            names,
            id_at: at::DIRECTORY_INO,
            follow: Vec::new(),
        };
        Self { chain, keys: vec![key_ahead(&keys::inode(Ino::ROOT))] }
    }

    /// All of it.
    pub(crate) fn list(mut self) -> Vec<Prefetch> {
        self.keys.push(Prefetch::Chain(self.chain));
        self.keys
    }

    /// The number of names.
    fn last(&self) -> u32 {
        u32::try_from(self.chain.names.len()).unwrap_or(u32::MAX)
    }

    /// The number of names before the last one.
    fn parent(&self) -> u32 {
        self.last().saturating_sub(1)
    }

    fn follow(&mut self, after: u32, ids_at: &[u32], prefix: u8, suffix: &[u8]) -> &mut Follow {
        let (prefix, suffix) = (vec![prefix], suffix.to_vec());
        self.chain.follow.push(Follow { after, ids_at: ids_at.to_vec(), prefix, suffix, ..Follow::default() });
        let last = self.chain.follow.len() - 1;
        &mut self.chain.follow[last]
    }

    fn follow_some(&mut self, after: u32, ids_at: &[u32], prefix: u8, most: u32) {
        self.follow(after, ids_at, prefix, &[]).most = Some(most);
    }

    /// One more entry.
    pub(crate) fn key(mut self, key: &[u8]) -> Self {
        self.keys.push(key_ahead(key));
        self
    }

    /// More.
    pub(crate) fn more(mut self, more: impl IntoIterator<Item = Prefetch>) -> Self {
        self.keys.extend(more);
        self
    }

    /// The record of the last name's inode, if the name does not hold it.
    pub(crate) fn record(mut self) -> Self {
        let last = self.last();
        self.follow(last, &[], b'I', &[]);
        if last > 0 {
            self.follow(last, &[at::POINTER_INO], b'I', &[]);
        }
        self
    }

    /// The totals of the directory that the path leads to.
    pub(crate) fn totals(mut self) -> Self {
        let last = self.last();
        self.follow_some(last, &[], b'A', SHARDS_MOST);
        self
    }

    /// What says where the bytes of the file are, and who writes it.
    pub(crate) fn object(mut self) -> Self {
        let last = self.last();
        if last > 0 {
            let of_group = [at::RECORD_GROUP, at::RECORD_OBJECT];
            self.follow(last, &of_group[..1], b'G', &[]);
            self.follow(last, &of_group, b'B', &[]);
            self.follow(last, &of_group, b'O', &[]);
            self.follow(last, &[at::RECORD_WRITER, at::RECORD_OBJECT], b'W', &[]);
            self.follow(last, &[at::RECORD_OBJECT], b'K', &[]);
        }
        self
    }

    /// The attribute `name` of what the path leads to.
    pub(crate) fn attribute(mut self, name: &[u8]) -> Self {
        let last = self.last();
        for ids_at in self.inos_at() {
            self.follow(last, ids_at, b'X', name);
        }
        self
    }

    /// All attributes of what the path leads to.
    pub(crate) fn attributes(mut self) -> Self {
        let last = self.last();
        for ids_at in self.inos_at() {
            self.follow_some(last, ids_at, b'X', FEW);
        }
        self
    }

    /// Where the inode number of the last name may be: of a directory, of a file, and of a file with several names.
    fn inos_at(&self) -> Vec<&'static [u32]> {
        if self.last() == 0 { vec![&[]] } else { vec![&[], &[at::RECORD_INO], &[at::POINTER_INO]] }
    }

    /// What is read of the directory of the last name, to add or remove a name.
    pub(crate) fn parent_changes(mut self, ctx: &Context) -> Self {
        let parent = self.parent();
        self.changes_in(ctx, parent);
        self
    }

    fn changes_in(&mut self, ctx: &Context, after: u32) {
        self.follow(after, &[], b'I', &[]);
        self.follow(after, &[], b'A', &shard_of(ctx).to_be_bytes());
    }

    /// What counts an inode of this actor in the directory of the last name.
    pub(crate) fn parent_usage(mut self, actor: &Actor) -> Self {
        let parent = self.parent();
        self.usage_in(actor, parent);
        self
    }

    fn usage_in(&mut self, actor: &Actor, after: u32) {
        // A file in a set-group-ID directory, and one of somebody else, counts for others. That costs another round trip.
        for of in usage_of(actor.principal, actor.primary_group()) {
            self.usage(after, of);
        }
    }

    fn usage(&mut self, after: u32, of: QuotaOf) {
        let key = keys::quota(TreeId::DEFAULT, of);
        if after == 0 {
            self.keys.push(key_ahead(&key)); // the root directory is in the default tree
        } else {
            self.follow(after, &[at::DIRECTORY_TREE], b'Q', &key[1 + ID_LEN..]);
        }
    }

    /// The same, in the directory that the path leads to.
    pub(crate) fn last_usage(mut self, actor: &Actor) -> Self {
        let last = self.last();
        self.usage_in(actor, last);
        self
    }

    /// The tree of the directory that the path leads to, and one of its quotas.
    pub(crate) fn quota(mut self, of: QuotaOf) -> Self {
        let last = self.last();
        if last == 0 {
            self.keys.push(key_ahead(&keys::tree(TreeId::DEFAULT)));
        } else {
            self.follow(last, &[at::DIRECTORY_TREE], b'T', &[]);
        }
        self.usage(last, of);
        self
    }

    /// What making the missing directories of the path reads, wherever they begin.
    pub(crate) fn way(mut self, ctx: &Context) -> Self {
        for after in 0..self.parent() {
            self.changes_in(ctx, after);
            self.usage_in(&ctx.actor, after);
        }
        self
    }

    /// The records of all directories on the way.
    pub(crate) fn ancestors(mut self) -> Self {
        for after in 1..self.last() {
            self.follow(after, &[], b'I', &[]);
        }
        self
    }

    /// The policies of all directories on the way, and of the last one if there is one.
    pub(crate) fn policies(mut self) -> Self {
        for after in 0..=self.last() {
            self.follow(after, &[], b'P', &[]);
        }
        self
    }

    /// What is read of an empty directory that is removed.
    pub(crate) fn emptied(mut self) -> Self {
        let last = self.last();
        self.follow_some(last, &[], b'D', 1);
        self.follow(last, &[], b'P', &[]);
        self.totals()
    }
}

fn usage_of(owner: PrincipalId, group: PrincipalId) -> [QuotaOf; 3] {
    [QuotaOf::Tree, QuotaOf::User(owner), QuotaOf::Group(group)]
}

/// What is read of an inode by its number: its record, wherever that is, and the totals of a directory.
pub(crate) fn inode_ahead(ino: Ino) -> Vec<Prefetch> {
    let (prefix, ids_at, rest_at) = (b"D".to_vec(), vec![at::BACK_PARENT], Some(at::BACK_NAME));
    vec![
        Prefetch::Chain(Chain {
            prefix: b"I".to_vec(),
            first: ino.0.to_be_bytes(),
            names: vec![Vec::new()],
            id_at: at::BACK_PARENT,
            follow: vec![Follow { after: 1, ids_at, prefix, rest_at, ..Follow::default() }],
        }),
        totals_ahead(ino),
    ]
}

/// The record to which an entry points, and the totals of a directory.
pub(crate) fn record_ahead(entry: &Dentry) -> Vec<Prefetch> {
    let mut wanted = vec![key_ahead(&keys::inode(entry.ino()))];
    if matches!(entry, Dentry::Directory(_)) {
        wanted.push(totals_ahead(entry.ino()));
    }
    wanted
}

fn totals_ahead(dir: Ino) -> Prefetch {
    let start = keys::totals(dir);
    Prefetch::Range { start: start.to_vec(), end: keys::end_of(&start), most: SHARDS_MOST }
}

/// What is read of an open write by its token, before its record is known.
pub(crate) fn writer_ahead(token: &WriterToken, ctx: Option<&Context>) -> Vec<Prefetch> {
    let one = |at, prefix: u8| Follow { after: 1, ids_at: vec![at], prefix: vec![prefix], ..Follow::default() };
    let mut follow = vec![one(writer_at::INO, b'I'), one(writer_at::PARENT, b'I'), one(writer_at::UPLOAD, b'U')];
    if let Some(ctx) = ctx {
        let suffix = shard_of(ctx).to_be_bytes().to_vec();
        follow.push(Follow { suffix, ..one(writer_at::PARENT, b'A') });
    }
    vec![Prefetch::Chain(Chain {
        prefix: b"W".to_vec(),
        first: token.key.0.to_be_bytes(),
        names: vec![token.object.0.to_be_bytes().to_vec()],
        id_at: writer_at::INO,
        follow,
    })]
}

/// What the end of an open write reads, when its record is known and what [`writer_ahead`] wanted.
pub(crate) fn end_ahead(read: &dyn Read, ctx: &Context, writer: &WriterRecord) -> Vec<Prefetch> {
    let (parent, name, owner) = match writer.kind {
        WriterKind::Upload(upload) => match UploadRecord::get(read, upload) {
            Ok(Some(upload)) => (upload.parent, upload.name, upload.owner),
            _ => return Vec::new(),
        },
        WriterKind::New | WriterKind::Update => {
            let name = writer.path.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
            (writer.parent, name.to_vec(), writer.client.principal)
        }
    };
    // An open for a change in place has not noted the directory.
    let (parent, name) = match (parent, get_inode_value(read, writer.ino)) {
        (Ino(0), Ok(Some(InodeValue::Back { parent, name }))) => (parent, name),
        _ => (parent, name),
    };
    let mut wanted = vec![
        key_ahead(&keys::dentry(parent, &name)),
        key_ahead(&keys::inode(parent)),
        key_ahead(&keys::total(parent, shard_of(ctx))),
    ];
    wanted.extend(usage_ahead(read, parent, owner));
    if writer.kind != WriterKind::New {
        wanted.push(prefix_ahead(&keys::xattr(writer.ino, b""))); // checksums that the file loses
    }
    if let Some(Reservation { charge, .. }) = writer.reservation {
        wanted.extend(charge.parts().map(|of| key_ahead(&keys::quota(charge.tree, of))));
    }
    if writer.placement.group == GroupId::STRIPED {
        wanted.push(key_ahead(&keys::stripe(writer.object)));
    }
    wanted.extend(replicas_ahead(writer.placement.group, writer.object));
    wanted
}

/// What counts a file of `owner` in the tree of this directory.
fn usage_ahead(read: &dyn Read, dir: Ino, owner: PrincipalId) -> Vec<Prefetch> {
    let group = keys::quota(TreeId::DEFAULT, QuotaOf::Group(PrincipalId(0)));
    // Nobody knows the file's group yet, and most sites have few.
    let groups_end = group.len() - size_of::<u32>();
    let counted = [QuotaOf::Tree, QuotaOf::User(owner)];
    if let Ok(Dir { tree, .. }) = get_dir(read, dir) {
        let mut wanted = vec![key_ahead(&keys::tree(tree))];
        wanted.extend(counted.map(|of| key_ahead(&keys::quota(tree, of))));
        wanted.push(prefix_ahead(&keys::quota(tree, QuotaOf::Group(PrincipalId(0)))[..groups_end]));
        return wanted;
    }
    // Its record is not known yet.
    let one = |prefix: &[u8], suffix: &[u8], most| Follow {
        after: 1,
        ids_at: vec![at::DIRECTORY_RECORD_TREE],
        prefix: prefix.to_vec(),
        suffix: suffix.to_vec(),
        most,
        ..Follow::default()
    };
    let mut follow = vec![one(b"T", b"", None), one(b"Q", &group[1 + ID_LEN..groups_end], Some(FEW))];
    follow.extend(counted.map(|of| one(b"Q", &keys::quota(TreeId::DEFAULT, of)[1 + ID_LEN..], None)));
    let (prefix, first, names) = (b"I".to_vec(), dir.0.to_be_bytes(), vec![Vec::new()]);
    vec![Prefetch::Chain(Chain { prefix, first, names, id_at: at::DIRECTORY_RECORD_TREE, follow })]
}

/// What is read of the replicas of an object.
pub(crate) fn replicas_ahead(group: GroupId, object: ObjectId) -> Vec<Prefetch> {
    let keys = [keys::group(group), keys::object(group, object), keys::missing(group, object)];
    keys.iter().map(|key| key_ahead(key)).collect()
}

#[cfg(test)]
mod tests {
    use types::{Adler32, BootId, Crc32c, SnapshotEpoch, Timestamp};

    use super::*;
    use crate::tree::inode::DirectoryRecord;
    use crate::tree::node::{encode_back, encode_directory_entry, encode_pointer, encode_record};
    use crate::{Access, Content, FileState, Inode, Kind, Sums, WriterKey};

    const NUMBER: u64 = 0x0102_0304_0506_0708;

    /// Where the number begins in a value that has it once.
    fn place(value: &[u8]) -> u32 {
        let number = NUMBER.to_be_bytes();
        let places: Vec<usize> = (0..value.len()).filter(|at| value[*at..].starts_with(&number)).collect();
        let [at] = places[..] else { panic!("{places:?} in {value:?}") };
        u32::try_from(at).unwrap()
    }

    fn file(ino: u64, content: Content) -> Inode {
        let access = Access::new(PrincipalId(9), PrincipalId(9), 0o644);
        let time = Timestamp(9);
        Inode {
            ino: Ino(ino),
            access,
            nlink: 1,
            mtime: time,
            ctime: time,
            btime: time,
            atime: None,
            changed_epoch: SnapshotEpoch(9),
            xattrs: 3,
            holders: 0,
            extra: Vec::new(),
            kind: Kind::File(content),
        }
    }

    #[test]
    fn numbers_are_where_the_engine_looks_for_them() {
        let entry = |ino, tree| {
            let access = Access::new(PrincipalId(9), PrincipalId(9), 0o755);
            place(&encode_directory_entry(&Dir { ino: Ino(ino), access, tree: TreeId(tree), has_default_acl: true }))
        };
        assert_eq!(entry(NUMBER, 9), at::DIRECTORY_INO);
        assert_eq!(entry(9, NUMBER), at::DIRECTORY_TREE);
        assert_eq!(place(&encode_pointer(Ino(NUMBER))), at::POINTER_INO);
        let back = encode_back(Ino(NUMBER), b"name");
        assert_eq!(place(&back), at::BACK_PARENT);
        assert_eq!(back[at::BACK_NAME as usize..], *b"name");

        let sums = Some(Sums { adler32: Adler32(9), crc32c: Crc32c(9) });
        let (object, group, len) = (ObjectId(9), GroupId(9), 9);
        let complete = Content { object, group, len, state: FileState::Complete, sums, generation: 9, shared: false };
        let open = |key| Content { state: FileState::Open(WriterKey(key)), sums: None, ..complete };
        let record = |ino, content| place(&encode_record(&file(ino, content), SnapshotEpoch(9)));
        for content in [complete, open(9)] {
            assert_eq!(record(NUMBER, content), at::RECORD_INO);
            assert_eq!(record(9, Content { object: ObjectId(NUMBER), ..content }), at::RECORD_OBJECT);
            assert_eq!(record(9, Content { group: GroupId(NUMBER), ..content }), at::RECORD_GROUP);
        }
        assert_eq!(record(9, open(NUMBER)), at::RECORD_WRITER);
        let directory =
            DirectoryRecord { parent: Ino(9), name: b"d".to_vec(), tree: TreeId(NUMBER), default_acl: None };
        let inode = Inode { kind: Kind::Directory(directory), ..file(9, complete) };
        assert_eq!(place(&encode_record(&inode, SnapshotEpoch(9))), at::DIRECTORY_RECORD_TREE);
    }

    #[test]
    fn numbers_of_a_writer_are_where_the_engine_looks_for_them() {
        let writer = |ino, parent, upload| {
            let record = WriterRecord {
                key: WriterKey(9),
                object: ObjectId(9),
                epoch: 9,
                kind: WriterKind::Upload(types::UploadId(upload)),
                ino: Ino(ino),
                parent: Ino(parent),
                session: types::SessionId(9),
                boot: BootId(9),
                client: types::ClientIdentity::default(),
                path: b"/p".to_vec(),
                expected_len: None,
                opened: Timestamp(9),
                sums_before: None,
                placement: types::Placement::single_node(),
                is_ending: false,
                reservation: None,
            };
            place(&record.encode())
        };
        assert_eq!(writer(NUMBER, 9, 9), writer_at::INO);
        assert_eq!(writer(9, NUMBER, 9), writer_at::PARENT);
        assert_eq!(writer(9, 9, NUMBER), writer_at::UPLOAD);
    }
}
