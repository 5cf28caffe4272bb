//! Why certificates are not accepted.

use identity::CLOCK_SKEW;
use types::Timestamp;

use crate::limits::{CERTIFICATE_BYTES_MAX, CHAIN_MAX};

/// Why a chain of certificates is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GridError {
    /// No certificate.
    #[error("the chain has no certificate")]
    Empty,
    /// Too many.
    #[error("the chain has {0} certificates; {CHAIN_MAX} is the limit")]
    TooMany(usize),
    /// One is too long.
    #[error("certificate {position} of the chain has {len} bytes; {CERTIFICATE_BYTES_MAX} is the limit")]
    TooLong {
        /// Its position; the first one is 1.
        position: usize,
        /// Its length.
        len: usize,
    },
    /// One is malformed.
    #[error("certificate {position} of the chain cannot be read: {why}")]
    Unreadable {
        /// Its position; the first one is 1.
        position: usize,
        /// What is wrong.
        why: Unreadable,
    },
    /// One breaks a rule.
    #[error("the certificate {subject} is refused: {why}")]
    Certificate {
        /// Its subject, as a message may show it.
        subject: String,
        /// The rule.
        why: Problem,
    },
    /// So many signatures were checked that others would have to wait.
    #[error("too many certificates of the chain have the same subject, and none of them leads to a trusted authority")]
    TooManySignatures,
}

/// Why bytes are not a certificate that can be judged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not X.509.
    #[error("it is not an X.509 certificate in DER form")]
    NotX509,
    /// There is something behind it.
    #[error("there are {0} bytes behind it")]
    Behind(usize),
    /// An extension occurs twice.
    #[error("it has the extension {0} more than once")]
    Twice(String),
    /// A known extension is malformed.
    #[error("its extension {0} is malformed")]
    Extension(String),
    /// A critical extension that is not known.
    #[error("its extension {0} is critical, and is not known here")]
    Critical(String),
    /// The serial number is too long.
    #[error("its serial number has more than 20 bytes")]
    Serial,
    /// The two places that name the signature's algorithm differ.
    #[error("it names two different signature algorithms")]
    TwoAlgorithms,
    /// Version 1 or 2 with extensions.
    #[error("it has extensions, which a certificate of its version cannot have")]
    Version,
}

/// The rule that a certificate breaks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// It has ended.
    #[error("it has ended at {ended}, and it is {now} (seconds since 1970): get a new one")]
    Expired {
        /// When it has ended.
        ended: i64,
        /// The current time.
        now: i64,
    },
    /// It is not valid yet.
    #[error(
        "it is valid from {from}, and it is {now} (seconds since 1970): a clock is more than {} s wrong",
        CLOCK_SKEW.as_secs()
    )]
    NotYetValid {
        /// From when it is valid.
        from: i64,
        /// The current time.
        now: i64,
    },
    /// Nobody who is known has signed it.
    #[error("its issuer {0} is neither a trusted authority nor in the chain")]
    UnknownIssuer(String),
    /// A certificate with the issuer's name is there, but its key has not signed.
    #[error("its signature is not one of {0}: it was altered, or is forged")]
    Signature(String),
    /// MD5 or SHA-1.
    #[error("it is signed with {0}, which is broken: SHA-256 or better is needed")]
    BrokenAlgorithm(&'static str),
    /// An algorithm that is not supported.
    #[error(
        "it is signed with the algorithm {0}; supported are RSA with SHA-256, SHA-384 or SHA-512, ECDSA on P-256 or P-384 \
         with SHA-256 or SHA-384, and Ed25519"
    )]
    UnknownAlgorithm(String),
    /// The key has too few bits.
    #[error("its RSA key has {0} bits; at least 2048 are needed")]
    ShortKey(usize),
    /// A key that is not supported.
    #[error("its key is of a kind that is not supported: RSA, P-256, P-384 and Ed25519 are")]
    UnknownKey,
    /// The issuer is no authority.
    #[error("its issuer {0} is not a certification authority")]
    IssuerIsNoAuthority(String),
    /// The authority's key must not sign certificates.
    #[error("its issuer {0} must not sign certificates (keyUsage without keyCertSign)")]
    IssuerMustNotSign(String),
    /// Too many authorities below another one.
    #[error("there are {below} authorities below it, and it allows {allowed} (pathLenConstraint)")]
    PathLength {
        /// How many there are.
        below: u32,
        /// How many it allows.
        allowed: u32,
    },
    /// The authority may not issue for this name.
    #[error("the name {name} is outside of what {authority} may issue for (nameConstraints)")]
    NameConstraints {
        /// The name.
        name: String,
        /// Who must not issue for it.
        authority: String,
    },
    /// The signing policy does not have this name.
    #[error("its issuer {0} must not issue for this subject (the authority's signing_policy)")]
    SigningPolicy(String),
    /// There is a signing policy that cannot be read.
    #[error("the signing_policy of its issuer {0} cannot be used, so nobody knows for which subjects it may issue")]
    UnusableSigningPolicy(String),
    /// Revoked.
    #[error("its issuer has revoked it")]
    Revoked,
    /// There is a list that cannot be used.
    #[error("the revocation list of its issuer cannot be used: {0}")]
    UnusableRevocationList(String),
    /// An authority instead of a user or a host.
    #[error("it is the certificate of a certification authority")]
    Authority,
    /// `keyUsage` has no `digitalSignature`.
    #[error("its key must not sign (keyUsage without digitalSignature)")]
    MustNotSign,
    /// It is for something else.
    #[error("it is not for {0} (extendedKeyUsage)")]
    Purpose(&'static str),
    /// A subject that rules cannot be written for.
    #[error("its subject cannot be used: {0}")]
    Subject(String),
    /// A proxy of an authority, or a host's.
    #[error("it is a proxy certificate, and {0}")]
    ProxyMisplaced(&'static str),
    /// A proxy from before RFC 3820.
    #[error("it is a legacy proxy ({0}): make one that follows RFC 3820 (`voms-proxy-init -rfc`)")]
    LegacyProxy(&'static str),
    /// The information about the proxy is not critical.
    #[error("its proxyCertInfo is not critical, as RFC 3820, section 3.8, demands")]
    ProxyNotCritical,
    /// The information about the proxy is malformed.
    #[error("its proxyCertInfo is malformed")]
    ProxyInfo,
    /// Something else than the delegated proxy that was asked for.
    #[error("it is not a proxy certificate, which was asked for")]
    NoProxy,
    /// A delegated proxy for another key.
    #[error("its key is not the one that was made for it")]
    ProxyKey,
    /// A delegated proxy that another certificate has signed.
    #[error("its issuer is not {0}, with which the user has logged in")]
    ProxyIssuer(String),
    /// The subject is not the issuer's with one more CN.
    #[error("the subject of a proxy must be that of its issuer {0} and one CN (RFC 3820, section 3.4)")]
    ProxySubject(String),
    /// The proxy says that it is an authority.
    #[error("a proxy must not be a certification authority (RFC 3820, section 3.7)")]
    ProxyAuthority,
    /// The proxy has other names.
    #[error("a proxy must not have alternative names (RFC 3820, section 3.5)")]
    ProxyAlternativeNames,
    /// `keyUsage` of a proxy has `keyCertSign` or `nonRepudiation`.
    #[error("the keyUsage of a proxy must not have keyCertSign or nonRepudiation (RFC 3820, section 3.6)")]
    ProxyKeyUsage,
    /// Too many proxies below one.
    #[error("there are {below} proxies below it, and it allows {allowed} (pCPathLenConstraint)")]
    ProxyPathLength {
        /// How many there are.
        below: u32,
        /// How many it allows.
        allowed: u32,
    },
    /// An independent proxy has none of its user's rights.
    #[error("it is an independent proxy (RFC 3820, section 3.8.2), which has none of the rights of its user")]
    ProxyIndependent,
    /// A policy language that is not known.
    #[error("it is a proxy with rights in the policy language {0}, which is not known here")]
    ProxyPolicy(String),
    /// A policy where the language has none.
    #[error("it is a proxy whose policy language has no policy, and it has one (RFC 3820, section 3.8.2)")]
    ProxyPolicyText,
    /// The certificate of a host.
    #[error(
        "it is the certificate of a host ({0}): servers sign for anybody, so `gsi` needs the certificate of a user"
    )]
    HostCertificate(String),
    /// For another host.
    #[error("it is not for the host {host}, but for {names}")]
    Host {
        /// Who was to be connected to.
        host: String,
        /// The names that it is for.
        names: String,
    },
}

impl Problem {
    pub(crate) fn expired(ended: Timestamp, now: Timestamp) -> Self {
        Self::Expired { ended: ended.secs(), now: now.secs() }
    }

    pub(crate) fn not_yet_valid(from: Timestamp, now: Timestamp) -> Self {
        Self::NotYetValid { from: from.secs(), now: now.secs() }
    }
}
