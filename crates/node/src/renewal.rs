//! Renews a node's certificate before it expires. A thread checks once a minute, and renews when a third of the time is left.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use link::{Credentials, Identity, NewKey};
use types::Timestamp;

/// How often it checks.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Has a certificate request signed, by a manager or by the local authority. Returns an error for people.
pub type Sign = dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send;

/// Writes a renewed identity durably. Returns an error for people.
pub type Keep = dyn Fn(&Identity) -> Result<(), String> + Send;

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
}

impl std::fmt::Debug for CertificateRenewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Renewing({:?})", self.identity)
    }
}

impl CertificateRenewal {
    /// Renews the certificate if it is due. Returns whether it did. A new certificate is on disk before it is used.
    ///
    /// # Errors
    /// Why a due certificate was not renewed, for people.
    pub fn look(&mut self) -> Result<bool, String> {
        if !self.identity.wants_renewal((self.clock)(), self.validity) {
            return Ok(false);
        }
        let key = NewKey::draw().map_err(|error| error.to_string())?;
        let request = key.renewal(self.identity.name()).map_err(|error| error.to_string())?;
        let answer = (self.sign)(&request)?;
        let renewed = self.identity.renewed(&key, &answer).map_err(|error| error.to_string())?;
        (self.keep)(&renewed)?;
        self.credentials.replace(&renewed).map_err(|error| error.to_string())?;
        tracing::info!(until = %renewed.expires(), "this node's certificate was renewed");
        self.identity = renewed;
        Ok(true)
    }

    /// Starts a thread that checks at once and then once per `every`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(mut self, every: Duration) -> std::io::Result<Renewal> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("renewal".into()).spawn(move || {
            loop {
                if let Err(why) = self.look() {
                    let until = self.identity.expires();
                    tracing::warn!(%until, why, "this node's certificate could not be renewed; it is tried again");
                }
                if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Renewal { stop: Some(stop), thread: Some(thread) })
    }
}

/// The checking thread. It ends when this value is dropped.
#[derive(Debug)]
pub struct Renewal {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
