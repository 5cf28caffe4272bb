//! Tokens to join with, where a manager keeps them: in the namespace. Whether one is good is judged by [`link::token::check`]; that nothing has changed
//! since is what the transaction looks at, so of two nodes with one token one wins.

use std::sync::Arc;
use std::time::Duration;

use link::token::{Admission, check};
use link::{
    Fingerprint, JoinToken, Joined, Presented, RandomError, Roles, TakeError, TokenError, TokenId, TokenRecord,
    TokenRequest, TokenStore, Used,
};
use namespace::{Actor, Durability, JoinNode, MakeToken, Namespace, NsError, RemoveToken, TokenEntry};
use serde::{Deserialize, Serialize};
use types::{ErrorCode, NodeId, Timestamp};

use crate::names::Names;

/// As often a token that was changed meanwhile is looked at again.
const TRIES: usize = 8;

/// A token cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeTokenError {
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// It would not be one.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// It cannot be kept.
    #[error("the token cannot be kept: {0}")]
    Namespace(#[from] NsError),
}

/// A token cannot be revoked.
#[derive(Debug, thiserror::Error)]
pub enum RevokeTokenError {
    /// Nobody knows it.
    #[error("there is no token {0}; `weir token list` shows all tokens")]
    Unknown(String),
    /// More than one is meant.
    #[error("several tokens begin with {0}; give more of it")]
    Several(String),
    /// It has done what it can.
    #[error("the token was used by node {0} already; `weir node remove` removes a node from the cluster")]
    Used(NodeId),
    /// It cannot be read or removed.
    #[error("the token cannot be removed: {0}")]
    Namespace(#[from] NsError),
}

/// A token, without what makes it one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TokenView {
    /// Which: hexadecimal digits, which the token's text does not show.
    pub id: String,
    /// What a node may become with it.
    pub roles: String,
    /// When it was made, in seconds since 1970.
    pub made: i64,
    /// Until when it is good.
    pub expires: i64,
    /// That is over.
    pub has_expired: bool,
    /// The node that has joined with it.
    pub used_by: Option<NodeId>,
}

/// The tokens of a cluster.
#[derive(Clone)]
pub struct Tokens {
    names: Names,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    /// Those that `namespace` keeps.
    #[must_use]
    pub fn new(namespace: Arc<Namespace>) -> Self {
        Self { names: Names::new(namespace) }
    }

    /// Makes one that is good for `valid` from `now` on; its text is for the screen of who asked for it. Durable when it returns.
    ///
    /// # Errors
    /// [`MakeTokenError`].
    pub fn make(
        &self,
        addresses: Vec<String>,
        authority: Fingerprint,
        roles: Roles,
        valid: Duration,
        now: Timestamp,
    ) -> Result<String, MakeTokenError> {
        let (token, record) = JoinToken::make(addresses, authority, roles, now.plus(valid))?;
        let text = token.text()?;
        let entry = TokenEntry {
            id: record.id.0,
            hash: record.hash,
            roles: record.roles.bits(),
            made: now,
            expires: record.expires,
            used: None,
        };
        self.names.change_wait((now, &Actor::admin()), Durability::Synced, MakeToken { token: entry })?;
        Ok(text)
    }

    /// All that are kept, the one made last at the end. Those whose end is long over are forgotten at some time.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub fn list(&self, now: Timestamp) -> Result<Vec<TokenView>, NsError> {
        let mut entries = self.names.read(namespace::tokens)?;
        entries.sort_by_key(|entry| entry.made);
        Ok(entries.iter().map(|entry| shown(entry, now)).collect())
    }

    /// Forgets one that nobody has used, by its id or the beginning of that. Durable when it returns.
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
        if let Some((node, _)) = entry.used {
            return Err(RevokeTokenError::Used(node));
        }
        match self.names.change_wait((now, &Actor::admin()), Durability::Synced, RemoveToken { id: entry.id }) {
            // Somebody has just joined with it.
            Err(error) if error.code() == ErrorCode::Stale => {
                let now = self.names.read(|read| namespace::token(read, &entry.id))?;
                Err(now.and_then(|now| now.used).map_or(error.into(), |(node, _)| RevokeTokenError::Used(node)))
            }
            other => Ok(other?),
        }
    }
}

impl Tokens {
    /// As what a node has joined, that asks again.
    fn again(&self, id: TokenId, node: NodeId) -> Result<Joined, TakeError> {
        let member = self.names.read(|read| namespace::member(read, node));
        let member = member.map_err(|error| TakeError::Failed(error.to_string()))?;
        let member = member.ok_or(TokenError::Removed { id, node })?;
        let unknown =
            || TakeError::Failed(format!("node {node} has joined with a role that this version does not know"));
        Ok(Joined { node, roles: Roles::from_bits(member.roles).ok_or_else(unknown)? })
    }
}

fn shown(entry: &TokenEntry, now: Timestamp) -> TokenView {
    let secs = |time: Timestamp| time.0.div_euclid(1_000_000_000);
    TokenView {
        id: TokenId(entry.id).to_string(),
        roles: Roles::from_bits(entry.roles).map_or_else(|| "unknown".into(), |roles| roles.to_string()),
        made: secs(entry.made),
        expires: secs(entry.expires),
        has_expired: entry.expires <= now,
        used_by: entry.used.map(|(node, _)| node),
    }
}

/// `None`: for a role that this version does not know.
fn record_of(entry: &TokenEntry) -> Option<TokenRecord> {
    Some(TokenRecord {
        id: TokenId(entry.id),
        hash: entry.hash,
        roles: Roles::from_bits(entry.roles)?,
        expires: entry.expires,
        used: entry.used.map(|(node, key)| Used { node, key }),
    })
}

impl TokenStore for Tokens {
    fn take(&self, presented: &Presented, wish: &TokenRequest, now: Timestamp) -> Result<Joined, TakeError> {
        let failed = |error: NsError| TakeError::Failed(error.to_string());
        for _ in 0..TRIES {
            let entry = self.names.read(|read| namespace::token(read, &presented.id.0)).map_err(failed)?;
            let record = entry.as_ref().and_then(record_of);
            let token = match (check(record.as_ref(), presented, wish, now)?, entry) {
                // It has joined already, and its answer was lost.
                (Admission::Again(node), _) => return self.again(presented.id, node),
                (Admission::New, Some(entry)) => entry,
                (Admission::New, None) => return Err(TokenError::Unknown { id: presented.id }.into()),
            };
            let request = JoinNode { token, roles: wish.roles.bits(), name: wish.name.clone(), key: wish.key };
            match self.names.change_wait((now, &Actor::admin()), Durability::Synced, request) {
                Ok(node) => return Ok(Joined { node, roles: wish.roles }),
                Err(error) if error.code() == ErrorCode::Stale => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(TakeError::Failed("the token changes all the time".into()))
    }
}
