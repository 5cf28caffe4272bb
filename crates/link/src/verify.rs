//! Which certificates are valid: those of the cluster's authority, within their time, with a name of the one allowed
//! form.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme};
use types::{ClusterId, Timestamp, units};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::admin::AdminName;
use crate::{AuthoritySet, Fingerprint, NodeName};

/// Certificates beside a peer's own that are looked at.
const CHAIN_MAX: usize = 3;

/// What is wrong with a peer's certificate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CertificateProblem {
    /// It names another cluster.
    #[error(
        "its certificate is of cluster {theirs}, and this node is of {ours}: an address leads to the wrong cluster, or a node has kept its identity from another one"
    )]
    OtherCluster {
        /// Its cluster.
        theirs: ClusterId,
        /// This node's cluster.
        ours: ClusterId,
    },
    /// It names this cluster, but this cluster's authority has not signed it.
    #[error(
        "its certificate was not made by this cluster's authority: the authority was replaced while the peer or this node was away, and it must join again or be invited again, or the peer is an impostor"
    )]
    UnknownAuthority,
    /// It has expired.
    #[error("its certificate expired {} ago by this node's clock: it was away too long to renew it, or a clock is wrong; let the node join again with a new token", units::show_duration(*ago))]
    Expired {
        /// The time since it expired.
        ago: Duration,
    },
    /// It is not valid yet.
    #[error("its certificate is good only in {} by this node's clock: a clock is wrong", units::show_duration(*wait))]
    NotYet {
        /// The time until it is valid.
        wait: Duration,
    },
    /// It is no node's certificate.
    #[error("its certificate is not one of a node of a weir cluster")]
    NoNode,
    /// Its authority differs from that of the token.
    #[error(
        "its cluster's authority is not the one that the token, invitation or context names ({wanted}): the address leads to another cluster, or the cluster has replaced its authority since. Then make a new token (`weir token create`) or invitation (`weir admin invite`), or add the context again (`weir admin authority`)"
    )]
    OtherAuthority {
        /// The fingerprint in the token.
        wanted: Fingerprint,
    },
    /// It is unreadable, or not made for this use.
    #[error("its certificate is not good: {0}")]
    Invalid(String),
}

/// The reference for checking certificates.
#[derive(Debug)]
pub(crate) struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum Trust {
    /// Nodes of this cluster, whose authority is one of these.
    Cluster { cluster: ClusterId, anchors: Vec<TrustAnchor<'static>> },
    /// Any peer with the authority of this fingerprint.
    Fingerprint(Fingerprint),
}

/// The cryptography: TLS 1.3 with AES-128-GCM (the fastest on machines with hardware support; others use ChaCha20).
pub(crate) fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring;
    let cipher_suites =
        vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256, ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

impl Verifier {
    /// For peers of `cluster` with a certificate of one of `authorities`, or of an authority for which one of these vouches.
    pub(crate) fn of<'a>(
        cluster: ClusterId,
        authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>,
    ) -> Result<Self, CertificateProblem> {
        let anchor = |authority| anchor_from_trusted_cert(authority).map(|anchor| anchor.to_owned()).map_err(invalid);
        let anchors = authorities.into_iter().map(anchor).collect::<Result<_, _>>()?;
        let algorithms = provider().signature_verification_algorithms;
        Ok(Self { trust: Trust::Cluster { cluster, anchors }, algorithms })
    }

    /// For a manager of a cluster, when only the authority's fingerprint is known.
    pub(crate) fn of_fingerprint(fingerprint: Fingerprint) -> Self {
        let algorithms = provider().signature_verification_algorithms;
        Self { trust: Trust::Fingerprint(fingerprint), algorithms }
    }

    /// The name in the certificate, if it is valid at `now`. The peer sent `others` along with it.
    pub(crate) fn check(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<NodeName, CertificateProblem> {
        let end = EndEntityCert::try_from(certificate).map_err(invalid)?;
        let name = only_name(&end).and_then(NodeName::from_text).ok_or(CertificateProblem::NoNode)?;
        // Nodes both connect and accept, so both usages must be allowed.
        let usages = [KeyUsage::server_auth(), KeyUsage::client_auth()];
        match &self.trust {
            Trust::Cluster { cluster, anchors } => {
                if name.cluster != *cluster {
                    return Err(CertificateProblem::OtherCluster { theirs: name.cluster, ours: *cluster });
                }
                self.check_chain(&end, anchors, others, now, &usages)?;
            }
            Trust::Fingerprint(wanted) => {
                let authority = others.iter().find(|other| Fingerprint::of(other) == *wanted);
                let authority = authority.ok_or(CertificateProblem::OtherAuthority { wanted: *wanted })?;
                let anchor = anchor_from_trusted_cert(authority).map_err(invalid)?;
                self.check_chain(&end, &[anchor], others, now, &usages)?;
            }
        }
        Ok(name)
    }

    /// The administrator in the certificate, if it is valid at `now`. `None` if it is not an administrator's at all.
    pub(crate) fn check_admin(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Option<AdminName>, CertificateProblem> {
        let end = EndEntityCert::try_from(certificate).map_err(invalid)?;
        let (Some(name), Trust::Cluster { cluster, anchors }) =
            (only_name(&end).and_then(AdminName::from_text), &self.trust)
        else {
            return Ok(None);
        };
        if name.cluster != *cluster {
            return Err(CertificateProblem::OtherCluster { theirs: name.cluster, ours: *cluster });
        }
        self.check_chain(&end, anchors, others, now, &[KeyUsage::client_auth()])?;
        Ok(Some(name))
    }

    fn check_chain(
        &self,
        end: &EndEntityCert<'_>,
        anchors: &[TrustAnchor<'_>],
        others: &[CertificateDer<'_>],
        now: Timestamp,
        usages: &[KeyUsage],
    ) -> Result<(), CertificateProblem> {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.secs()).unwrap_or(0)));
        for usage in usages {
            end.verify_for_usage(self.algorithms.all, anchors, first(others), time, *usage, None, None).map_err(
                |error| match error {
                    webpki::Error::CertExpired { time, not_after } => CertificateProblem::Expired {
                        ago: Duration::from_secs(time.as_secs().saturating_sub(not_after.as_secs())),
                    },
                    webpki::Error::CertNotValidYet { time, not_before } => CertificateProblem::NotYet {
                        wait: Duration::from_secs(not_before.as_secs().saturating_sub(time.as_secs())),
                    },
                    webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
                        CertificateProblem::UnknownAuthority
                    }
                    other => invalid(other),
                },
            )?;
        }
        Ok(())
    }
}

/// The part of a chain that counts: no honest peer shows more than its authority, a voucher, and the authority before.
fn first<'a, 'b>(others: &'a [CertificateDer<'b>]) -> &'a [CertificateDer<'b>] {
    others.get(..CHAIN_MAX).unwrap_or(others)
}

/// What a peer showed when it connected. With it, a connection can be judged again when other authorities are trusted than at its beginning.
#[derive(Clone, PartialEq, Eq)]
pub struct ShownChain {
    certificate: CertificateDer<'static>,
    /// The part that counts of what came along with it.
    others: Vec<CertificateDer<'static>>,
    signer: Option<Fingerprint>,
    /// When it was shown. It counts although it expires later.
    at: Timestamp,
}

impl std::fmt::Debug for ShownChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShownChain(of {:?})", self.signer)
    }
}

impl ShownChain {
    /// The certificate of a peer, and those that it sent along with it.
    pub(crate) fn of(certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Self {
        let certificate = certificate.clone().into_owned();
        let others: Vec<_> = first(others).iter().map(|other| other.clone().into_owned()).collect();
        let at = crate::join::now();
        let has_signed = |other: &&CertificateDer<'static>| is_valid(&certificate, &[], [*other], at);
        let signer = others.iter().find(has_signed).map(Fingerprint::of);
        Self { certificate, others, signer, at }
    }

    /// The authority that has signed the certificate itself, if the peer has shown that one too. Whoever has the key of an authority
    /// can show another certificate with that key in its place, so a fingerprint that is not that of a retired authority proves nothing.
    #[must_use]
    pub fn signer(&self) -> Option<Fingerprint> {
        self.signer
    }

    /// Whether a node that trusts `authorities` would have let the peer in.
    #[must_use]
    pub fn is_trusted_by(&self, authorities: &AuthoritySet) -> bool {
        self.signer.is_some_and(|signer| authorities.trusts(&signer))
            || is_valid(&self.certificate, &self.others, authorities.anchors(), self.at)
    }
}

/// Whether the certificate is valid for a node or an administrator who trusts `authorities`.
fn is_valid<'a>(
    certificate: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    authorities: impl IntoIterator<Item = &'a CertificateDer<'static>>,
    now: Timestamp,
) -> bool {
    let of_admin = || admin_name_of(certificate).map(|name| name.cluster);
    let Some(cluster) = name_of(certificate).map(|name| name.cluster).or_else(of_admin) else { return false };
    let Ok(verifier) = Verifier::of(cluster, authorities) else { return false };
    verifier.check_admin(certificate, others, now).is_ok_and(|admin| admin.is_some())
        || verifier.check(certificate, others, now).is_ok()
}

fn timestamp(now: UnixTime) -> Timestamp {
    Timestamp::from_secs(i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// The problem as an error of rustls, which sends a TLS alert to the peer. Two of the alerts name the reason.
fn refusal(problem: CertificateProblem, now: UnixTime) -> rustls::Error {
    rustls::Error::InvalidCertificate(match problem {
        CertificateProblem::Expired { ago } => {
            let not_after = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()).saturating_sub(ago));
            CertificateError::ExpiredContext { time: now, not_after }
        }
        CertificateProblem::UnknownAuthority => CertificateError::UnknownIssuer,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}

/// The problem that [`Verifier`] reported to rustls, if `error` carries one.
pub(crate) fn problem_of(error: &rustls::Error) -> Option<CertificateProblem> {
    let rustls::Error::InvalidCertificate(error) = error else { return None };
    Some(match error {
        CertificateError::ExpiredContext { time, not_after } => {
            CertificateProblem::Expired { ago: Duration::from_secs(time.as_secs().saturating_sub(not_after.as_secs())) }
        }
        CertificateError::UnknownIssuer => CertificateProblem::UnknownAuthority,
        CertificateError::Other(OtherError(other)) => match other.downcast_ref::<CertificateProblem>() {
            Some(problem) => problem.clone(),
            None => CertificateProblem::Invalid(other.to_string()),
        },
        other => CertificateProblem::Invalid(other.to_string()),
    })
}

/// The name in a certificate: its only alternative name.
pub(crate) fn name_of(certificate: &CertificateDer<'_>) -> Option<NodeName> {
    NodeName::from_text(only_name(&EndEntityCert::try_from(certificate).ok()?)?)
}

/// The administrator that a certificate names.
pub(crate) fn admin_name_of(certificate: &CertificateDer<'_>) -> Option<AdminName> {
    AdminName::from_text(only_name(&EndEntityCert::try_from(certificate).ok()?)?)
}

fn only_name<'a>(certificate: &'a EndEntityCert<'_>) -> Option<&'a str> {
    let mut names = certificate.valid_uri_names();
    let name = names.next()?;
    let is_only = names.next().is_none() && certificate.valid_dns_names().next().is_none();
    is_only.then_some(name)
}

fn invalid(error: webpki::Error) -> CertificateProblem {
    CertificateProblem::Invalid(error.to_string())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked = self.check(certificate, others, timestamp(now));
        checked.map(|_| ServerCertVerified::assertion()).map_err(|problem| refusal(problem, now))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        // A joining node has no certificate yet. Any other peer without one is refused after the handshake, with a
        // reason.
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// Accepts nodes and administrators. What each may do is decided after the handshake, by the protocol.
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let checked = self.check_admin(certificate, others, timestamp(now)).and_then(|admin| match admin {
            Some(_) => Ok(()),
            None => self.check(certificate, others, timestamp(now)).map(drop),
        });
        checked.map(|()| ClientCertVerified::assertion()).map_err(|problem| refusal(problem, now))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
