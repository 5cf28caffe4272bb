//! Keeps join tokens in the namespace. [`link::token::check`] judges whether a token is valid. The transaction checks that it has not changed since,
//! so no more nodes join with a token than it is for.

use std::sync::Arc;
use std::time::Duration;

use link::token::{Admission, check};
use link::{
    Fingerprint, JoinToken, Joined, NodeList, PresentedToken, RandomError, Roles, TakeError, TokenError, TokenId,
    TokenRecord, TokenRequest, TokenStore, TokenUse,
};
use namespace::{Actor, Durability, JoinNode, MakeToken, Namespace, NsError, RemoveToken, TOKEN_USES_MAX, TokenEntry};
use serde::{Deserialize, Serialize};
use types::{ErrorCode, NodeId, Timestamp};

use crate::OtherManagers;
use crate::names::Names;

/// How often to read a token again that has changed meanwhile: each time, another node has joined with it, or it was revoked.
const TRIES: usize = TOKEN_USES_MAX as usize + 2;

/// Why a token was not made.
#[derive(Debug, thiserror::Error)]
pub enum MakeTokenError {
    /// The system has no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The token would not be valid.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The namespace cannot record it.
    #[error("the token cannot be kept: {0}")]
    Namespace(#[from] NsError),
}

/// Why a token was not revoked.
#[derive(Debug, thiserror::Error)]
pub enum RevokeTokenError {
    /// No such token exists.
    #[error("there is no token {0}; `weir token list` shows all tokens")]
    Unknown(String),
    /// More than one token matches.
    #[error("several tokens begin with {0}; give more of it")]
    Several(String),
    /// As many nodes have joined with it as may.
    #[error("the token was used by {0} already; `weir node remove` removes a node from the cluster")]
    Used(NodeList),
    /// The namespace cannot be read or changed.
    #[error("the token cannot be removed: {0}")]
    Namespace(#[from] NsError),
}

/// A token without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TokenView {
    /// Its id: hexadecimal digits. The token's text does not contain them.
    pub id: String,
    /// The roles of a node that joins with it.
    pub roles: String,
    /// When it was made, in seconds since 1970.
    pub made: i64,
    /// When it expires, in seconds since 1970.
    pub expires: i64,
    /// Whether it has expired.
    pub has_expired: bool,
    /// How many nodes may join with it.
    pub uses: u16,
    /// The nodes that have joined with it.
    pub used_by: Vec<NodeId>,
}

/// The tokens of a cluster.
#[derive(Clone)]
pub struct Tokens {
    names: Names,
    others: OtherManagers,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    /// The tokens in `namespace`. `others` is told of each manager that joins.
    #[must_use]
    pub fn new(namespace: Arc<Namespace>, others: OtherManagers) -> Self {
        Self { names: Names::new(namespace), others }
    }

    /// Makes a token with which `uses` nodes can join, valid for `valid` from `now`. Show its text only to the person who asked. The token is durable when this returns.
    ///
    /// # Errors
    /// [`MakeTokenError`].
    pub fn make(
        &self,
        addresses: Vec<String>,
        authority: Fingerprint,
        roles: Roles,
        uses: u16,
        valid: Duration,
        now: Timestamp,
    ) -> Result<String, MakeTokenError> {
        let (token, record) = JoinToken::make(addresses, authority, roles, now.plus(valid), uses)?;
        let text = token.text()?;
        let entry = TokenEntry {
            id: record.id.0,
            hash: record.hash,
            roles: record.roles.bits(),
            made: now,
            expires: record.expires,
            uses_max: record.uses_max,
            used: Vec::new(),
        };
        self.names.change_wait((now, &Actor::admin()), Durability::Synced, MakeToken { token: entry })?;
        Ok(text)
    }

    /// All tokens, the newest last. Tokens that expired long ago are removed eventually.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn list(&self, now: Timestamp) -> Result<Vec<TokenView>, NsError> {
        let mut entries = self.names.read(namespace::tokens)?;
        entries.sort_by_key(|entry| entry.made);
        Ok(entries.iter().map(|entry| shown(entry, now)).collect())
    }

    /// Revokes a token that is not used up, given by its id or the beginning of its id. Nodes that have joined with it stay. Durable when it
    /// returns.
    ///
    /// # Errors
    /// [`RevokeTokenError`].
    pub fn revoke(&self, id: &str, now: Timestamp) -> Result<(), RevokeTokenError> {
        let entries = self.names.read(namespace::tokens)?;
        let found: Vec<&TokenEntry> =
            entries.iter().filter(|entry| !id.is_empty() && TokenId(entry.id).to_string().starts_with(id)).collect();
        let entry = match found.as_slice() {
            [] => return Err(RevokeTokenError::Unknown(id.to_owned())),
            [one] => one,
            _ => return Err(RevokeTokenError::Several(id.to_owned())),
        };
        if entry.is_used_up() {
            return Err(RevokeTokenError::Used(users(entry)));
        }
        match self.names.change_wait((now, &Actor::admin()), Durability::Synced, RemoveToken { id: entry.id }) {
            // A node has just joined with it.
            Err(error) if error.code() == ErrorCode::Stale => {
                let now = self.names.read(|read| namespace::token(read, &entry.id))?;
                Err(now.map_or(error.into(), |now| RevokeTokenError::Used(users(&now))))
            }
            other => Ok(other?),
        }
    }
}

impl Tokens {
    /// The answer to a node that has already joined and asks again.
    fn again(&self, id: TokenId, node: NodeId) -> Result<Joined, TakeError> {
        let member = self.names.read(|read| namespace::member(read, node));
        let member = member.map_err(|error| TakeError::Failed(error.to_string()))?;
        let member = member.ok_or(TokenError::Removed { id, node })?;
        let unknown =
            || TakeError::Failed(format!("node {node} has joined with a role that this version does not know"));
        Ok(Joined { node, roles: Roles::from_bits(member.roles).ok_or_else(unknown)? })
    }
}

/// The nodes that have joined with the token.
fn users(entry: &TokenEntry) -> NodeList {
    NodeList(entry.used.iter().map(|(node, _)| *node).collect())
}

fn shown(entry: &TokenEntry, now: Timestamp) -> TokenView {
    let secs = |time: Timestamp| time.0.div_euclid(1_000_000_000);
    TokenView {
        id: TokenId(entry.id).to_string(),
        roles: Roles::from_bits(entry.roles).map_or_else(|| "unknown".into(), |roles| roles.to_string()),
        made: secs(entry.made),
        expires: secs(entry.expires),
        has_expired: entry.expires <= now,
        uses: entry.uses_max,
        used_by: users(entry).0,
    }
}

/// The token as `link` knows it. `None` for a role that this version does not know.
fn record_of(entry: &TokenEntry) -> Option<TokenRecord> {
    Some(TokenRecord {
        id: TokenId(entry.id),
        hash: entry.hash,
        roles: Roles::from_bits(entry.roles)?,
        expires: entry.expires,
        uses_max: entry.uses_max,
        used: entry.used.iter().map(|&(node, key)| TokenUse { node, key }).collect(),
    })
}

impl TokenStore for Tokens {
    fn take(&self, presented: &PresentedToken, wish: &TokenRequest, now: Timestamp) -> Result<Joined, TakeError> {
        let failed = |error: NsError| TakeError::Failed(error.to_string());
        for _ in 0..TRIES {
            let entry = self.names.read(|read| namespace::token(read, &presented.id.0)).map_err(failed)?;
            let record = entry.as_ref().and_then(record_of);
            let token = match (check(record.as_ref(), presented, wish, now)?, entry) {
                // The node has joined already, and its answer was lost.
                (Admission::Again(node), _) => return self.again(presented.id, node),
                (Admission::New, Some(entry)) => entry,
                (Admission::New, None) => return Err(TokenError::Unknown { id: presented.id }.into()),
            };
            let request = JoinNode { token, roles: wish.roles.bits(), name: wish.name.clone(), key: wish.key };
            let joining = self.others.joins(wish.roles);
            let joined = self.names.change_wait((now, &Actor::admin()), Durability::Synced, request);
            if let Some(joining) = joining {
                match &joined {
                    Ok(_) => joining.has_joined(),
                    // Nobody knows.
                    Err(NsError::Kv(_)) => drop(joining),
                    Err(_) => joining.has_not_joined(),
                }
            }
            match joined {
                Ok(node) => return Ok(Joined { node, roles: wish.roles }),
                Err(error) if error.code() == ErrorCode::Stale => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(TakeError::Failed("the token changes all the time".into()))
    }
}
