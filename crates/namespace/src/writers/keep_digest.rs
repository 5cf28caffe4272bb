//! Whole-file checksums that somebody has asked for. They are kept beside the file's attributes, each with the content that it is of, and go with
//! that content.

use kv::{Read, Txn};
use types::{DigestKind, Ino, ObjectId};

use crate::tree::inode::{Content, FileState, Kind};
use crate::tree::node::locate;
use crate::tree::xattr::{put_own, remove_own};
use crate::{Context, Inode, NsError, OpTag, Operation, xattr_of};

/// The beginning of the names of these attributes of weir's own.
pub const DIGEST_ATTRIBUTE: &[u8] = b"weir.digest.";
/// Longest checksum, in bytes.
const DIGEST_MAX: usize = 64;

/// Keeps a checksum of a complete file. It comes from a read of all its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeepDigest {
    /// The inode.
    pub ino: Ino,
    /// The object that was read.
    pub object: ObjectId,
    /// Its generation before the read.
    pub generation: u32,
    /// The algorithm.
    pub kind: DigestKind,
    /// The checksum: 1 to 64 bytes.
    pub value: Vec<u8>,
}

fn name(kind: DigestKind) -> Vec<u8> {
    [DIGEST_ATTRIBUTE, kind.name().as_bytes()].concat()
}

/// The content that a checksum is of: the object's number and its generation.
fn of(object: ObjectId, generation: u32) -> Vec<u8> {
    [object.0.to_be_bytes().as_slice(), &generation.to_be_bytes()].concat()
}

fn is_of(content: &Content, object: ObjectId, generation: u32) -> bool {
    (content.object, content.generation, content.state) == (object, generation, FileState::Complete)
}

/// The kept checksum of a complete file. `None`: nobody has asked for it since the file has this content.
pub fn kept_digest(read: &dyn Read, inode: &Inode, kind: DigestKind) -> Result<Option<Vec<u8>>, NsError> {
    let Some(content) = inode.content().filter(|content| content.state == FileState::Complete) else { return Ok(None) };
    if inode.xattrs == 0 {
        return Ok(None);
    }
    let kept = xattr_of(read, inode.ino, &name(kind))?;
    Ok(kept.and_then(|kept| Some(kept.strip_prefix(of(content.object, content.generation).as_slice())?.to_vec())))
}

/// See [`KeepDigest`]. Changes nothing if the file is gone or its bytes have changed since.
pub fn keep_digest(txn: &mut dyn Txn, ctx: &Context, request: &KeepDigest) -> Result<(), NsError> {
    if request.value.is_empty() || request.value.len() > DIGEST_MAX {
        let (len, bound) = (request.value.len() as u64, DIGEST_MAX as u64);
        return Err(NsError::TooLarge { what: "a checksum", len, bound });
    }
    let Some(mut located) = locate(txn, request.ino)? else { return Ok(()) };
    if let Kind::File(content) = &located.inode.kind
        && is_of(content, request.object, request.generation)
    {
        let value = [of(request.object, request.generation), request.value.clone()].concat();
        if put_own(txn, request.ino, &name(request.kind), &value)? {
            located.inode.xattrs = located.inode.xattrs.saturating_add(1);
            located.store(txn, ctx);
        }
    }
    Ok(())
}

/// Drops the kept checksums of an inode whose content changes. The caller stores the inode.
pub(crate) fn forget_digests(txn: &mut dyn Txn, inode: &mut Inode) -> Result<(), NsError> {
    if inode.xattrs == 0 {
        return Ok(());
    }
    for kind in DigestKind::ALL {
        if remove_own(txn, inode.ino, &name(kind))? {
            inode.xattrs = inode.xattrs.saturating_sub(1);
        }
    }
    Ok(())
}

impl Operation for KeepDigest {
    const TAG: OpTag = OpTag::KeepDigest;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        keep_digest(txn, ctx, self)
    }
}
