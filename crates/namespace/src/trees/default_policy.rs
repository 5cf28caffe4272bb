//! The policy that a cluster gives its root directory when its stores first stand on several hosts, if nobody has set one. That is decided once
//! (`Cdefault-policy`): whoever changes or removes the policy later has the last word.

use kv::Txn;
use types::{Ino, Policy, Timestamp};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::context::operations;
use crate::groups::registry::{administrator, get};
use crate::trees::policy::{self, own_policy, put_policy};
use crate::{Context, NsError, Read, keys};

const MARK: &[u8] = b"default-policy";

/// `Cdefault-policy`: the decision about the root's policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefaultPolicyRecord {
    /// The root got the policy. Otherwise it had one.
    pub is_given: bool,
    /// The policy.
    pub policy: Policy,
    /// The number of hosts on which stores stood at that time.
    pub hosts: u32,
    /// When it was decided.
    pub decided: Timestamp,
}

/// Gives the root directory a policy, if it has none and nothing was decided before. Returns whether it got it. Only the administrator may do this.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GiveDefaultPolicy {
    /// The policy.
    pub policy: Policy,
    /// The number of hosts on which stores stand.
    pub hosts: u32,
}

/// What was decided about the root's policy. `None`: nothing yet.
pub fn default_policy(read: &dyn Read) -> Result<Option<DefaultPolicyRecord>, NsError> {
    get(read, &keys::mark(MARK), decode)
}

/// Whether the root has the policy that it was given, and nobody has changed it since.
pub fn is_policy_given(read: &dyn Read) -> Result<bool, NsError> {
    let Some(record) = default_policy(read)? else { return Ok(false) };
    Ok(record.is_given && own_policy(read, Ino::ROOT)?.is_some_and(|policy| policy == record.policy))
}

/// See [`GiveDefaultPolicy`].
pub fn give_default_policy(txn: &mut dyn Txn, ctx: &Context, request: &GiveDefaultPolicy) -> Result<bool, NsError> {
    administrator(ctx)?;
    if default_policy(txn)?.is_some() {
        return Ok(false);
    }
    let is_given = own_policy(txn, Ino::ROOT)?.is_none();
    if is_given {
        put_policy(txn, Ino::ROOT, &request.policy);
    }
    let GiveDefaultPolicy { policy, hosts } = request.clone();
    put(txn, &DefaultPolicyRecord { is_given, policy, hosts, decided: ctx.now });
    Ok(is_given)
}

fn put(txn: &mut dyn Txn, record: &DefaultPolicyRecord) {
    let mut out = Encoder::new(64);
    out.u8(u8::from(record.is_given));
    out.u32(record.hosts);
    out.i64(record.decided.0);
    out.bytes(&policy::encode(&record.policy));
    txn.put(&keys::mark(MARK), &out.0);
}

fn decode(value: &[u8]) -> Result<DefaultPolicyRecord, BadValue> {
    let mut from = Decoder::new(value, "the decision about the root's policy")?;
    let (is_given, hosts, decided) = (from.u8()? != 0, from.u32()?, Timestamp(from.i64()?));
    let policy = policy::decode(from.bytes(usize::from(u16::MAX))?)?;
    from.end()?;
    Ok(DefaultPolicyRecord { is_given, policy, hosts, decided })
}

operations! {
    GiveDefaultPolicy, give_default_policy -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes on disk, pinned. A change here is a change of the format.
    #[test]
    fn bytes_of_the_decision_are_pinned() {
        let policy = "replica(2)".parse().unwrap();
        let record = DefaultPolicyRecord { is_given: true, policy, hosts: 2, decided: Timestamp(5) };
        let put_it = record.clone();
        let kv = kv::MemoryKv::new();
        kv::transact(&kv, kv::Durability::Synced, move |txn| {
            put(txn, &put_it);
            (kv::OpOutcome::Commit, ())
        })
        .unwrap();
        let [(key, value)] = &kv.dump()[..] else { panic!("one key") };
        assert_eq!(key, b"Cdefault-policy");
        let fixed = &b"\x02\x01\0\0\0\x02\0\0\0\0\0\0\0\x05"[..];
        let policy = &b"\0\x05\x02\x02\x02\x01\0"[..];
        assert_eq!(*value, [fixed, policy].concat());
        assert_eq!(decode(value), Ok(record));
        assert!(decode(&value[..value.len() - 1]).is_err());
    }
}
