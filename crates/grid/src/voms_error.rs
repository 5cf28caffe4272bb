//! Why VOMS attributes do not count.

use identity::{CLOCK_SKEW, FqanError, VOMS_ATTRIBUTES_MAX};

use crate::attribute_certificate::ATTRIBUTE_CERTIFICATES_MAX;
use crate::error::GridError;

/// Why an attribute certificate does not count. Its user is known nevertheless, as with the libraries of VOMS: whoever has no
/// attributes could as well have left them out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the VOMS attributes of {organization} do not count: {why}")]
pub struct VomsError {
    /// The virtual organization that it is of, as a message may show it.
    pub organization: String,
    /// The rule that it breaks.
    pub why: VomsProblem,
}

/// The rule that an attribute certificate breaks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VomsProblem {
    /// Not an attribute certificate of VOMS.
    #[error("the attribute certificate is malformed")]
    Malformed,
    /// Too many attribute certificates.
    #[error("the proxy has more than {ATTRIBUTE_CERTIFICATES_MAX} attribute certificates")]
    TooManyCertificates,
    /// Too many attributes.
    #[error("there are more than {VOMS_ATTRIBUTES_MAX} attributes: ask for fewer")]
    TooManyAttributes,
    /// Another version.
    #[error("the attribute certificate is not of version 2")]
    Version,
    /// For another user.
    #[error("they were given to the holder of another certificate than the user's")]
    Holder,
    /// They have ended.
    #[error("they have ended at {ended}, and it is {now} (seconds since 1970): get new ones")]
    Expired {
        /// When they have ended.
        ended: i64,
        /// The current time.
        now: i64,
    },
    /// They are not valid yet.
    #[error(
        "they are valid from {from}, and it is {now} (seconds since 1970): a clock is more than {} s wrong",
        CLOCK_SKEW.as_secs()
    )]
    NotYetValid {
        /// From when they are valid.
        from: i64,
        /// The current time.
        now: i64,
    },
    /// No certificate of the signer.
    #[error("the certificate of their signer is not with them")]
    NoSigner,
    /// No `.lsc` file.
    #[error("there is no file {0}, which would name their signer")]
    UnknownServer(String),
    /// The `.lsc` file has other names.
    #[error("their signer is {signer}, and {file} has other names")]
    OtherSigner {
        /// The signer's subject.
        signer: String,
        /// The file.
        file: String,
    },
    /// The signer's certificate is refused.
    #[error("of their signer, {0}")]
    Signer(#[from] GridError),
    /// The signer's certificate is not for signatures.
    #[error("the key of their signer must not sign (keyUsage without digitalSignature)")]
    SignerMustNotSign,
    /// Signed by another.
    #[error("their issuer is not their signer")]
    Issuer,
    /// The signature is wrong, or by an algorithm that is not accepted.
    #[error("of the attribute certificate, {0}")]
    Signature(String),
    /// An extension that is needed is missing.
    #[error("the attribute certificate lacks the extension {0}")]
    MissingExtension(&'static str),
    /// A critical extension that is not known.
    #[error("the extension {0} of the attribute certificate is critical, and is not known here")]
    Critical(String),
    /// For other services.
    #[error("they are for other services than this one (targets)")]
    Target,
    /// An attribute of another organization.
    #[error("the attribute {0} is of another organization")]
    OtherOrganization(String),
    /// An attribute is malformed.
    #[error(transparent)]
    Attribute(#[from] FqanError),
}
