//! Shared secrets: the keytab of the node, and the credentials that it has seen.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use identity::{Credential, CredentialError, LoginName, SecretCredential};
use parking_lot::Mutex;
use sss::{Failures, Holder, Keytab, Now, Refusal, Replays, Verified, verify};

use crate::seen::{Seen, now};
use crate::{AuthenticationError, Clock};

/// The credentials that were seen, and the addresses of those that failed. A reload of the configuration does not forget them.
pub(crate) struct SeenSecrets {
    seen: Seen<Replays>,
    started: Now,
    failures: Mutex<Failures>,
    too_many_failures: AtomicU64,
}

/// A credential that is right, and who shows it. It does not count before [`SeenSecrets::note`].
pub(crate) struct ShownSecret {
    verified: Verified,
    pub(crate) credential: Credential,
}

impl SeenSecrets {
    /// `path`: the file that says after a restart what was seen before.
    pub(crate) fn new(path: Option<PathBuf>, clock: &dyn Clock) -> Self {
        Self {
            seen: Seen::new(path),
            started: now(clock),
            failures: Mutex::default(),
            too_many_failures: AtomicU64::new(0),
        }
    }

    /// How many were refused because too many had failed.
    pub(crate) fn too_many_failures(&self) -> u64 {
        self.too_many_failures.load(Ordering::Relaxed)
    }

    /// Who shows `credential`.
    pub(crate) fn verify(
        &self,
        keytab: &Keytab,
        credential: &[u8],
        peer: IpAddr,
        clock: &dyn Clock,
    ) -> Result<ShownSecret, AuthenticationError> {
        let now = now(clock);
        if self.failures.lock().are_too_many(peer, now.steady) {
            self.too_many_failures.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::TooManyFailures.into());
        }
        // The cipher is not worked out under the lock.
        let verified = verify(keytab, credential, peer, now.wall);
        if matches!(verified, Err(Refusal::Key(_))) {
            self.failures.lock().note(peer, now.steady);
        }
        let verified = verified?;
        let credential = Credential::Secret(credential_of(verified.holder())?);
        Ok(ShownSecret { verified, credential })
    }

    /// Lets a credential count, once. See [`Seen::note`].
    pub(crate) fn note(&self, shown: ShownSecret, clock: &dyn Clock) -> Result<(), AuthenticationError> {
        let (now, verified) = (now(clock), shown.verified);
        self.seen.note(
            |before| Replays::new(self.started, before),
            |replays| verified.admit(replays, now).map(drop),
            now,
        )?;
        Ok(())
    }
}

fn credential_of(holder: &Holder) -> Result<SecretCredential, CredentialError> {
    let Holder { key, user, groups, expires } = holder;
    Ok(SecretCredential {
        name: LoginName::parse(key)?,
        user: user.as_deref().map(LoginName::parse).transpose()?,
        groups: groups.iter().map(|group| LoginName::parse(group)).collect::<Result<_, _>>()?,
        expires: *expires,
    })
}
