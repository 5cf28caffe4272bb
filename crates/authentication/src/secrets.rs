//! Shared secrets: the keytab of the node, and the credentials that it has seen.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use identity::{Credential, CredentialError, LoginName, SecretCredential};
use parking_lot::Mutex;
use sss::{Before, Failures, Holder, Keytab, Now, Refusal, Replays, verify};
use types::Timestamp;

use crate::seen_file::SeenFile;
use crate::{AuthenticationError, Clock};

/// The credentials that were seen. A reload of the configuration does not forget them.
pub(crate) struct SeenSecrets {
    file: Option<SeenFile>,
    started: Now,
    state: Mutex<State>,
    too_many_failures: AtomicU64,
}

#[derive(Default)]
struct State {
    /// `None`: the file was not read yet.
    replays: Option<Replays>,
    failures: Failures,
    /// The time that the file has.
    written: Option<Timestamp>,
}

fn now(clock: &dyn Clock) -> Now {
    Now { wall: clock.wall(), steady: clock.steady() }
}

impl SeenSecrets {
    /// `path`: the file that says after a restart what was seen before.
    pub(crate) fn new(path: Option<PathBuf>, clock: &dyn Clock) -> Self {
        Self {
            file: path.map(SeenFile::new),
            started: now(clock),
            state: Mutex::default(),
            too_many_failures: AtomicU64::new(0),
        }
    }

    /// How many were refused because too many had failed.
    pub(crate) fn too_many_failures(&self) -> u64 {
        self.too_many_failures.load(Ordering::Relaxed)
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
        if self.state.lock().failures.are_too_many(peer, now.steady) {
            self.too_many_failures.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::TooManyFailures.into());
        }
        // The cipher is not worked out under the lock.
        let verified = verify(keytab, credential, peer, now.wall);
        let mut state = self.state.lock();
        if matches!(verified, Err(Refusal::Key(_))) {
            state.failures.note(peer, now.steady);
        }
        let holder = state.admit(verified?, self.file.as_ref(), self.started, now)?;
        Ok(Credential::Secret(credential_of(holder)?))
    }
}

impl State {
    fn admit(
        &mut self,
        verified: sss::Verified,
        file: Option<&SeenFile>,
        started: Now,
        now: Now,
    ) -> Result<Holder, Refusal> {
        let not_noted = |error: std::io::Error| {
            tracing::error!(%error, "clients with shared secrets are refused: cannot use the file that says which were seen");
            Refusal::NotNoted
        };
        // Not at the start: then the node of before may not have ended yet.
        let replays = match &mut self.replays {
            Some(replays) => replays,
            none => {
                let before = file.map_or(Ok(Before::Unknown(None)), SeenFile::read).map_err(not_noted)?;
                none.insert(Replays::new(started, before))
            }
        };
        let holder = verified.admit(replays, now)?;
        if let (Some(file), Some(newest)) = (file, replays.newest())
            && self.written < Some(newest)
        {
            file.write(newest).map_err(not_noted)?;
            self.written = Some(newest);
        }
        Ok(holder)
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
