//! Tokens to join with, where a manager keeps them: in the namespace. Whether one is good is judged by [`link::token::check`]; that nothing has changed
//! since is what the transaction looks at, so of two nodes with one token one wins.

use std::sync::Arc;
use std::time::Duration;

use link::token::{Admission, check};
use link::{
    Fingerprint, JoinToken, Presented, RandomError, Roles, TakeError, TokenError, TokenId, TokenRecord, TokenStore,
    Used, Wish,
};
use namespace::{Actor, Durability, JoinNode, MakeToken, Namespace, NsError, TokenEntry};
use types::{ErrorCode, NodeId, Timestamp};

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

/// The tokens of a cluster.
#[derive(Clone)]
pub struct Tokens {
    namespace: Arc<Namespace>,
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
        Self { namespace }
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
        let ctx = self.namespace.context(now, &Actor::admin(), None);
        self.namespace.change_wait(Durability::Synced, ctx, MakeToken { token: entry })?;
        Ok(text)
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
    fn take(&self, presented: &Presented, wish: &Wish, now: Timestamp) -> Result<NodeId, TakeError> {
        let failed = |error: NsError| TakeError::Failed(error.to_string());
        for _ in 0..TRIES {
            let entry = self.namespace.read(|read| namespace::token(read, &presented.id.0)).map_err(failed)?;
            let record = entry.as_ref().and_then(record_of);
            let token = match (check(record.as_ref(), presented, wish, now)?, entry) {
                // It has joined already, and its answer was lost.
                (Admission::Again(node), _) => return Ok(node),
                (Admission::New, Some(entry)) => entry,
                (Admission::New, None) => return Err(TokenError::Unknown { id: presented.id }.into()),
            };
            let request = JoinNode { token, roles: wish.roles.bits(), name: wish.name.clone(), key: wish.key };
            let ctx = self.namespace.context(now, &Actor::admin(), None);
            match self.namespace.change_wait(Durability::Synced, ctx, request) {
                Ok(node) => return Ok(node),
                Err(error) if error.code() == ErrorCode::Stale => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(TakeError::Failed("the token changes all the time".into()))
    }
}
