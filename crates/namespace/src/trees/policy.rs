//! Policies of directories: the placement of new files below them. docs/how-to/policies.md explains the words.

use kv::{Prefetch, Read, Txn};
use types::{Ino, Layout, NsPath, Policy, Spread, Stripe};

use crate::ahead::{Ahead, tell};
use crate::codec::{BadValue, Decoder, Encoder};
use crate::planted::{self, Bug};
use crate::scan::collect;
use crate::tree::node::get_directory;
use crate::tree::path_of::DEPTH_MAX;
use crate::tree::walk::{Last, Walk, walk};
use crate::trees::owner::administered_directory;
use crate::{Actor, Context, NsError, OpTag, Operation, PathOperation, keys};

// A reader that does not know one of these must not place a file by the other fields.
const TAG_STRIPE: u8 = 0x81;
const TAG_PREFER: u8 = 0x82;
const TAG_CLASSES: u8 = 0x83;

const NEAR_CLIENT: u8 = 1;

/// Sets the policy of a directory, in place of its previous one. The administrator may, and the owner of the tree that it is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetPolicy {
    /// The directory; a symbolic link to one is followed.
    pub path: NsPath,
    /// The policy for new files. Existing files stay as they are.
    pub policy: Policy,
}

/// Removes a directory's own policy, so that it inherits again. Returns not found if it has none. The same may as in [`SetPolicy`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemovePolicy {
    /// The directory; a symbolic link to one is followed.
    pub path: NsPath,
}

/// A policy, and its origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InheritedPolicy {
    /// The policy.
    pub policy: Policy,
    /// The directory on which it was set.
    pub from: Ino,
}

/// See [`SetPolicy`].
pub fn set_policy(txn: &mut dyn Txn, ctx: &Context, request: &SetPolicy) -> Result<(), NsError> {
    let dir = administered_directory(txn, &ctx.actor, &request.path)?.ino;
    put_policy(txn, dir, &request.policy);
    Ok(())
}

pub(crate) fn put_policy(txn: &mut dyn Txn, dir: Ino, policy: &Policy) {
    txn.put(&keys::policy(dir), &encode(policy));
}

/// See [`RemovePolicy`].
pub fn remove_policy(txn: &mut dyn Txn, ctx: &Context, request: &RemovePolicy) -> Result<(), NsError> {
    let key = keys::policy(administered_directory(txn, &ctx.actor, &request.path)?.ino);
    // A policy that cannot be decoded can be removed too.
    if txn.get(&key)?.is_none() {
        return Err(NsError::NotFound(request.path.to_string(), "policy set on this directory itself"));
    }
    txn.delete(&key);
    Ok(())
}

/// The policy for new files in directory `dir`. It is set on `dir` or its nearest ancestor with a policy. `None`: no directory up to the root has
/// one, so [`Policy::default`] applies. Needs two gets for each directory on the way.
pub fn policy_of(read: &dyn Read, dir: Ino) -> Result<Option<InheritedPolicy>, NsError> {
    let mut from = dir;
    for _ in 0..DEPTH_MAX {
        let (_, record) = get_directory(read, from)?;
        if let Some(policy) = own_policy(read, from)? {
            return Ok(Some(InheritedPolicy { policy, from }));
        }
        if from == Ino::ROOT {
            return Ok(None);
        }
        from = record.parent;
    }
    Err(NsError::TooMany { what: "directories above each other", bound: DEPTH_MAX as u64 })
}

/// The policy for a new file at `path`: that of its directory, or of the last existing directory on the way. `None`: [`Policy::default`] applies.
pub fn policy_for(read: &dyn Read, actor: &Actor, path: &NsPath) -> Result<Option<Policy>, NsError> {
    // Before the open itself decides whether it makes the file or replaces it.
    let wanted = [PathOperation::CreateFile, PathOperation::ModifyFile];
    tell(read, &|| Ahead::walk(path).ancestors().policies().list())?;
    let dir = match walk(read, actor, path, Last::Follow, &wanted)? {
        Walk::Resolved(resolved) => resolved.parent.ino,
        Walk::MissingName(missing) => missing.dir.ino,
    };
    Ok(policy_of(read, dir)?.map(|inherited| inherited.policy))
}

/// The policies of directories after `after`, by number; at most `limit`.
pub fn policies(read: &dyn Read, after: Option<Ino>, limit: usize) -> Result<Vec<InheritedPolicy>, NsError> {
    let mut start = after.map_or_else(|| b"P".to_vec(), |after| keys::policy(after).to_vec());
    if after.is_some() {
        start.push(0);
    }
    collect(read, &start, b"Q", limit, |key, value| {
        let bad = || BadValue::Damaged("the key of a policy has a wrong length").at(key);
        let from = keys::number_at(key, 1).filter(|_| key.len() == 9).map(Ino).ok_or_else(bad)?;
        let policy = decode(value).map_err(|bad| bad.at(key))?;
        Ok(Some(InheritedPolicy { policy, from }))
    })
}

/// The policy set on the directory itself.
pub fn own_policy(read: &dyn Read, dir: Ino) -> Result<Option<Policy>, NsError> {
    let key = keys::policy(dir);
    read.get(&key)?.map(|value| decode(&value).map_err(|bad| bad.at(&key))).transpose()
}

/// Deletes the policy of a directory that is being removed.
pub(crate) fn drop_policy(txn: &mut dyn Txn, dir: Ino) -> Result<(), NsError> {
    let key = keys::policy(dir);
    if txn.get(&key)?.is_some() && !planted::is(Bug::RmdirLeavesThePolicy) {
        txn.delete(&key);
    }
    Ok(())
}

pub(crate) fn encode(policy: &Policy) -> Vec<u8> {
    let layout = policy.layout();
    let mut out = Encoder::new(64);
    out.u8(layout.replicas());
    out.u8(layout.sync());
    out.u8(match policy.spread() {
        Spread::Host => 1,
        Spread::Rack => 2,
        Spread::Site => 3,
    });
    out.u8(if policy.near_client() { NEAR_CLIENT } else { 0 });
    if let Some(stripe) = layout.stripe() {
        let mut field = vec![stripe.width()];
        field.extend_from_slice(&stripe.chunk().to_be_bytes());
        out.tag(TAG_STRIPE, &field);
    }
    if let Some(prefer) = policy.prefer() {
        out.tag(TAG_PREFER, prefer.as_str().as_bytes());
    }
    if !policy.classes().is_empty() {
        let mut field = Encoder(Vec::new());
        for (class, copies) in policy.classes() {
            field.bytes(class.as_str().as_bytes());
            field.u8(*copies);
        }
        out.tag(TAG_CLASSES, &field.0);
    }
    out.0
}

pub(crate) fn decode(value: &[u8]) -> Result<Policy, BadValue> {
    const WHAT: &str = "a policy";
    let mut from = Decoder::new(value, WHAT)?;
    let (replicas, sync) = (from.u8()?, from.u8()?);
    let spread = match from.u8()? {
        1 => Spread::Host,
        2 => Spread::Rack,
        3 => Spread::Site,
        0 => return Err(BadValue::Damaged("there is no spread")),
        other => return Err(BadValue::Newer(WHAT, u64::from(other))),
    };
    let near_client = match from.u8()? {
        0 => false,
        NEAR_CLIENT => true,
        other => return Err(BadValue::Newer(WHAT, u64::from(other))),
    };
    let (mut stripe, mut prefer, mut classes) = (None, None, Vec::new());
    from.tags(|tag, field| {
        match tag {
            TAG_STRIPE => {
                let mut from = Decoder::part(field, WHAT);
                let (width, chunk) = (from.u8()?, from.u64()?);
                let bad = BadValue::Damaged("the stripe in it is not valid");
                stripe = Some(Stripe::new(u64::from(width), chunk).map_err(|_| bad)?);
                if !from.rest().is_empty() {
                    return Err(bad);
                }
            }
            TAG_PREFER => {
                let text = std::str::from_utf8(field).ok().and_then(|text| text.parse().ok());
                prefer = Some(text.ok_or(BadValue::Damaged("the preferred location in it is not valid"))?);
            }
            TAG_CLASSES => classes = decode_classes(field)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let layout = Layout::new(replicas, sync, stripe).map_err(|_| BadValue::Damaged("the layout in it is not valid"))?;
    let policy = Policy::new(layout).with_spread(spread).with_near_client(near_client).with_prefer(prefer);
    classes.into_iter().try_fold(policy, |policy, (class, copies)| {
        policy.with_class(class, copies).map_err(|_| BadValue::Damaged("the classes in it are not valid"))
    })
}

fn decode_classes(mut field: &[u8]) -> Result<Vec<(types::StoreClass, u8)>, BadValue> {
    let mut classes = Vec::new();
    while !field.is_empty() {
        let mut from = Decoder::part(field, "a policy");
        let name = std::str::from_utf8(from.bytes(types::CLASS_NAME_MAX)?).ok().and_then(|name| name.parse().ok());
        classes.push((name.ok_or(BadValue::Damaged("a class in it is not valid"))?, from.u8()?));
        field = from.rest();
    }
    Ok(classes)
}

impl Operation for SetPolicy {
    const TAG: OpTag = OpTag::SetPolicy;
    type Reply = ();
    fn ahead(&self, _: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).policies().list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        set_policy(txn, ctx, self)
    }
}

impl Operation for RemovePolicy {
    const TAG: OpTag = OpTag::RemovePolicy;
    type Reply = ();
    fn ahead(&self, _: &Context) -> Vec<Prefetch> {
        Ahead::walk(&self.path).policies().list()
    }
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        remove_policy(txn, ctx, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Vec<u8> {
        encode(&text.parse().unwrap())
    }

    #[test]
    fn values_read_back() {
        for text in [
            "replica(1)",
            "replica(8) sync=3 spread=rack near=client",
            "stripe(64, 1GiB) replica(2) spread=site prefer=a/b/c class=t1:1,ssd:1",
            "stripe(2, 64KiB) prefer=a",
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(decode(&encode(&policy)), Ok(policy), "{text}");
        }
    }

    #[test]
    fn impossible_values_are_damage_and_newer_ones_are_refused() {
        let whole = value("stripe(4, 1MiB) replica(2) prefer=a class=t1:1");
        // A value that is cut between two fields is still valid.
        let cuts = (0..whole.len()).filter(|len| decode(&whole[..*len]).is_ok()).count();
        assert_eq!(cuts, 3);
        let with = |at: usize, byte: u8| {
            let mut value = whole.clone();
            value[at] = byte;
            decode(&value)
        };
        assert!(matches!(with(1, 0), Err(BadValue::Damaged(_))), "no replicas");
        assert!(matches!(with(1, 9), Err(BadValue::Damaged(_))), "too many replicas");
        assert!(matches!(with(2, 3), Err(BadValue::Damaged(_))), "waits for more replicas than there are");
        assert!(matches!(with(3, 0), Err(BadValue::Damaged(_))));
        assert!(matches!(with(3, 4), Err(BadValue::Newer(_, 4))), "a spread of a later version");
        assert!(matches!(with(4, 2), Err(BadValue::Newer(_, 2))), "near something else");
        assert!(matches!(with(5, 0x84), Err(BadValue::Newer(_, 0x84))), "a word of a later version");
        assert!(matches!(with(8, 1), Err(BadValue::Damaged(_))), "a stripe of one");
        let mut ignorable = value("replica(2)");
        ignorable.extend_from_slice(&[0x70, 0, 1, 9]);
        assert_eq!(decode(&ignorable), Ok("replica(2)".parse().unwrap()));
        let mut long = value("replica(2)");
        long.extend_from_slice(&[TAG_CLASSES, 0, 4, 0, 40, b'a', 1]);
        assert!(matches!(decode(&long), Err(BadValue::Damaged(_))));
    }
}
