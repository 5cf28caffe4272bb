//! How a node and its clients know each other: the certificate that it shows them, and how they show who they are.

use std::net::SocketAddr;
use std::sync::Arc;

use authentication::{Authenticator, Mechanism, Refresher, SystemClock};
use config::Config;
use service::{Principal, Rights};
use tls::{CertificateFiles, ServerCertificate, TlsRequired};
use xrootd::TlsConfig;

use crate::Failure;
use crate::exit::Exit;
use crate::listen;
use crate::serve::now;

/// What the front ends of a node need.
pub(crate) struct ClientSecurity {
    /// The certificate, if there is one.
    tls: Option<TlsConfig>,
    /// Who clients are, if they must show it.
    authenticator: Option<Arc<Authenticator>>,
    /// Keeps the keys of issuers fresh.
    _refresher: Option<Refresher>,
}

impl ClientSecurity {
    /// Reads what the configuration names.
    ///
    /// # Errors
    /// Something of it cannot be used, or does not go together.
    pub(crate) fn of(config: &Config) -> Result<Self, Failure> {
        let authenticator = authenticator_of(config)?.map(Arc::new);
        let tls = tls_of(config, authenticator.as_deref())?;
        Ok(Self { tls, authenticator, _refresher: None })
    }

    /// Finds out who clients are; `None`: they need not show it.
    pub(crate) fn authenticator(&self) -> Option<Arc<Authenticator>> {
        self.authenticator.clone()
    }

    /// Whether clients must show who they are.
    pub(crate) fn asks_clients(&self) -> bool {
        self.authenticator.is_some()
    }

    /// Begins to fetch the keys of issuers, so that no client waits for them.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        let refresher = self.authenticator.as_ref().map(|authenticator| authenticator.keep_keys_fresh()).transpose();
        self._refresher = refresher.map_err(|error| Failure::new(Exit::Failed, error))?;
        Ok(())
    }

    /// The address for clients. It may be one that other machines reach if clients must prove who they are.
    ///
    /// # Errors
    /// It is no address, or other machines reach it and nobody has allowed that.
    pub(crate) fn address(&self, config: &Config) -> Result<SocketAddr, Failure> {
        let is_proof = |authenticator: &Arc<Authenticator>| authenticator.mechanisms().iter().any(Mechanism::is_proof);
        let may_be_reached = config.insecure || self.authenticator.as_ref().is_some_and(is_proof);
        listen::resolve(&config.listen, may_be_reached).map_err(|error| Failure::new(error.exit(), error))
    }

    /// Gives it to the front end. A disk server's clients show capabilities of its manager, which has found out who they are.
    pub(crate) fn give_to(&self, server: &mut xrootd::ServerConfig, is_disk_server: bool) {
        server.tls.clone_from(&self.tls);
        if is_disk_server && self.authenticator.is_some() {
            // Their rights are those of their capabilities.
            server.principal = Principal { rights: Rights::Full, ..Principal::nobody() };
        } else {
            server.authenticator.clone_from(&self.authenticator);
        }
    }
}

/// The file in the data directory that says after a restart which credentials of `sss` were seen before.
const SEEN_SECRETS_FILE: &str = "seen-secrets";
/// The same for `krb5`.
const SEEN_TICKETS_FILE: &str = "seen-tickets";

/// Finds out who clients are; `None`: they need not show it.
///
/// # Errors
/// The settings are wrong, or a file that they name cannot be used.
pub(crate) fn authenticator_of(config: &Config) -> Result<Option<Authenticator>, Failure> {
    let mut settings = config.authentication();
    settings.seen_secrets = config.data.as_ref().map(|data| data.join(SEEN_SECRETS_FILE));
    settings.seen_tickets = config.data.as_ref().map(|data| data.join(SEEN_TICKETS_FILE));
    if settings.mechanisms.is_empty() {
        return Ok(None);
    }
    let authenticator = Authenticator::new(settings, Arc::new(SystemClock::default()));
    authenticator.map(Some).map_err(|error| Failure::new(Exit::Usage, error).while_doing("cannot use `authentication`"))
}

fn tls_of(config: &Config, authenticator: Option<&Authenticator>) -> Result<Option<TlsConfig>, Failure> {
    let wrong = |why: &'static str| Err(Failure::message(Exit::Usage, why));
    let mechanisms: Vec<Mechanism> = authenticator.map(|one| one.mechanisms().iter().collect()).unwrap_or_default();
    let takes_tokens = mechanisms.contains(&Mechanism::Ztn);
    let files = match (&config.tls_certificate, &config.tls_key) {
        (None, None) if takes_tokens => {
            return wrong(
                "`authentication.mechanisms` has `ztn`, and clients show tokens over TLS only: set `tls.certificate` and `tls.key`",
            );
        }
        (None, None) if config.tls_required.is_nothing() => return Ok(None),
        (None, None) => {
            return wrong(
                "`tls.required` names what needs TLS, and there is no certificate: set `tls.certificate` and `tls.key`",
            );
        }
        (Some(certificate), key) => CertificateFiles {
            certificate: certificate.clone(),
            // Both may be in one file.
            key: key.clone().unwrap_or_else(|| certificate.clone()),
        },
        (None, Some(_)) => return wrong("`tls.key` is set, and `tls.certificate` is not"),
    };
    let certificate = ServerCertificate::load(files, now()).map_err(|error| Failure::new(Exit::Usage, error))?;
    let required = required(config.tls_required, takes_tokens && mechanisms.len() == 1);
    Ok(Some(TlsConfig { certificate, required }))
}

/// As at the stock server, whoever protects data protects the requests for them. Where all clients need TLS to log in, those
/// that can are led to it, whatever their addresses begin with.
fn required(mut required: TlsRequired, all_need_tls: bool) -> TlsRequired {
    required.login |= all_need_tls;
    required.session |= required.data && !required.login;
    required
}
