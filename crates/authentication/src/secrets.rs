//! Shared secrets: the keytab of the node, and the credentials that it has seen.

use std::net::IpAddr;

use identity::{Credential, CredentialError, LoginName, SecretCredential};
use parking_lot::Mutex;
use sss::{Holder, Keytab, Now, Replays, verify};

use crate::{AuthenticationError, Clock};

/// The credentials that were seen. A reload of the configuration does not forget them.
pub(crate) struct SeenSecrets(Mutex<Replays>);

fn now(clock: &dyn Clock) -> Now {
    Now { wall: clock.wall(), steady: clock.steady() }
}

impl SeenSecrets {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self(Mutex::new(Replays::new(now(clock))))
    }

    /// Who shows `credential`, once.
    pub(crate) fn credential(
        &self,
        keytab: &Keytab,
        credential: &[u8],
        peer: IpAddr,
        clock: &dyn Clock,
    ) -> Result<Credential, AuthenticationError> {
        let now = now(clock);
        // The cipher is not worked out under the lock.
        let verified = verify(keytab, credential, peer, now.wall);
        let holder = verified.and_then(|verified| verified.admit(&mut self.0.lock(), now))?;
        Ok(Credential::Secret(credential_of(holder)?))
    }
}

fn credential_of(Holder { key, user, groups, expires }: Holder) -> Result<SecretCredential, CredentialError> {
    Ok(SecretCredential {
        name: LoginName::parse(&key)?,
        user: user.as_deref().map(LoginName::parse).transpose()?,
        groups: groups.iter().map(|group| LoginName::parse(group)).collect::<Result<_, _>>()?,
        expires,
    })
}
