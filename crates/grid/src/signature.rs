//! Signatures of certificates, attribute certificates and revocation lists.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

use crate::certificate::without_leading_zeros;
use crate::der;
use crate::error::Problem;
use crate::name::dotted;

/// RSA keys have at least so many bits, as in TLS and for tokens.
const RSA_BITS_MIN: usize = 2048;
/// And at most so many: a longer one would make each verification slow.
const RSA_BITS_MAX: usize = 8192;

pub(crate) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const SHA1_WITH_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5];
pub(crate) const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const ED25519_OID: &[u8] = &[0x2b, 0x65, 0x70];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];

/// Why a signature is not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SignatureProblem {
    Wrong,
    Broken(&'static str),
    UnknownAlgorithm(String),
    /// The signer's key.
    Key(KeyProblem),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeyProblem {
    Short(usize),
    Unknown,
}

impl From<KeyProblem> for Problem {
    fn from(problem: KeyProblem) -> Self {
        match problem {
            KeyProblem::Short(bits) => Self::ShortKey(bits),
            KeyProblem::Unknown => Self::UnknownKey,
        }
    }
}

impl SignatureProblem {
    /// What it means for a certificate whose issuer is called `issuer`.
    pub fn of_certificate(self, issuer: &str) -> Problem {
        match self {
            // The issuer's own key is checked, too. If it is unfit, that is told of the issuer, later.
            Self::Wrong | Self::Key(_) => Problem::Signature(issuer.to_owned()),
            Self::Broken(name) => Problem::BrokenAlgorithm(name),
            Self::UnknownAlgorithm(oid) => Problem::UnknownAlgorithm(oid),
        }
    }
}

impl std::fmt::Display for SignatureProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wrong => f.write_str("its signature is wrong"),
            Self::Broken(name) => write!(f, "it is signed with {name}, which is broken"),
            Self::UnknownAlgorithm(oid) => write!(f, "it is signed with the algorithm {oid}, which is not supported"),
            Self::Key(KeyProblem::Short(bits)) => write!(f, "it is signed with an RSA key of {bits} bits"),
            Self::Key(KeyProblem::Unknown) => f.write_str("it is signed with a key of a kind that is not supported"),
        }
    }
}

enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

#[derive(Clone, Copy)]
enum Scheme {
    Rsa(&'static dyn VerificationAlgorithm),
    /// With the curves P-256 and P-384.
    Ecdsa(&'static dyn VerificationAlgorithm, &'static dyn VerificationAlgorithm),
    Ed25519,
}

fn kind(key: &SubjectPublicKeyInfo<'_>) -> Result<Kind, KeyProblem> {
    match key.algorithm.algorithm.as_bytes() {
        RSA => {
            let bits = rsa_bits(&key.subject_public_key.data).ok_or(KeyProblem::Unknown)?;
            match bits {
                ..RSA_BITS_MIN => Err(KeyProblem::Short(bits)),
                RSA_BITS_MIN..=RSA_BITS_MAX => Ok(Kind::Rsa),
                _ => Err(KeyProblem::Unknown),
            }
        }
        EC => match key.algorithm.parameters.as_ref().map(|curve| (curve.tag().0, curve.data)) {
            Some((6, P256)) => Ok(Kind::P256),
            Some((6, P384)) => Ok(Kind::P384),
            _ => Err(KeyProblem::Unknown),
        },
        ED25519_OID => Ok(Kind::Ed25519),
        _ => Err(KeyProblem::Unknown),
    }
}

/// Whether the key is of a kind that can be used, and long enough.
pub(crate) fn check_key(key: &SubjectPublicKeyInfo<'_>) -> Result<(), KeyProblem> {
    kind(key).map(|_| ())
}

/// The bits of the modulus of an `RSAPublicKey` (RFC 8017, appendix A.1.1).
fn rsa_bits(key: &[u8]) -> Option<usize> {
    let mut numbers = der::only(key, der::SEQUENCE).ok()?.inside();
    let modulus = without_leading_zeros(numbers.expect(der::INTEGER).ok()?.content);
    let first = modulus.first()?;
    Some(8 * modulus.len() - usize::try_from(first.leading_zeros()).ok()?)
}

fn scheme(algorithm: &AlgorithmIdentifier<'_>) -> Result<Scheme, SignatureProblem> {
    let oid = algorithm.algorithm.as_bytes();
    let scheme = match oid {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last] => match last {
            4 => return Err(SignatureProblem::Broken("MD5")),
            5 => return Err(SignatureProblem::Broken("SHA-1")),
            11 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            12 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            13 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            _ => return Err(SignatureProblem::UnknownAlgorithm(dotted(oid))),
        },
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] => return Err(SignatureProblem::Broken("SHA-1")),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => Scheme::Ecdsa(&ECDSA_P256_SHA256_ASN1, &ECDSA_P384_SHA256_ASN1),
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => Scheme::Ecdsa(&ECDSA_P256_SHA384_ASN1, &ECDSA_P384_SHA384_ASN1),
        ED25519_OID => Scheme::Ed25519,
        _ => return Err(SignatureProblem::UnknownAlgorithm(dotted(oid))),
    };
    // RSA's algorithms have the parameter NULL (RFC 4055, section 5), which some leave out. The others have none.
    let parameters = algorithm.parameters.as_ref().map(|any| (any.tag().0, any.data));
    match (scheme, parameters) {
        (_, None) | (Scheme::Rsa(_), Some((5, []))) => Ok(scheme),
        _ => Err(SignatureProblem::UnknownAlgorithm(dotted(oid))),
    }
}

/// Checks `signature` over `message` with `key`, and takes RSA with SHA-1, too. That is only good for a message with something new in it,
/// which nobody knew before: then a signature of something else with the same digest is of no use.
pub(crate) fn check_new(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureProblem> {
    let parameters = algorithm.parameters.as_ref().map(|any| (any.tag().0, any.data));
    let is_sha1 = algorithm.algorithm.as_bytes() == SHA1_WITH_RSA && matches!(parameters, None | Some((5, [])));
    if !is_sha1 {
        return check(key, algorithm, message, signature);
    }
    match kind(key).map_err(SignatureProblem::Key)? {
        Kind::Rsa => {
            let key =
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, &key.subject_public_key.data);
            key.verify(message, signature).map_err(|_| SignatureProblem::Wrong)
        }
        _ => Err(SignatureProblem::Wrong),
    }
}

/// Checks `signature` over `message` with `key`.
pub(crate) fn check(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureProblem> {
    let scheme = scheme(algorithm)?;
    let by: &'static dyn VerificationAlgorithm = match (scheme, kind(key).map_err(SignatureProblem::Key)?) {
        (Scheme::Rsa(by), Kind::Rsa) => by,
        (Scheme::Ecdsa(by, _), Kind::P256) | (Scheme::Ecdsa(_, by), Kind::P384) => by,
        (Scheme::Ed25519, Kind::Ed25519) => &ED25519,
        _ => return Err(SignatureProblem::Wrong),
    };
    let key = UnparsedPublicKey::new(by, &key.subject_public_key.data);
    key.verify(message, signature).map_err(|_| SignatureProblem::Wrong)
}
