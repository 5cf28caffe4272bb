//! Tokens with which a node joins a cluster (`J`). The caller verifies a token on the record that it has read. The transaction checks that the record
//! is unchanged.

use kv::Txn;
use types::{NodeId, Timestamp};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::context::operations;
use crate::groups::registry::{administrator, bytes_of, get};
use crate::scan::collect;
use crate::{Context, NsError, Read, keys};

/// The most tokens kept at a time.
pub const TOKENS_MAX: usize = 10_000;

/// The most nodes that one token may let in.
pub const TOKEN_USES_MAX: u16 = 256;

/// How long an expired token is kept. Until then, a node that presents it learns that it has expired.
const TOKENS_KEPT_NANOS: i64 = 30 * 86_400 * 1_000_000_000;

const TAG_USED: u8 = 0x80;
const TAG_USES_MAX: u8 = 0x81;

/// Bytes of one use: the node's number and its key.
const USE_BYTES: usize = 8 + 32;

/// `J`: the record of a join token.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// Its id.
    pub id: [u8; 16],
    /// A hash of its secret.
    pub hash: [u8; 32],
    /// The roles that a node may get with it, as bits.
    pub roles: u8,
    /// When it was made.
    pub made: Timestamp,
    /// The time when it expires.
    pub expires: Timestamp,
    /// How many nodes may join with it: 1 to [`TOKEN_USES_MAX`].
    pub uses_max: u16,
    /// The nodes that joined with it, in this order, and their public keys.
    pub used: Vec<(NodeId, [u8; 32])>,
}

impl TokenEntry {
    /// Whether as many nodes have joined with it as may.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.used.len() >= usize::from(self.uses_max)
    }
}

impl std::fmt::Debug for TokenEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, roles, expires, uses_max, used, .. } = self;
        let id = u128::from_be_bytes(*id);
        let used: Vec<NodeId> = used.iter().map(|(node, _)| *node).collect();
        write!(f, "TokenEntry({id:032x}, roles {roles}, until {expires}, {uses_max} uses, used by {used:?}, ..)")
    }
}

/// Stores a new token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MakeToken {
    /// Its record.
    pub token: TokenEntry,
}

/// Deletes a token that is not used up, so that no further node can join with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveToken {
    /// The token's id.
    pub id: [u8; 16],
}

/// A token.
pub fn token(read: &dyn Read, id: &[u8; 16]) -> Result<Option<TokenEntry>, NsError> {
    get(read, &keys::token(id), |value| decode_token(*id, value))
}

/// All tokens that are kept, in the order of their ids.
pub fn tokens(read: &dyn Read) -> Result<Vec<TokenEntry>, NsError> {
    collect(read, b"J", &keys::end_of(b"J"), TOKENS_MAX, |key, value| {
        let id = key.get(1..).and_then(|id| id.try_into().ok());
        let id = id.ok_or_else(|| BadValue::Damaged("the key of a token has a wrong length").at(key))?;
        decode_token(id, value).map(Some).map_err(|bad| bad.at(key))
    })
}

/// See [`MakeToken`]. The request also deletes tokens that expired long ago.
pub fn make_token(txn: &mut dyn Txn, ctx: &Context, request: &MakeToken) -> Result<(), NsError> {
    administrator(ctx)?;
    let there = tokens(txn)?;
    let is_over = |entry: &TokenEntry| entry.expires.0.saturating_add(TOKENS_KEPT_NANOS) < ctx.now.0;
    for entry in there.iter().filter(|entry| is_over(entry)) {
        txn.delete(&keys::token(&entry.id));
    }
    if there.iter().filter(|entry| !is_over(entry)).count() >= TOKENS_MAX {
        return Err(NsError::TooMany { what: "tokens to join with", bound: TOKENS_MAX as u64 });
    }
    if there.iter().any(|entry| entry.id == request.token.id) {
        return Err(NsError::Exists("a token of this number".into()));
    }
    if !(1..=TOKEN_USES_MAX).contains(&request.token.uses_max) {
        return Err(NsError::TooMany { what: "uses of a token", bound: u64::from(TOKEN_USES_MAX) });
    }
    put_token(txn, &request.token);
    Ok(())
}

/// See [`RemoveToken`]. [`NsError::Stale`] if it is used up.
pub fn remove_token(txn: &mut dyn Txn, ctx: &Context, request: &RemoveToken) -> Result<(), NsError> {
    administrator(ctx)?;
    let id = request.id;
    let shown = || format!("{:032x}", u128::from_be_bytes(id));
    let there = token(txn, &id)?.ok_or_else(|| NsError::NotFound(shown(), "token"))?;
    if there.is_used_up() {
        return Err(NsError::Stale { what: format!("token {}", shown()), why: "a node has joined with it meanwhile" });
    }
    txn.delete(&keys::token(&id));
    Ok(())
}

pub(crate) fn put_token(txn: &mut dyn Txn, token: &TokenEntry) {
    let mut out = Encoder::new(100);
    out.0.extend_from_slice(&token.hash);
    out.u8(token.roles);
    out.i64(token.made.0);
    out.i64(token.expires.0);
    if !token.used.is_empty() {
        let uses = token.used.iter().map(|(node, key)| [&node.0.to_be_bytes()[..], key].concat());
        out.tag(TAG_USED, &uses.collect::<Vec<_>>().concat());
    }
    if token.uses_max != 1 {
        out.tag(TAG_USES_MAX, &token.uses_max.to_be_bytes());
    }
    txn.put(&keys::token(&token.id), &out.0);
}

pub(crate) fn decode_token(id: [u8; 16], value: &[u8]) -> Result<TokenEntry, BadValue> {
    let mut from = Decoder::new(value, "a token to join with")?;
    let hash = bytes_of(from.take(32)?)?;
    let (roles, made, expires) = (from.u8()?, Timestamp(from.i64()?), Timestamp(from.i64()?));
    let (mut used, mut uses_max) = (Vec::new(), 1);
    from.tags(|tag, field| {
        match tag {
            TAG_USED => {
                for part in field.chunks(USE_BYTES) {
                    let mut from = Decoder::part(part, "the use of a token");
                    used.push((NodeId(from.u64()?), bytes_of(from.rest())?));
                }
            }
            TAG_USES_MAX => uses_max = Decoder::part(field, "the uses of a token").u16()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(TokenEntry { id, hash, roles, made, expires, uses_max, used })
}

operations! {
    MakeToken, make_token -> ();
    RemoveToken, remove_token -> ();
}
