//! The keys: one letter, then big-endian numbers and names, so that scans follow order.

use types::{
    ClientIdentity, GroupId, Ino, NodeId, ObjectId, PrincipalId, PrincipalKind, SessionId, StoreId, Timestamp, TreeId,
    UploadId,
};

use crate::{QuotaOf, WriterKey};

/// The longest key: a letter, two numbers and a name.
const KEY_MAX: usize = 1 + 8 + 8 + 255;

/// A key on the stack.
#[derive(Clone)]
pub(crate) struct Key {
    len: usize,
    bytes: [u8; KEY_MAX],
}

impl Key {
    #[inline]
    fn new(letter: u8) -> Self {
        let mut key = Self { len: 1, bytes: [0; KEY_MAX] };
        key.bytes[0] = letter;
        key
    }
    #[inline]
    fn with(mut self, part: &[u8]) -> Self {
        // Callers limit the length of names. A longer name would be a bug: the key is cut instead of causing a panic. The cut key matches no record.
        let end = (self.len + part.len()).min(KEY_MAX);
        let len = end - self.len;
        self.bytes[self.len..end].copy_from_slice(&part[..len]);
        self.len = end;
        self
    }
    #[inline]
    fn number(self, n: u64) -> Self {
        self.with(&n.to_be_bytes())
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// `D`: an entry.
pub(crate) fn dentry(dir: Ino, name: &[u8]) -> Key {
    Key::new(b'D').number(dir.0).with(name)
}
/// `I`: an inode's record, or a pointer to the entry with its record.
pub(crate) fn inode(ino: Ino) -> Key {
    Key::new(b'I').number(ino.0)
}
/// `A`: a shard of a directory's totals.
pub(crate) fn total(dir: Ino, shard: u16) -> Key {
    Key::new(b'A').number(dir.0).with(&shard.to_be_bytes())
}
/// All shards of a directory's totals.
pub(crate) fn totals(dir: Ino) -> Key {
    Key::new(b'A').number(dir.0)
}
/// `X`: an extended attribute. With an empty name, the prefix of all attributes.
pub(crate) fn xattr(ino: Ino, name: &[u8]) -> Key {
    Key::new(b'X').number(ino.0).with(name)
}
/// `L`: a link of a file with several links.
pub(crate) fn link(ino: Ino, parent: Ino, name: &[u8]) -> Key {
    Key::new(b'L').number(ino.0).number(parent.0).with(name)
}
/// All links of a file.
pub(crate) fn links(ino: Ino) -> Key {
    Key::new(b'L').number(ino.0)
}
/// `B`: an object.
pub(crate) fn object(group: GroupId, object: ObjectId) -> Key {
    Key::new(b'B').number(group.0).number(object.0)
}
/// All other referrers of an object.
pub(crate) fn referrers(object: ObjectId) -> Key {
    Key::new(b'F').number(object.0)
}
/// `W`: a writer.
pub(crate) fn writer(key: WriterKey, object: ObjectId) -> Key {
    Key::new(b'W').number(key.0).number(object.0)
}
/// All writers of one client and path.
pub(crate) fn writers_of(key: WriterKey) -> Key {
    Key::new(b'W').number(key.0)
}
/// `Y`: an ended writer.
pub(crate) fn ended(key: WriterKey) -> Key {
    Key::new(b'Y').number(key.0)
}
/// `U`: an upload.
pub(crate) fn upload(upload: UploadId) -> Key {
    Key::new(b'U').number(upload.0)
}
/// `Z`: a queued deletion.
pub(crate) fn deletion(seq: Timestamp, object: ObjectId) -> Key {
    // Times before 1970 would sort last. Flipping the sign bit makes all times sort.
    Key::new(b'Z').number(seq.0.cast_unsigned() ^ (1 << 63)).number(object.0)
}
/// `H`: a hold.
pub(crate) fn hold(session: SessionId, ino: Ino) -> Key {
    Key::new(b'H').number(session.0).number(ino.0)
}
/// `R`: a session's own record.
pub(crate) fn session(session: SessionId) -> Key {
    Key::new(b'R').number(session.0)
}
/// `R` with a slot: a remembered answer.
pub(crate) fn answer(session: SessionId, slot: u16) -> Key {
    Key::new(b'R').number(session.0).with(&slot.to_be_bytes())
}
/// `T`: a tree.
pub(crate) fn tree(tree: TreeId) -> Key {
    Key::new(b'T').number(tree.0)
}
/// `Q`: the usage and limits of a tree, or of a user or group in it.
pub(crate) fn quota(tree: TreeId, of: QuotaOf) -> Key {
    let (kind, id) = match of {
        QuotaOf::Tree => (0, PrincipalId(0)),
        QuotaOf::User(id) => (1, id),
        QuotaOf::Group(id) => (2, id),
    };
    Key::new(b'Q').number(tree.0).with(&[kind]).with(&id.0.to_be_bytes())
}
/// All usage and limits of a tree.
pub(crate) fn quotas(tree: TreeId) -> Key {
    Key::new(b'Q').number(tree.0)
}
/// `G`: a group of stores.
pub(crate) fn group(group: GroupId) -> Key {
    Key::new(b'G').number(group.0)
}
/// `O`: the missing replicas of an object.
pub(crate) fn missing(group: GroupId, object: ObjectId) -> Key {
    Key::new(b'O').number(group.0).number(object.0)
}
/// All missing replicas in a group.
pub(crate) fn missing_in(group: GroupId) -> Key {
    Key::new(b'O').number(group.0)
}
/// `K`: the stripe of an object.
pub(crate) fn stripe(object: ObjectId) -> Key {
    Key::new(b'K').number(object.0)
}
/// `N`: a node of a cluster.
pub(crate) fn node(node: NodeId) -> Key {
    Key::new(b'N').number(node.0)
}
/// `J`: a join token.
pub(crate) fn token(id: &[u8; 16]) -> Key {
    Key::new(b'J').with(id)
}
/// `M`: a member of a cluster.
pub(crate) fn member(node: NodeId) -> Key {
    Key::new(b'M').number(node.0)
}
/// `S`: a store of a cluster.
pub(crate) fn store(store: StoreId) -> Key {
    Key::new(b'S').number(store.0)
}
/// `E` with the kind of a principal: its number, by its name. With an empty name, the prefix of all names of that kind.
pub(crate) fn principal_name(kind: PrincipalKind, name: &[u8]) -> Key {
    Key::new(b'E').with(&[principal_kind(kind)]).with(name)
}
/// `E` with 0: the name of a principal, by its number.
pub(crate) fn principal_number(id: PrincipalId) -> Key {
    Key::new(b'E').with(&[0]).with(&id.0.to_be_bytes())
}
/// The byte that stands for a kind of principal in keys and values.
pub(crate) const fn principal_kind(kind: PrincipalKind) -> u8 {
    match kind {
        PrincipalKind::User => 1,
        PrincipalKind::Group => 2,
    }
}
/// `P`: a directory's policy.
pub(crate) fn policy(dir: Ino) -> Key {
    Key::new(b'P').number(dir.0)
}
/// `C`: the namespace's own marks.
pub(crate) fn mark(name: &[u8]) -> Key {
    Key::new(b'C').with(name)
}

/// The first key after all keys that start with `prefix`.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The number at `at` in a key.
pub(crate) fn number_at(key: &[u8], at: usize) -> Option<u64> {
    key.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}

/// The first half of a writer's key: FNV-1a (64 bits) over principal (4 bytes, big-endian), user, NUL, pid (4 bytes,
/// big-endian), host, NUL, path.
pub(crate) fn writer_key(client: &ClientIdentity, path: &[u8]) -> WriterKey {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut feed = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    feed(&client.principal.0.to_be_bytes());
    feed(client.user.as_bytes());
    feed(&[0]);
    feed(&client.pid.to_be_bytes());
    feed(client.host.as_bytes());
    feed(&[0]);
    feed(path);
    WriterKey(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_prefix_sorts_after_all_its_keys() {
        assert_eq!(end_of(b"D"), b"E");
        assert_eq!(end_of(b"D\xff\xff"), b"E");
        assert!(*end_of(&dentry(Ino(0xff), b"")) <= *dentry(Ino(0x100), b""));
        assert!(*dentry(Ino(7), &[0xff; 255]) < *end_of(&dentry(Ino(7), b"")));
    }

    #[test]
    fn times_sort_across_1970() {
        let keys = [i64::MIN, -1, 0, 1, i64::MAX].map(|t| deletion(Timestamp(t), ObjectId(1)).to_vec());
        assert!(keys.is_sorted());
    }

    #[test]
    fn the_longest_key_fits() {
        assert_eq!(link(Ino(1), Ino(2), &[b'n'; 255]).len(), KEY_MAX);
    }

    #[test]
    fn writer_keys_differ_in_each_part() {
        let principal = types::PrincipalId(3);
        let client =
            |user: &str, pid, host: &str| ClientIdentity { principal, user: user.into(), pid, host: host.into() };
        let other_principal = ClientIdentity { principal: types::PrincipalId(4), ..client("a", 1, "h") };
        let base = writer_key(&client("a", 1, "h"), b"/p");
        assert_eq!(base, WriterKey(0xf54a5977904dc54d), "the hash is part of the format");
        for other in [
            writer_key(&other_principal, b"/p"),
            writer_key(&client("b", 1, "h"), b"/p"),
            writer_key(&client("a", 2, "h"), b"/p"),
            writer_key(&client("a", 1, "i"), b"/p"),
            writer_key(&client("a", 1, "h"), b"/q"),
        ] {
            assert_ne!(base, other);
        }
    }
}
