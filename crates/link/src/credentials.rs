//! An identity in the form that TLS needs. It can be replaced by a renewed one while connections are made.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::Resumption;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use types::{ClusterId, Timestamp};

use crate::authority_set::AuthoritySet;
use crate::identity::{Identity, IdentityError};
use crate::verify::{Verifier, provider};
use crate::{Fingerprint, NodeName};

/// The TLS protocol name (ALPN) of connections between nodes.
pub(crate) const NODE_PROTOCOL: &[u8] = b"weir-node";
/// The TLS protocol name of the connection of a joining node.
pub(crate) const JOIN_PROTOCOL: &[u8] = b"weir-join";
/// The TLS protocol name of an administrator's connection. A new version of what it carries gets a new name.
pub(crate) const ADMIN_PROTOCOL: &[u8] = b"weir-admin-1";
/// The TLS protocol name of the connection of a person who shows a token on it instead of a certificate.
pub(crate) const TOKEN_PROTOCOL: &[u8] = b"weir-admin-token-1";
/// The TLS protocol name of the connection of a person who shows certificates on it that are not of the cluster. TLS itself takes no proxies, and
/// the person's authority need not be known to other nodes.
pub(crate) const CERTIFICATE_PROTOCOL: &[u8] = b"weir-admin-certificate-1";
/// The TLS protocol name of the connection on which an invitation is redeemed.
pub(crate) const INVITE_PROTOCOL: &[u8] = b"weir-invite-1";

/// The credentials that a node shows now. Replacing them does not affect existing connections.
pub struct Credentials {
    current: RwLock<Arc<Current>>,
}

pub(crate) struct Current {
    pub(crate) name: NodeName,
    expires: Timestamp,
    authority: AuthoritySet,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials(of {}, ..)", self.name())
    }
}

impl Credentials {
    /// The credentials of `identity`.
    ///
    /// # Errors
    /// Its parts do not belong together.
    pub fn new(identity: &Identity) -> Result<Self, IdentityError> {
        Ok(Self { current: RwLock::new(Arc::new(Current::new(identity)?)) })
    }

    /// Switches to `identity`: the same node with a renewed certificate.
    ///
    /// # Errors
    /// Its parts do not belong together, or it is another node.
    pub fn replace(&self, identity: &Identity) -> Result<(), IdentityError> {
        if *identity.name() != self.name() {
            return Err(IdentityError::Answer(format!("it is for {}, and this is {}", identity.name(), self.name())));
        }
        *self.current.write() = Arc::new(Current::new(identity)?);
        Ok(())
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> NodeName {
        self.current.read().name
    }

    /// When the certificate expires.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.current.read().expires
    }

    /// The authorities that the node trusts. The current one has signed its certificate.
    #[must_use]
    pub fn authority(&self) -> AuthoritySet {
        self.current.read().authority.clone()
    }

    /// Makes outgoing connections use `client`.
    #[cfg(test)]
    pub(crate) fn show_as(&self, client: ClientConfig) {
        let current = self.current();
        let (name, expires, authority) = (current.name, current.expires, current.authority.clone());
        let changed =
            Current { name, expires, authority, server: Arc::clone(&current.server), client: Arc::new(client) };
        *self.current.write() = Arc::new(changed);
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read())
    }
}

/// The key with its certificates, if they match.
pub(crate) fn certified_key(identity: &Identity) -> Result<CertifiedKey, IdentityError> {
    let key = any_supported_type(&identity.key()).map_err(IdentityError::Unusable)?;
    let certified = CertifiedKey::new(identity.chain(), key);
    certified.keys_match().map_err(IdentityError::Unusable)?;
    Ok(certified)
}

impl Current {
    fn new(identity: &Identity) -> Result<Self, IdentityError> {
        let name = *identity.name();
        let verifier = || {
            let verifier = Verifier::of(name.cluster, identity.authority().anchors());
            verifier.map(Arc::new).map_err(|problem| IdentityError::Answer(problem.to_string()))
        };
        let key = Arc::new(SingleCertAndKey::from(certified_key(identity)?));
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(IdentityError::Unusable)?
            .with_client_cert_verifier(verifier()?)
            .with_cert_resolver(Arc::clone(&key) as _);
        let protocols =
            [NODE_PROTOCOL, JOIN_PROTOCOL, ADMIN_PROTOCOL, TOKEN_PROTOCOL, CERTIFICATE_PROTOCOL, INVITE_PROTOCOL];
        server.alpn_protocols = protocols.map(<[u8]>::to_vec).to_vec();
        // A resumed session would not show its certificate again, which may have expired since.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(IdentityError::Unusable)?
            .dangerous() // this verifier checks clusters and nodes instead of host names
            .with_custom_certificate_verifier(verifier()?)
            .with_client_cert_resolver(key);
        client.alpn_protocols = vec![NODE_PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let authority = identity.authority().clone();
        Ok(Self { name, expires: identity.expires(), authority, server: Arc::new(server), client: Arc::new(client) })
    }
}

/// The configuration of a joining node, or of somebody with an invitation, a token or a certificate of another authority, by `protocol`. It shows no certificate, and
/// trusts any peer with the authority of this fingerprint.
pub(crate) fn joining(authority: Fingerprint, protocol: &[u8]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous() // this verifier compares the fingerprint in the token
        .with_custom_certificate_verifier(Arc::new(Verifier::of_fingerprint(authority)))
        .with_no_client_auth();
    client.alpn_protocols = vec![protocol.to_vec()];
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    Ok(Arc::new(client))
}

/// The configuration of an administrator's client, which trusts the nodes of `cluster` alone.
pub(crate) fn administrator(
    cluster: ClusterId,
    authority: &CertificateDer<'static>,
    chain: Vec<CertificateDer<'static>>,
    pkcs8: &[u8],
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let general = |problem: crate::CertificateProblem| rustls::Error::General(problem.to_string());
    let key = any_supported_type(&PrivatePkcs8KeyDer::from(pkcs8.to_vec()).into())?;
    let key = CertifiedKey::new(chain, key);
    key.keys_match()?;
    let mut client = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous() // this verifier checks clusters and nodes instead of host names
        .with_custom_certificate_verifier(Arc::new(Verifier::of(cluster, [authority]).map_err(general)?))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    client.alpn_protocols = vec![ADMIN_PROTOCOL.to_vec()];
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    Ok(Arc::new(client))
}
