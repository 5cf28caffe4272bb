//! Renews a node's certificate: before it expires, and when the cluster's authority is replaced. A thread checks every few seconds.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use link::{AuthoritySet, Credentials, Fingerprint, Identity, NewKey};
use parking_lot::Mutex;
use types::Timestamp;

/// How often it checks. Within this time a node learns that the authority was replaced, or that the old one is not trusted any more.
pub const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How many checks in a row fail with the same reason before it is logged again.
const TOLD_EVERY: u32 = 6;

/// Has a certificate request signed, by a manager or by the local authority. Returns an error for people.
pub type Sign = dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send;

/// Writes a renewed identity durably. Returns an error for people.
pub type Keep = dyn Fn(&Identity) -> Result<(), String> + Send;

/// Which authorities the cluster trusts now. `None`: nobody can say now. Returns an error for people.
pub type Trusted = dyn Fn() -> Result<Option<AuthoritySet>, String> + Send;

/// Opens connections again that a change of authorities concerns.
pub type Moved = dyn Fn(Move) + Send;

/// How the authorities of a node have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Its certificate is of another authority now. Connections show that once they are opened again.
    Joined,
    /// It trusts this authority alone: connections that were opened with a certificate that this one does not vouch for must end.
    Alone(Fingerprint),
}

/// A certificate to renew, and how.
pub struct CertificateRenewal {
    /// The node's identity.
    pub identity: Identity,
    /// Writes the identity to its file.
    pub keep: Box<Keep>,
    /// The credentials that its connections use.
    pub credentials: Arc<Credentials>,
    /// The lifetime of new certificates.
    pub validity: Duration,
    /// The time of day.
    pub clock: Box<dyn Fn() -> Timestamp + Send>,
    /// Signs a request.
    pub sign: Box<Sign>,
    /// Says which authorities to trust.
    pub trusted: Box<Trusted>,
    /// Called after a change of authorities, and for [`Move::Alone`] again at each check.
    pub moved: Box<Moved>,
}

impl std::fmt::Debug for CertificateRenewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Renewing({:?})", self.identity)
    }
}

/// What is due.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Due {
    Nothing,
    /// A new certificate.
    Certificate,
    /// The same certificate, with these authorities to trust.
    Trust(AuthoritySet),
}

/// What is due for a node whose certificate expires soon or not, and which trusts `ours`, when the cluster trusts `theirs`.
fn due(expires_soon: bool, ours: &AuthoritySet, theirs: Option<AuthoritySet>) -> Due {
    match theirs.map(|theirs| theirs.without_dropped(ours)) {
        Some(theirs) if theirs.current() != ours.current() => Due::Certificate,
        _ if expires_soon => Due::Certificate,
        Some(theirs) if theirs != *ours => Due::Trust(theirs),
        _ => Due::Nothing,
    }
}

/// What has changed between the authorities `before` and `after`.
fn moves(before: &AuthoritySet, after: &AuthoritySet) -> Vec<Move> {
    let is_dropped = |authority: &Fingerprint| !after.trusts(authority);
    let has_dropped = is_dropped(&before.fingerprint()) || before.previous().as_ref().is_some_and(is_dropped);
    let is_alone = has_dropped && after.previous().is_none();
    let joined = (before.current() != after.current()).then_some(Move::Joined);
    joined.into_iter().chain(is_alone.then(|| Move::Alone(after.fingerprint()))).collect()
}

impl CertificateRenewal {
    /// Renews the certificate if it is due, and drops an authority that is not trusted any more. Returns whether anything has changed. Everything new is
    /// on disk before it is used.
    ///
    /// # Errors
    /// Why something due was not done, for people.
    pub fn look(&mut self) -> Result<bool, String> {
        let ours = self.identity.authority().clone();
        let expires_soon = self.identity.wants_renewal((self.clock)(), self.validity);
        let theirs = match (self.trusted)() {
            // It is no reason to let the certificate end.
            Err(_) if expires_soon => None,
            other => other?,
        };
        let renewed = match due(expires_soon, &ours, theirs) {
            Due::Nothing => {
                // A connection may have been on its way when an authority was dropped.
                if ours.previous().is_none() {
                    (self.moved)(Move::Alone(ours.fingerprint()));
                }
                return Ok(false);
            }
            Due::Certificate => {
                let key = NewKey::draw().map_err(|error| error.to_string())?;
                let request = key.renewal(self.identity.name()).map_err(|error| error.to_string())?;
                let answer = (self.sign)(&request)?;
                self.identity.renewed(&key, &answer).map_err(|error| error.to_string())?
            }
            Due::Trust(set) => self.identity.trusting(set).map_err(|error| error.to_string())?,
        };
        (self.keep)(&renewed)?;
        self.credentials.replace(&renewed).map_err(|error| error.to_string())?;
        let trusted = renewed.authority();
        tracing::info!(until = %renewed.expires(), authority = %trusted.fingerprint(), "this node's certificate was renewed");
        for one in moves(&ours, trusted) {
            if let Move::Alone(authority) = one {
                tracing::info!(%authority, "the cluster's earlier authority is not trusted any more");
            }
            (self.moved)(one);
        }
        self.identity = renewed;
        Ok(true)
    }

    /// Starts a thread that checks at once and then once per `every`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(self, every: Duration) -> std::io::Result<Renewal> {
        let (stop, stopped) = channel();
        let now = RenewNow(Arc::new(Mutex::new(self)));
        let looking = now.clone();
        let thread = std::thread::Builder::new().name("renewal".into()).spawn(move || {
            let (mut said, mut times) = (String::new(), 0);
            loop {
                let failed = looking.look().err().unwrap_or_default();
                times = if failed == said { times + 1 } else { 0 };
                if !failed.is_empty() && times % TOLD_EVERY == 0 {
                    let until = looking.0.lock().identity.expires();
                    tracing::warn!(%until, why = failed, "this node's certificate could not be renewed; it is tried again");
                }
                said = failed;
                if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Renewal { stop: Some(stop), thread: Some(thread), now })
    }
}

/// Checks now, in the caller's thread.
#[derive(Clone)]
pub struct RenewNow(Arc<Mutex<CertificateRenewal>>);

impl std::fmt::Debug for RenewNow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RenewNow")
    }
}

impl RenewNow {
    /// [`CertificateRenewal::look`].
    ///
    /// # Errors
    /// Why something due was not done, for people.
    pub fn look(&self) -> Result<bool, String> {
        self.0.lock().look()
    }
}

/// The checking thread. It ends when this value is dropped.
#[derive(Debug)]
pub struct Renewal {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    now: RenewNow,
}

impl Renewal {
    /// A handle that checks now.
    #[must_use]
    pub fn now(&self) -> RenewNow {
        self.now.clone()
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that renews the certificate had panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The authority `current`, after `previous`. They are not certificates, and nobody looks into them here.
    fn set(current: u8, previous: Option<u8>) -> AuthoritySet {
        let certificate = |fill: u8| [&[0x30, 0x82, 1, 0][..], &[fill; 256]].concat();
        let mut bytes = certificate(current);
        if let Some(previous) = previous {
            bytes.extend([certificate(100 + current), certificate(previous)].concat());
        }
        AuthoritySet::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn a_node_does_what_its_cluster_wants() {
        let (old, both, new) = (set(1, None), set(2, Some(1)), set(2, None));
        for ours in [&old, &both, &new] {
            assert_eq!(due(false, ours, Some(ours.clone())), Due::Nothing);
            assert_eq!(due(false, ours, None), Due::Nothing, "nobody can say");
            assert_eq!(due(true, ours, Some(ours.clone())), Due::Certificate);
            assert_eq!(due(true, ours, None), Due::Certificate);
        }
        assert_eq!(due(false, &old, Some(both.clone())), Due::Certificate, "the rotation");
        assert_eq!(due(false, &both, Some(new.clone())), Due::Trust(new.clone()), "its end");
        assert_eq!(due(true, &both, Some(new.clone())), Due::Certificate);
        assert_eq!(due(false, &new, Some(both.clone())), Due::Nothing, "the manager was restored to before the end");
        assert_eq!(due(true, &new, Some(both.clone())), Due::Certificate);
        assert_eq!(due(false, &both, Some(old.clone())), Due::Certificate, "the manager was restored");
    }

    #[test]
    fn connections_are_opened_again_when_they_show_too_little() {
        let (old, both, new) = (set(1, None), set(2, Some(1)), set(2, None));
        assert_eq!(moves(&old, &old), []);
        assert_eq!(moves(&old, &both), [Move::Joined], "the others still trust the old one");
        assert_eq!(moves(&both, &new), [Move::Alone(new.fingerprint())]);
        assert_eq!(moves(&both, &old), [Move::Joined, Move::Alone(old.fingerprint())]);
        assert_eq!(moves(&both, &set(3, Some(1))), [Move::Joined], "rotated again after a restore");
    }
}
